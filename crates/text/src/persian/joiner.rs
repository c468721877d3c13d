//! The zero-width non-joiner: kept where it separates the parts of a word, removed everywhere else.
//!
//! 1. It stays only between two Arabic-script letters, and not after a letter that never connects («کار‌ها» and «کارها» look
//!    the same, so they are written the same).
//! 2. The prefixes می and نمی are joined to their verb, also where they were glued on («میشود»); the suffixes ها… and ترین
//!    to their word, and ام ای ایم اید اند اش ی to a word that ends in ه.
//! 3. تر is left, because it is a word of its own («چشم تر»), and so is a glued plural («کتابها»): only a dictionary could
//!    distinguish it from «تنها».

use super::letters::{is_arabic, never_joins_next};
use crate::normalize::ZWNJ;
use crate::rewrite::pattern;

/// Removes every joiner that rule 1 does not allow.
pub fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != ZWNJ {
            out.push(c);
            continue;
        }
        while chars.next_if_eq(&ZWNJ).is_some() {}
        let joins = out.chars().next_back().is_some_and(|c| is_arabic(c) && !never_joins_next(c))
            && chars.peek().copied().is_some_and(is_arabic);
        if joins {
            out.push(ZWNJ);
        }
    }
    out
}

const SUFFIXES: [&str; 13] = [
    "ها",
    "های",
    "هایی",
    "هایم",
    "هایت",
    "هایش",
    "هایمان",
    "هایتان",
    "هایشان",
    "هامان",
    "هاتان",
    "هاشان",
    "ترین",
];
/// Endings after a word with a silent final ه: verb endings, the possessive, the written ezafe.
const ENDINGS: [&str; 7] = ["ام", "ای", "ایم", "اید", "اند", "اش", "ی"];
/// Words that follow the noun می (wine) and never a prefix.
const NOT_VERBS: [&str; 12] = ["و", "را", "که", "از", "به", "در", "با", "بر", "تا", "یا", "ناب", "هم"];

/// Joins separated prefixes and suffixes (rule 2). `text` has single spaces and is stripped.
pub fn join(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_end_matches(|c: char| !is_arabic(c));
        let Some(last) = words.last_mut() else {
            words.push(separate_prefix(word));
            continue;
        };
        let ends_in_letter = last.ends_with(is_arabic);
        let prefix = matches!(trimmed_start(last), "می" | "نمی")
            && word.starts_with(is_arabic)
            && bare.chars().count() > 1
            && !NOT_VERBS.contains(&bare)
            && !SUFFIXES.contains(&bare)
            && !is_prefixed(bare);
        let suffix = ends_in_letter
            && SUFFIXES.contains(&bare)
            && word.starts_with(is_arabic)
            && last.chars().filter(|&c| is_arabic(c)).count() > 1
            && !SUFFIXES.iter().any(|suffix| last.ends_with(suffix));
        let ending = last.ends_with('ه')
            && ENDINGS.contains(&bare)
            && last.chars().filter(|&c| is_arabic(c)).count() > 2;
        if prefix || suffix || ending {
            if !last.ends_with(never_joins_next) {
                last.push(ZWNJ);
            }
            last.push_str(word);
        } else {
            words.push(separate_prefix(word));
        }
    }
    words.join(" ")
}

fn trimmed_start(word: &str) -> &str {
    word.trim_start_matches(|c: char| !is_arabic(c))
}

/// Returns whether the word starts with a prefix of its own, joined or separate.
fn is_prefixed(word: &str) -> bool {
    ["می", "نمی"]
        .iter()
        .any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(ZWNJ)))
}

/// «میشود» -> «می‌شود», for the most common verbs only: میدان، میوه and میز are not verbs.
fn separate_prefix(word: &str) -> String {
    let glued = pattern!(
        r"^([^\p{Arabic}]*)(ن?می)((?:",
        // Present stems with a personal ending.
        r"(?:شو|کن|خواه|رو|گوی|آی|گیر|ده|بین|رس|ساز|خور|زن|باش|آور|خوان|نویس|پرس|توان)(?:م|ی|د|یم|ید|ند)",
        r"|دان(?:م|د|یم|ید|ند)|توان",
        // Colloquial forms.
        r"|دون(?:م|ی|ه|یم|ین|ن)|تون(?:م|ی|ه|یم|ین|ن)|خوا(?:م|ی|د|یم|ین|ن)|گ(?:م|ی|ه|یم|ین|ن)|کن(?:ه|ین|ن)|ش(?:م|ه|یم|ین|ن)|ده|دم|خوره|زنه|بینه",
        // Past stems; the third person has no ending.
        r"|(?:شد|کرد|رفت|گفت|آمد|دانست|گرفت|داد|دید|رسید|ساخت|خورد|زد|خواست|توانست|آورد|خواند|نوشت|پرسید)",
        r"(?:م|ی|یم|ید|ند)?",
        r")[^\p{Arabic}\x{200c}]*)$"
    );
    match glued.captures(word) {
        Some(found) => format!("{}{}{ZWNJ}{}", &found[1], &found[2], &found[3]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let once = join(&strip(input));
        assert_eq!(once, expected);
        assert_eq!(join(&strip(&once)), expected, "not a fixed point");
    }

    #[test]
    fn removes_misplaced_joiners() {
        check("\u{200c}سلام \u{200c}دنیا\u{200c} ", "سلام دنیا ");
        check("خانه\u{200c}\u{200c}ها", "خانه\u{200c}ها");
        check("کار\u{200c}ها", "کارها");
        check("سلام\u{200c}، خوبی\u{200c}؟", "سلام، خوبی؟");
        check("a\u{200c}b", "ab");
    }

    #[test]
    fn joins_affixes() {
        check("می روم", "می\u{200c}روم");
        check("نمی دانم.", "نمی\u{200c}دانم.");
        check("می\u{200c}روم", "می\u{200c}روم");
        check("کتاب ها", "کتاب\u{200c}ها");
        check("کار های", "کارهای");
        check("بزرگ ترین", "بزرگ\u{200c}ترین");
        check("رفته ام", "رفته\u{200c}ام");
        check("خانه ی ما", "خانه\u{200c}ی ما");
        check("میشود", "می\u{200c}شود");
        check("«نمیکنم»", "«نمی\u{200c}کنم»");
    }

    #[test]
    fn leaves_lookalikes_alone() {
        for text in [
            "میدان",
            "میوه",
            "میز",
            "میهن",
            "می و معشوق",
            "می ناب",
            "ها ها ها",
            "میدانی",
            "چشم تر",
            "ای دوست",
        ] {
            check(text, text);
        }
        check("می می روم", "می می\u{200c}روم");
    }
}
