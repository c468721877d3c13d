//! An evaluation as one HTML page: metrics with their intervals, then every text with its recording and its synthesised
//! audio, side by side. The audio files are stored next to the page; nothing else is needed.

use super::measures::{Figures, METRICS, Measures};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;\
background:#fff}h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;\
text-align:left;vertical-align:top}tr:nth-child(even){background:#f4f4f4}audio{width:16rem;display:block}\
.id{color:#666;font-size:.85em}.bad{color:#b02a1a}.note{color:#555;font-size:.85em}[dir=auto]{unicode-bidi:plaintext}";

/// Explanation of the metrics, shown next to them: a number without its protocol means little.
pub const PROTOCOL: &str = "Metrics are over all texts, with 95 % intervals by a bootstrap over texts (1,000 samples, \
seeded). Error rates: insertions, deletions and substitutions over all words or characters of the text, after \
numbers are written out, case, punctuation and vowel signs dropped; a text that was not spoken counts as silence. \
Distances to recordings: silence at the ends cut, frames aligned by dynamic time warping; mel-cepstral distortion over \
coefficients 1 to 13. The speaker cosine is by the model's own encoder, to the recording that the voice was conditioned on: it is \
biased towards the output of this model and not comparable with other encoders.";

/// Content of a page.
pub struct Page<'a> {
    /// Heading of the page.
    pub title: &'a str,
    /// Names and values of what was evaluated, and how.
    pub facts: Vec<(&'a str, String)>,
    /// Metrics, by the name of what was measured.
    pub figures: Vec<(&'a str, &'a Figures)>,
    /// Names of the audio columns.
    pub columns: Vec<&'a str>,
    /// One row per text.
    pub rows: Vec<Row<'a>>,
}

/// One text.
pub struct Row<'a> {
    /// Id of the text, plain text; it is escaped.
    pub id: &'a str,
    /// The text to speak.
    pub text: &'a str,
    /// A remark, such as an error.
    pub note: Option<&'a str>,
    /// One cell per column; `None` if there is no audio.
    pub cells: Vec<Option<Cell<'a>>>,
}

/// One audio file.
pub struct Cell<'a> {
    /// Path relative to the page, with forward slashes.
    pub file: String,
    /// Measures of the audio.
    pub measures: Option<&'a Measures>,
}

impl Page<'_> {
    /// Renders the page as HTML.
    pub fn html(&self) -> String {
        let title = escaped(self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\n\
             <body><h1>{title}</h1>\n<table>\n"
        );
        for (name, value) in &self.facts {
            let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
        }
        out.push_str("</table>\n<h2>Figures</h2>\n<table><tr><th></th>");
        for (name, _) in &self.figures {
            let _ = write!(out, "<th>{}</th>", escaped(name));
        }
        out.push_str("</tr>\n");
        for metric in &METRICS {
            if self.figures.iter().all(|(_, figures)| figures.get(metric.key).is_none()) {
                continue;
            }
            let _ = write!(out, "<tr><td>{}</td>", metric.title);
            for (_, figures) in &self.figures {
                let _ = match figures.get(metric.key) {
                    Some(figure) => {
                        let [value, low, high] =
                            [figure.value, figure.low, figure.high].map(|value| metric.unit.show(value));
                        write!(
                            out,
                            "<td>{value} <span class=\"note\">({low} to {high}, n = {})</span></td>",
                            figure.count
                        )
                    }
                    None => write!(out, "<td>-</td>"),
                };
            }
            out.push_str("</tr>\n");
        }
        let _ =
            write!(out, "</table>\n<p class=\"note\">{PROTOCOL}</p>\n<h2>Texts</h2>\n<table><tr><th></th>");
        for name in &self.columns {
            let _ = write!(out, "<th>{}</th>", escaped(name));
        }
        out.push_str("</tr>\n");
        self.rows.iter().for_each(|row| row.write(&mut out));
        out.push_str("</table>\n</body></html>\n");
        out
    }
}

