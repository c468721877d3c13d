//! One writer per folder.
