//! Reads everything and says what is wrong, where, and what to do about it.
