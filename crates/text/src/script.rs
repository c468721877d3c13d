//! Writing systems, as far as they help to tell languages and speaking rates apart.

/// A writing system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Script {
    /// Latin and every alphabet not listed here; these are read at about the same rate.
    Latin,
    /// Cyrillic.
    Cyrillic,
    /// Arabic, Persian and their relatives: short vowels are not written.
    Arabic,
    /// Devanagari.
    Devanagari,
    /// Korean syllables.
    Hangul,
    /// Japanese syllables.
    Kana,
    /// Chinese characters.
    Han,
}

impl Script {
    /// The script of a letter; `None` for a character that is not a letter.
    #[inline]
    pub fn of(c: char) -> Option<Script> {
        // Fast path: most texts are ASCII, and a corpus may have a hundred million characters.
        if c.is_ascii() {
            return c.is_ascii_alphabetic().then_some(Script::Latin);
        }
        Some(match c as u32 {
            0x0400..=0x052f | 0x1c80..=0x1c8f | 0x2de0..=0x2dff | 0xa640..=0xa69f => Script::Cyrillic,
            0x0600..=0x06ff | 0x0750..=0x077f | 0x08a0..=0x08ff | 0xfb50..=0xfdff | 0xfe70..=0xfeff
                if c.is_alphabetic() =>
            {
                Script::Arabic
            }
            0x0900..=0x097f if c.is_alphabetic() => Script::Devanagari,
            0x1100..=0x11ff | 0x3130..=0x318f | 0xa960..=0xa97f | 0xac00..=0xd7ff => Script::Hangul,
            // The prolonged sound mark (0x30fc) may be included: it only occurs between kana.
            0x3041..=0x3096 | 0x30a1..=0x30fa | 0x30fc | 0x31f0..=0x31ff | 0xff66..=0xff9d => Script::Kana,
            0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff => Script::Han,
            _ if c.is_alphabetic() => Script::Latin,
            _ => return None,
        })
    }

    /// The script of most letters in a text; a text with enough kana counts as Japanese even if most letters are Han.
    pub fn of_text(text: &str) -> Option<Script> {
        const ALL: [Script; 7] = [
            Script::Latin,
            Script::Cyrillic,
            Script::Arabic,
            Script::Devanagari,
            Script::Hangul,
            Script::Kana,
            Script::Han,
        ];
        let mut counts = [0_usize; ALL.len()];
        for script in text.chars().filter_map(Script::of) {
            counts[script as usize] += 1;
        }
        let (kana, han) = (counts[Script::Kana as usize], counts[Script::Han as usize]);
        // A few kana in a Chinese text are a brand name; Japanese text has far more than one in ten.
        if kana * 10 > kana + han {
            counts[Script::Kana as usize] += han;
            counts[Script::Han as usize] = 0;
        }
        let most = *counts.iter().max()?;
        (most > 0).then(|| ALL.into_iter().find(|&script| counts[script as usize] == most))?
    }
}

/// Whether texts in Arabic script are Persian. Persian has four letters that Arabic lacks (about 4 % of a text), and its own
/// kaf and yeh unless the text was typed on an Arabic keyboard.
pub fn is_persian<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let (mut letters, mut persian_only, mut persian_forms, mut arabic_forms) = (0_usize, 0, 0, 0);
    for c in texts.flat_map(str::chars) {
        match c {
            'پ' | 'چ' | 'ژ' | 'گ' => persian_only += 1,
            '\u{6a9}' | '\u{6cc}' => persian_forms += 1,
            '\u{643}' | '\u{64a}' | '\u{649}' | 'ة' => arabic_forms += 1,
            _ => {}
        }
        letters += usize::from(Script::of(c) == Some(Script::Arabic));
    }
    persian_only * 200 > letters || persian_forms > arabic_forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_get_the_script_of_most_letters() {
        for (text, script) in [
            ("Hello, world 12", Some(Script::Latin)),
            ("Привет, мир", Some(Script::Cyrillic)),
            ("سلام دنیا", Some(Script::Arabic)),
            ("नमस्ते", Some(Script::Devanagari)),
            ("안녕하세요", Some(Script::Hangul)),
            ("東京へ行きました", Some(Script::Kana)),
            ("我们去北京", Some(Script::Han)),
            ("我们今天去北京の公园看樱花", Some(Script::Han)),
            ("iPhone را خریدم و برگشتم", Some(Script::Arabic)),
            ("12 + 3 = ۱۵!", None),
            ("", None),
        ] {
            assert_eq!(Script::of_text(text), script, "{text}");
        }
    }
}
