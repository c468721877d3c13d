//! English abbreviations, in three tables: expanded everywhere, only as a capitalised title before a name, and only
//! before a number.

use super::words::{cardinal, ordinal};
use crate::rewrite::{Found, pattern, rewrite};

/// Expanded everywhere, in any case. The full stop is required where a plain word looks the same.
const ALWAYS: [(&str, &str); 46] = [
    ("mr", "mister"),
    ("mr.", "mister"),
    ("mrs", "missus"),
    ("mrs.", "missus"),
    ("dr", "doctor"),
    ("dr.", "doctor"),
    ("prof.", "professor"),
    ("jr.", "junior"),
    ("sr.", "senior"),
    ("esq.", "esquire"),
    ("lt.", "lieutenant"),
    ("sgt.", "sergeant"),
    ("capt.", "captain"),
    ("cmdr.", "commander"),
    ("messrs.", "messieurs"),
    ("mt.", "mount"),
    ("ft.", "fort"),
    ("ave.", "avenue"),
    ("blvd.", "boulevard"),
    ("hwy.", "highway"),
    ("ltd", "limited"),
    ("ltd.", "limited"),
    ("inc.", "incorporated"),
    ("corp.", "corporation"),
    ("bros.", "brothers"),
    ("dept.", "department"),
    ("univ.", "university"),
    ("assn.", "association"),
    ("govt.", "government"),
    ("etc", "et cetera"),
    ("etc.", "et cetera"),
    ("vs", "versus"),
    ("vs.", "versus"),
    ("approx.", "approximately"),
    ("appt.", "appointment"),
    ("apt.", "apartment"),
    ("tel.", "telephone"),
    ("e.g.", "for example"),
    ("e.g", "for example"),
    ("i.e.", "that is"),
    ("i.e", "that is"),
    ("a.k.a.", "also known as"),
    ("p.s.", "postscript"),
    ("ph.d.", "p h d"),
    ("w/o", "without"),
    ("w/", "with"),
];

/// Titles: expanded only if capitalised and before a capitalised word, because "gen", "col" and "rep" are words too.
const TITLES: [(&str, &str); 16] = [
    ("Gen.", "general"),
    ("Col.", "colonel"),
    ("Maj.", "major"),
    ("Adm.", "admiral"),
    ("Gov.", "governor"),
    ("Sen.", "senator"),
    ("Rep.", "representative"),
    ("Pres.", "president"),
    ("Rev.", "reverend"),
    ("Hon.", "honorable"),
    ("Supt.", "superintendent"),
    ("Co.", "company"),
    ("Rd.", "road"),
    ("Drs.", "doctors"),
    ("Ms", "miz"),
    ("Ms.", "miz"),
];

/// Expanded only before a number.
const COUNTED: [(&str, &str); 13] = [
    ("no.", "number"),
    ("nos.", "numbers"),
    ("vol.", "volume"),
    ("ch.", "chapter"),
    ("p.", "page"),
    ("pp.", "pages"),
    ("fig.", "figure"),
    ("sec.", "section"),
    ("art.", "article"),
    ("eq.", "equation"),
    ("ver.", "version"),
    ("c.", "circa"),
    ("ca.", "circa"),
];

/// Expands abbreviations. Runs before numbers are read and before the text is lower-cased.
pub fn read(text: &str) -> String {
    let text = rewrite(text, pattern!(r"№ ?([0-9])"), |found| Some(format!("number {}", found.text(1))));
    let text = counted(&text);
    let text = saints_and_streets(&text);
    let text = titles(&text);
    let text = always(&text);
    let text = initials(&text);
    roman_numerals(&text)
}

fn counted(text: &str) -> String {
    rewrite(text, pattern!(r"(?i)\b(nos?|vol|ch|pp?|fig|sec|art|eq|ver|ca?)\. ?([0-9])"), |found| {
        let short = format!("{}.", found.text(1).to_ascii_lowercase());
        let (_, long) = COUNTED.iter().find(|(written, _)| *written == short)?;
        // The "p." of "3 p. 5" is a page; that of "p.5.x" could be anything, and a space would not make it clearer.
        Some(format!("{long} {}", found.text(2)))
    })
}

/// "St. Mary" is a saint, "Main St." a street.
fn saints_and_streets(text: &str) -> String {
    rewrite(text, pattern!(r"\bSt\b(\.?)"), |found| {
        let named = found.after.trim_start().chars().next().is_some_and(char::is_uppercase);
        let follows_name = {
            let word = found.before.trim_end();
            let start = word.rfind(' ').map_or(0, |at| at + 1);
            word[start..].chars().next().is_some_and(char::is_uppercase)
                && !word.ends_with(['.', ',', '!', '?'])
        };
        // "12 Main St. Boston": a number before the name makes it an address. Only the last words are examined;
        // otherwise a text consisting of streets would take quadratic time.
        let nearby = found.before.char_indices().rev().nth(60).map_or(0, |(at, _)| at);
        let address =
            pattern!(r"[0-9]+(?:st|nd|rd|th)?(?: [\p{L}]+){0,3} $").is_match(&found.before[nearby..]);
        match (named, follows_name) {
            (true, _) if !address => Some("saint".to_owned()),
            (_, true) | (true, _) => {
                let ends = found.get(1) == Some(".") && (found.after.is_empty() || named && !address);
                Some(format!("street{}", if ends { "." } else { "" }))
            }
            _ => None,
        }
    })
}

