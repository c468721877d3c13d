//! Reads web and e-mail addresses aloud: "info@site.org" is "info at site dot org".

use super::rewrite::{pattern, rewrite};

/// Words a language uses for the signs of an address.
pub(crate) struct Words {
    pub at: &'static str,
    pub dot: &'static str,
    pub slash: &'static str,
    pub dash: &'static str,
    pub underscore: &'static str,
}

/// Endings that make a dotted word a host name without `http` or `www` before it.
const TOP_LEVEL: &str = "com|org|net|edu|gov|info|io|ai|app|dev|co|me|tv|uk|us|ca|au|de|fr|es|it|nl|pl|ru|tr|cz|ir|af|tj|in|jp|cn|eu";

/// Reads e-mail addresses, then web addresses.
pub(crate) fn read(text: &str, words: &Words) -> String {
    let mail =
        pattern!(r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]*[A-Za-z0-9])+");
    let text = rewrite(text, mail, |found| Some(spell(found.text(0), words)));
    let url = pattern!(
        r"(?i)(?:https?://|ftp://)(?:www\.)?([a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]*[a-z0-9])*(?:[/?#][^\s«»()]*)?)",
        r"|\bwww\.([a-z0-9-]+(?:\.[a-z0-9-]*[a-z0-9])+(?:[/?#][^\s«»()]*)?)"
    );
    let text = rewrite(&text, url, |found| {
        let address = found.get(1).or(found.get(2))?;
        // The full stop or question mark of the sentence is not part of the address.
        let end = address.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '/').len();
        Some(format!("{}{}", spell(address[..end].trim_end_matches('/'), words), &address[end..]))
    });
    static HOST: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
        let source = format!(
            r"(?i)\b(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{TOP_LEVEL})\b(?:/[a-z0-9_~./-]*[a-z0-9_/-])?"
        );
        regex::Regex::new(&source).expect("constant patterns are valid")
    });
    // "end.It" is a sentence with a missing space, not an Italian host name.
    let text = rewrite(&text, pattern!(r"(\p{Ll}{3})\.(\p{Lu}\p{Ll})"), |found| {
        Some(format!("{}. {}", found.text(1), found.text(2)))
    });
    rewrite(&text, &HOST, |found| {
        // "p.us" and "u.s." are abbreviations.
        let host = found.text(0).trim_end_matches('/');
        let plausible = host.split('.').next().is_some_and(|label| label.len() > 1);
        (plausible && found.is_separate()).then(|| spell(host, words))
    })
}

fn spell(address: &str, words: &Words) -> String {
    let mut out = String::with_capacity(address.len() * 2);
    for c in address.chars() {
        let word = match c {
            '@' => words.at,
            '.' => words.dot,
            '/' => words.slash,
            '-' => words.dash,
            '_' => words.underscore,
            _ if c.is_alphanumeric() => {
                out.push(c);
                continue;
            }
            // Query strings: only their words are read, not the signs between them.
            _ => "",
        };
        if !out.ends_with(' ') {
            out.push(' ');
        }
        out.push_str(word);
        if !word.is_empty() {
            out.push(' ');
        }
    }
    out.trim().to_owned()
}
