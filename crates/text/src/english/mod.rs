//! The English cleaner: written text to spoken text, read the American way.
//!
//! Order: addresses and abbreviations, while capitals still distinguish names from words; then everything with digits, from
//! the most specific (dates, telephone numbers) to plain numbers; then signs and punctuation; lower case last. Quotation
//! marks and unspeakable characters are dropped; letters never are.

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
use super::punctuation::{self, drop_unspeakable, tidy};
use super::rewrite::until_stable;
use super::web;

const WEB: web::Words =
    web::Words { at: "at", dot: "dot", slash: "slash", dash: "dash", underscore: "underscore" };

/// Cleans English text as described in the module documentation. Idempotent; the result has no digits.
pub fn clean(text: &str) -> String {
    until_stable(text, pass)
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
    let text = drop_unspeakable(&text, &punctuation::LATIN);
    let text: String = text.to_lowercase().nfc().collect();
    tidy(&text, &punctuation::LATIN)
}