fn titles(text: &str) -> String {
    rewrite(
        text,
        pattern!(
            r"\b(Gen\.|Col\.|Maj\.|Adm\.|Gov\.|Sen\.|Rep\.|Pres\.|Rev\.|Hon\.|Supt\.|Co\.|Rd\.|Drs\.|Ms\.|Ms\b)"
        ),
        |found| {
            let (written, long) = TITLES.iter().find(|(written, _)| *written == found.text(1))?;
            let before_name = found.after.trim_start().chars().next().is_some_and(char::is_uppercase);
            // Company and road come after a name, not before one.
            let after_name = matches!(*written, "Co." | "Rd.");
            let ends = after_name && found.after.is_empty();
            (before_name || after_name).then(|| format!("{long}{}", if ends { "." } else { "" }))
        },
    )
}

fn always(text: &str) -> String {
    let word = pattern!(
        r"(?i)\b(?:(?:e\.g|i\.e)\b\.?|a\.k\.a\.|p\.s\.|ph\.d\.|w/o\b|w/|(?:mrs?|dr|ltd|etc|vs)\b\.?",
        r"|(?:prof|jr|sr|esq|lt|sgt|capt|cmdr|messrs|mt|ft|ave|blvd|hwy|inc|corp|bros|dept|univ|assn|govt",
        r"|approx|appt|apt|tel)\.)"
    );
    rewrite(text, word, |found| {
        let written = found.text(0).to_ascii_lowercase();
        let (_, long) = ALWAYS.iter().find(|(short, _)| *short == written)?;
        let begins = !found
            .previous()
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '\'' | '-' | '@' | '/'));
        let unit =
            found.previous() == Some(' ') && found.before.trim_end().ends_with(|c: char| c.is_ascii_digit());
        if !begins || (unit && written == "ft.") {
            return None;
        }
        let ends = found.text(0).ends_with('.') && ends_sentence(found) && !never_ends_sentence(long);
        Some(format!("{long}{}", if ends { "." } else { "" }))
    })
}

/// Whether the abbreviation is always followed by another word, so that its full stop never ends a sentence.
fn never_ends_sentence(long: &str) -> bool {
    [
        "mister",
        "missus",
        "doctor",
        "professor",
        "lieutenant",
        "sergeant",
        "captain",
        "commander",
        "messieurs",
        "mount",
        "fort",
        "versus",
        "approximately",
        "for example",
        "that is",
        "also known as",
        "telephone",
    ]
    .contains(&long)
}

/// Whether the full stop of the abbreviation also ends the sentence.
fn ends_sentence(found: &Found) -> bool {
    let rest = found.after.trim_start_matches(['"', '\'', ')']);
    rest.is_empty()
        || rest.starts_with(' ') && rest.trim_start().chars().next().is_some_and(char::is_uppercase)
}

/// "U.S." is "u s", "J.R.R." "j r r".
fn initials(text: &str) -> String {
    rewrite(text, pattern!(r"\b(?:\p{L}\.){2,}(?:\p{L}\b)?"), |found| {
        let half_of_day = matches!(found.text(0).to_ascii_lowercase().as_str(), "a.m." | "p.m.")
            && found.before.trim_end().ends_with(|c: char| c.is_ascii_digit());
        if found.previous().is_some_and(|c| c.is_alphanumeric() || c == '.') || half_of_day {
            return None;
        }
        let letters: Vec<String> =
            found.text(0).chars().filter(|&c| c != '.').map(|c| c.to_string()).collect();
        let ends =
            found.text(0).ends_with('.') && found.after.trim_start_matches(['"', '\'', ')']).is_empty();
        Some(format!("{}{}", letters.join(" "), if ends { "." } else { "" }))
    })
}

/// Reads Roman numerals only after an unambiguous word: "Chapter IV", "World War II", "Henry VIII".
fn roman_numerals(text: &str) -> String {
    let numerals = pattern!(
        r"\b(Chapter|Part|Book|Volume|Act|Scene|Section|Article|Phase|Type|Class|Appendix|War|Title",
        r"|Henry|Louis|Charles|George|Elizabeth|Edward|Richard|James|William|Philip|Catherine|Frederick|Francis",
        r"|Ferdinand|Gustav|Napoleon|Nicholas|Alexander|Peter|Paul|Pius|Benedict|Gregory|Innocent|Leo|Clement",
        r"|Urban|Ramses|Darius|Mary) ([IVX]{1,6})\b"
    );
    rewrite(text, numerals, |found| {
        let n = roman(found.text(2))?;
        let word = found.text(1);
        let counted = matches!(
            word,
            "Chapter"
                | "Part"
                | "Book"
                | "Volume"
                | "Act"
                | "Scene"
                | "Section"
                | "Article"
                | "Phase"
                | "Type"
                | "Class"
                | "Appendix"
                | "War"
                | "Title"
        );
        match found.text(2) {
            // "Charles I" may continue with "am"; "Part I" is usually a numeral.
            "I" | "V" | "X" if !counted => None,
            _ if counted => Some(format!("{word} {}", cardinal(n))),
            _ => Some(format!("{word} the {}", ordinal(n))),
        }
    })
}

/// Value of a well-formed Roman numeral below forty.
fn roman(written: &str) -> Option<u64> {
    const TENS: [&str; 4] = ["", "X", "XX", "XXX"];
    const ONES: [&str; 10] = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"];
    let tens = (0..4).rev().find(|&tens| written.starts_with(TENS[tens]))?;
    let ones = ONES.iter().position(|ones| *ones == &written[TENS[tens].len()..])?;
    let n = tens as u64 * 10 + ones as u64;
    (n > 0).then_some(n)
}
