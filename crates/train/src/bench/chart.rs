//! Draws the results of a benchmark as a bar chart: one self-contained SVG file that is readable on light and dark
//! backgrounds.

use std::fmt::Write;

/// One bar: a measured variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar<'a> {
    /// Name of the variant, as plain text; it is escaped.
    pub name: &'a str,
    /// Clips per second.
    pub samples_per_second: f64,
    /// Share of the time that kernels ran, 0 to 1; `None` if it was not measured.
    pub busy: Option<f64>,
}

/// A grey that is readable on white and on black. Browsers that report the colour scheme use a better one.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#6e7781}.title{font-weight:600;font-size:15px}\
.rate{fill:#2f81c7}.busy{fill:#2da56a}.ground{fill:#8b949e;fill-opacity:.18}\
@media(prefers-color-scheme:light){text{fill:#32383f}}@media(prefers-color-scheme:dark){text{fill:#d0d7de}}";

const WIDTH: f64 = 860.0;
/// x coordinate where names end and bars begin.
const LEFT: f64 = 160.0;
/// Length of the longest bar of clips per second; the number is printed after it.
const RATE: f64 = 340.0;
/// x coordinate of the bars of the busy share, and their length at 100 %.
const BUSY_LEFT: f64 = 600.0;
const BUSY: f64 = 180.0;
const TOP: f64 = 74.0;
const ROW: f64 = 30.0;
const THICK: f64 = 18.0;

/// Draws the chart. `title` and the names are plain text; they are escaped.
pub fn chart(title: &str, bars: &[Bar<'_>]) -> String {
    let most = bars.iter().map(|bar| bar.samples_per_second).fold(0.0, f64::max);
    let height = TOP + ROW * bars.len() as f64 + 10.0;
    let title = escaped(title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\"><title>{title}</title><style>{STYLE}</style>\n\
         <text class=\"title\" x=\"10\" y=\"24\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"54\">clips per second</text>\
         <text x=\"{BUSY_LEFT}\" y=\"54\">GPU busy</text>\n"
    );
    for (number, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        let (text, name) = (y + THICK - 4.5, escaped(bar.name));
        let length = if most > 0.0 { RATE * (bar.samples_per_second / most).clamp(0.0, 1.0) } else { 0.0 };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"rate\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{THICK}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{text:.1}\">{}</text>",
            LEFT - 10.0,
            LEFT + length + 6.0,
            rate(bar.samples_per_second)
        );
        match bar.busy {
            Some(busy) => {
                let share = BUSY * busy.clamp(0.0, 1.0);
                let _ = write!(
                    out,
                    "<rect class=\"ground\" x=\"{BUSY_LEFT}\" y=\"{y:.1}\" width=\"{BUSY}\" height=\"{THICK}\" rx=\"2\"/>\
                     <rect class=\"busy\" x=\"{BUSY_LEFT}\" y=\"{y:.1}\" width=\"{share:.1}\" height=\"{THICK}\" rx=\"2\"/>\
                     <text x=\"{:.1}\" y=\"{text:.1}\">{:.1} %</text>",
                    BUSY_LEFT + BUSY + 6.0,
                    busy * 100.0
                );
            }
            None => {
                let _ = write!(out, "<text x=\"{BUSY_LEFT}\" y=\"{text:.1}\">not measured</text>");
            }
        }
        out.push('\n');
    }
    out.push_str("</svg>\n");
    out
}

fn rate(samples: f64) -> String {
    if samples >= 100.0 { format!("{samples:.0}") } else { format!("{samples:.1}") }
}

/// Escapes text for XML, and removes characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
