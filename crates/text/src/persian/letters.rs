//! Unifies letters: Arabic and neighbouring code points become the Persian ones.
//!
//! - ي ى ې ے become ی, ك ڪ become ک, ة ہ ھ ە become ه, إ ٱ become ا; أ stays inside a word (تأثیر) and becomes ا at its
//!   beginning (أحمد).
//! - ۀ and هٔ become «ه‌ی»: the ezafe they denote is spoken, and this spelling uses no rare character.
//! - Vowel marks, shadda, sukun, tanwin and Koranic signs are removed: they are written so seldom that they would give every
//!   word two spellings («مثلاً» is the same word as «مثلا»).
//! - The tatweel only stretches a line and is dropped.

use crate::normalize::ZWNJ;

/// Unifies the letters of NFC text.
pub fn unify(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let letter = match c {
            'ي' | 'ى' | 'ې' | 'ے' | 'ۍ' | 'ێ' => 'ی',
            'ك' | 'ڪ' | 'ګ' => 'ک',
            'ڭ' | 'ݣ' => 'گ',
            'ة' | 'ہ' | 'ھ' | 'ە' | 'ۃ' => 'ه',
            'إ' | 'ٱ' | 'ٳ' => 'ا',
            'ٲ' => 'أ',
            'ٶ' => 'ؤ',
            'ٸ' | 'ۓ' => 'ئ',
            'ۀ' | 'ۂ' => {
                out.extend(['ه', ZWNJ, 'ی']);
                continue;
            }
            // A hamza above: NFC composes it with alef, waw and Arabic yeh, but not with the Persian letters.
            '\u{0654}' => {
                match out.chars().next_back() {
                    Some('ه') => out.extend([ZWNJ, 'ی']),
                    Some('ی') => {
                        out.pop();
                        out.push('ئ');
                    }
                    _ => {}
                }
                continue;
            }
            // The percent, decimal and thousands signs of this block are kept for reading numbers.
            '\u{0640}'
            | '\u{0610}'..='\u{061a}'
            | '\u{064b}'..='\u{065f}'
            | '\u{0670}'
            | '\u{06d6}'..='\u{06ed}'
            | '\u{08d3}'..='\u{08ff}' => continue,
            _ => c,
        };
        out.push(letter);
    }
    out
}

/// Replaces an alef with hamza at the beginning of a word by a plain alef. Runs when all words are in place.
pub fn initial_alef(text: &str) -> String {
    let mut before = ' ';
    text.chars()
        .map(|c| {
            let initial = c == 'أ' && !is_arabic(before) && before != ZWNJ;
            before = c;
            if initial { 'ا' } else { c }
        })
        .collect()
}

/// Returns whether `c` is a letter of the Arabic script.
pub fn is_arabic(c: char) -> bool {
    matches!(c, '\u{0620}'..='\u{064a}' | '\u{066e}'..='\u{06d5}' | '\u{06ee}'..='\u{06ff}' | '\u{0750}'..='\u{077f}')
        && c.is_alphabetic()
}

/// Returns whether a letter never connects to the next one: a joiner after it is invisible.
pub fn never_joins_next(c: char) -> bool {
    matches!(c, 'ا' | 'آ' | 'أ' | 'إ' | 'د' | 'ذ' | 'ر' | 'ز' | 'ژ' | 'و' | 'ؤ' | 'ء')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_arabic_letters_to_persian() {
        for (from, to) in [
            ("علي", "علی"),
            ("كتاب", "کتاب"),
            ("موسى", "موسی"),
            ("فاطمة", "فاطمه"),
            ("أحمد", "احمد"),
            ("تأثیر", "تأثیر"),
            ("إیران", "ایران"),
            ("خانۀ ما", "خانه\u{200c}ی ما"),
            ("خانه\u{654} ما", "خانه\u{200c}ی ما"),
            ("مسی\u{654}ول", "مسئول"),
            ("کِتابِ مُحَمَّد", "کتاب محمد"),
            ("مثلاً", "مثلا"),
            ("ســـلام", "سلام"),
        ] {
            assert_eq!(initial_alef(&unify(from)), to);
            assert_eq!(initial_alef(&unify(to)), to);
        }
    }
}
