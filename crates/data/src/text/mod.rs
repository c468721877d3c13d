//! Text as written to text as spoken: a cleaner per language.

pub mod coqui;
pub mod languages;
pub mod numbers;