impl Row<'_> {
    fn write(&self, out: &mut String) {
        let _ = write!(
            out,
            "<tr><td><div dir=\"auto\">{}</div><div class=\"id\">{}</div>",
            escaped(self.text),
            escaped(self.id)
        );
        if let Some(note) = self.note {
            let _ = write!(out, "<div class=\"bad\">{}</div>", escaped(note));
        }
        out.push_str("</td>");
        for cell in &self.cells {
            out.push_str("<td>");
            if let Some(Cell { file, measures }) = cell {
                let _ = write!(out, "<audio controls preload=\"none\" src=\"{}\"></audio>", address(file));
                measures.iter().for_each(|measures| out.push_str(&describe_measures(measures)));
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
}

/// Describes the measures of one audio file.
fn describe_measures(measures: &Measures) -> String {
    let mut out = String::new();
    if let Some(heard) = &measures.heard {
        let class = if heard.score.words.errors > 0 { "bad" } else { "note" };
        let _ = write!(
            out,
            "<div class=\"{class}\" dir=\"auto\">heard: {} (WER {:.0} %)</div>",
            escaped(&heard.transcript),
            100.0 * heard.score.words.rate()
        );
    }
    let mut numbers = vec![format!("{:.2} s", measures.seconds)];
    numbers.extend(measures.against.distortion.map(|value| format!("{value:.2} dB")));
    numbers.extend(measures.against.log_f0_rmse.map(|value| format!("log-F0 {value:.3}")));
    numbers.extend(measures.similarity.map(|value| format!("cosine {value:.2}")));
    let _ = write!(out, "<div class=\"note\">{}</div>", numbers.join(", "));
    let flaws = &measures.flaws;
    let flags = [
        (flaws.silent, "silent".to_owned()),
        (flaws.long_pause, format!("a pause of {:.1} s", flaws.longest_pause)),
        (flaws.looping.is_some(), "a loop".to_owned()),
    ];
    for (_, what) in flags.iter().filter(|(is, _)| *is) {
        let _ = write!(out, "<div class=\"bad\">{what}</div>");
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A relative path as a URL: reserved characters are percent-encoded.
fn address(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::flaws::Flaws;
    use crate::evaluate::measures::Recognition;
    use crate::evaluate::words::score;
    use myxtts_run::seed::Seed;
    use myxtts_text::compare::NumeralReading;

    #[test]
    fn a_page_has_players_and_figures_and_escapes_text() {
        let transcript = "<script>alert(1)</script>".to_owned();
        let score = score("hello", &transcript, "en", NumeralReading::Numbers);
        let flaws = Flaws { looping: Some(1.0), ..Flaws::default() };
        let measures =
            Measures { heard: Some(Recognition { transcript, score }), flaws, ..Measures::default() };
        let figures = Figures::of([&measures], Seed::new(0));
        let cell = |file: &str| Some(Cell { file: file.to_owned(), measures: Some(&measures) });
        let row =
            Row {
                id: "a&b", text: "\"<b>\" سلام", note: Some("<i>"), cells: vec![cell("a b#%\".wav"), None]
            };
        let page = Page {
            title: "A <title>",
            facts: vec![("model", "m<o>".to_owned())],
            figures: vec![("spoken", &figures)],
            columns: vec!["recording", "spoken"],
            rows: vec![row],
        };
        let html = page.html();
        assert!(html.contains("src=\"a%20b%23%25%22.wav\""), "{html}");
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
        for wanted in
            ["A &lt;title&gt;", "m&lt;o&gt;", "a&amp;b", "&quot;&lt;b&gt;&quot;", "&lt;i&gt;", "a loop"]
        {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
        assert!(
            html.contains("word error rate") && html.contains("n = 1") && html.contains("bootstrap"),
            "{html}"
        );
        assert!(!html.contains("NaN") && !html.contains("src=\"http"), "{html}");
        assert_eq!(html.matches("<audio").count(), 1);
    }
}
