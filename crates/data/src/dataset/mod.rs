//! Corpora: one file per layout, detected by themselves.
