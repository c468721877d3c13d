//! Text as written to text as spoken: a cleaner per language.
