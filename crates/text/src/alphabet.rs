//! The characters of cleaned text, by language. Used to check a corpus before there is a vocabulary, and to give every
//! letter a token when a vocabulary is trained.

use super::Cleaner;
use super::english::pronunciation;

/// Letters and punctuation expected after cleaning. The Coqui and default cleaners leave nearly the same set. `None`
/// for languages without a list (Chinese, Japanese and Korean have no short one).
pub fn alphabet(language: &str, cleaner: Cleaner) -> Option<&'static str> {
    Some(match super::canonical(language).as_str() {
        "en" if cleaner == Cleaner::Phonemes => pronunciation::ALPHABET,
        "en" => "abcdefghijklmnopqrstuvwxyz '-,.;:!?…—()",
        "es" => "abcdefghijklmnopqrstuvwxyzáéíóúüñ '-,.;:!?¿¡…—()",
        "fr" => "abcdefghijklmnopqrstuvwxyzàâæçéèêëîïôœùûüÿ '-,.;:!?…—()",
        "de" => "abcdefghijklmnopqrstuvwxyzäöüß '-,.;:!?…—()",
        "it" => "abcdefghijklmnopqrstuvwxyzàèéìíîòóùú '-,.;:!?…—()",
        "pt" => "abcdefghijklmnopqrstuvwxyzáâãàçéêíóôõúü '-,.;:!?…—()",
        "pl" => "abcdefghijklmnopqrstuvwxyząćęłńóśźż '-,.;:!?…—()",
        "tr" => "abcdefghijklmnopqrstuvwxyzçğıöşüâîû '-,.;:!?…—()",
        "nl" => "abcdefghijklmnopqrstuvwxyzáéëèïíóöúü '-,.;:!?…—()",
        "cs" => "abcdefghijklmnopqrstuvwxyzáčďéěíňóřšťúůýž '-,.;:!?…—()",
        "hu" => "abcdefghijklmnopqrstuvwxyzáéíóöőúüű '-,.;:!?…—()",
        "ru" => "абвгдеёжзийклмнопрстуфхцчшщъыьэюя '-,.;:!?…—()",
        "ar" => "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيًٌٍَُِّْ -،.؛:!؟…—()",
        "fa" => "ءآأؤئابپتثجچحخدذرزژسشصضطظعغفقکگلمنهوی\u{200c} -،.؛:!؟…—()«»",
        "hi" => "अआइईउऊऋएऐऑओऔकखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसहािीुूृेैॉोौ्ंँः़ '-,.;:!?।…—()",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabets_have_no_duplicates_and_end_in_punctuation() {
        for language in
            ["en", "es", "fr", "de", "it", "pt", "pl", "tr", "nl", "cs", "hu", "ru", "ar", "fa", "hi"]
        {
            for cleaner in [Cleaner::Default, Cleaner::Phonemes] {
                let characters = alphabet(language, cleaner).unwrap();
                let mut sorted: Vec<char> = characters.chars().collect();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), characters.chars().count(), "{language}");
                assert!(characters.contains(' ') && characters.contains('.'), "{language}");
                let is_other = characters != alphabet(language, Cleaner::Default).unwrap();
                assert_eq!(is_other, (language, cleaner) == ("en", Cleaner::Phonemes));
            }
        }
        let default = |language| alphabet(language, Cleaner::Default);
        assert_eq!(default("fa-IR"), default("fa"));
        assert_eq!(default("tlh"), None);
    }
}
