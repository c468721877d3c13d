//! The Persian cleaner: text as people type it to text as it is spoken.
//!
//! Letters first, then everything with digits from the most particular (dates) to the plainest (a number),
//! then signs and punctuation, and the zero-width non-joiner last, when all words are in place. The policy
//! of each step is in its module. Latin words stay, in lower case; what cannot be said is dropped, but no
//! letter ever is.

mod dates;
mod joiner;
mod letters;
mod numbers;
mod quantities;
mod symbols;

use unicode_normalization::UnicodeNormalization;

use super::normalize::{Joiner, normalize};
use super::punctuation::{self, tidy};
use super::rewrite::settle;
use super::web;

const WEB: web::Words =
    web::Words {
        at: "ات", dot: "دات", slash: "اسلش", dash: "خط تیره", underscore: "آندرلاین"
    };

/// Cleans Persian text: see the module. Idempotent, and without digits.
pub fn clean(text: &str) -> String {
    settle(text, pass)
}

fn pass(text: &str) -> String {
    let text = normalize(text, Joiner::Keep);
    let text = letters::unify(&text);
    let text = web::read(&text, &WEB);
    let text = symbols::abbreviations(&text);
    let text = dates::read(&text);
    let text = quantities::read(&text);
    let text = symbols::read(&text);
    let text = symbols::sweep(&text);
    let text: String = text.to_lowercase().nfc().collect();
    let text = tidy(&joiner::strip(&text), &punctuation::PERSIAN);
    joiner::join(&letters::initial_alef(&text))
}
