//! The Persian cleaner: written text to spoken text.
//!
//! Order: letters; then everything with digits, from the most specific (dates) to plain numbers; then signs and
//! punctuation; the zero-width non-joiner last, when all words are in place. Each step's rules are documented in its
//! module. Latin words stay, in lower case; unspeakable characters are dropped, letters never are.

mod dates;
mod joiner;
mod letters;
mod numbers;
mod quantities;
mod symbols;

use unicode_normalization::UnicodeNormalization;

use super::normalize::{Joiner, normalize};
use super::punctuation::{self, tidy};
use super::rewrite::until_stable;
use super::web;

const WEB: web::Words =
    web::Words {
        at: "ات", dot: "دات", slash: "اسلش", dash: "خط تیره", underscore: "آندرلاین"
    };

/// Cleans Persian text as described in the module documentation. Idempotent; the result has no digits.
pub fn clean(text: &str) -> String {
    until_stable(text, pass)
}

fn pass(text: &str) -> String {
    let text = normalize(text, Joiner::Keep);
    let text = letters::unify(&text);
    let text = web::read(&text, &WEB);
    let text = symbols::abbreviations(&text);
    let text = dates::read(&text);
    let text = quantities::read(&text);
    let text = symbols::read(&text);
    let text = symbols::drop_unspeakable(&text);
    let text: String = text.to_lowercase().nfc().collect();
    let text = tidy(&joiner::strip(&text), &punctuation::PERSIAN);
    joiner::join(&letters::initial_alef(&text))
}
