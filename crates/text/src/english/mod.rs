//! The English cleaner: text as written to text as spoken, read the American way.
//!
//! Addresses and abbreviations first, while capitals still tell a name from a word; then everything with
//! digits from the most particular (dates, telephone numbers) to the plainest; then signs and punctuation;
//! lower case last. Quotation marks and what cannot be said are dropped, but no letter ever is.

mod abbreviations;
mod dates;
pub(crate) mod phonemes;
pub mod pronunciation;
mod quantities;
mod symbols;
mod telephones;
mod units;
mod words;

use unicode_normalization::UnicodeNormalization;

use super::normalize::{Joiner, normalize};
use super::punctuation::{self, sweep, tidy};
use super::rewrite::settle;
use super::web;

const WEB: web::Words =
    web::Words { at: "at", dot: "dot", slash: "slash", dash: "dash", underscore: "underscore" };

/// Cleans English text: see the module. Idempotent, and without digits.
pub fn clean(text: &str) -> String {
    settle(text, pass)
}

fn pass(text: &str) -> String {
    let text = normalize(text, Joiner::Drop);
    let text = web::read(&text, &WEB);
    let text = symbols::before_numbers(&text);
    let text = abbreviations::read(&text);
    let text = telephones::read(&text);
    let text = dates::read(&text);
    let text = quantities::read(&text);
    let text = symbols::read(&text);
    let text = sweep(&text, &punctuation::LATIN);
    let text: String = text.to_lowercase().nfc().collect();
    tidy(&text, &punctuation::LATIN)
}
