//! The chart of a benchmark: well-formed markup with a bar for every variant.

use myxtts_train::bench::chart::{Bar, chart};

/// The names of the elements of a document, in order; panics if it is not well-formed. Supports only what the chart
/// writes: elements, quoted attributes, and text without comments, declarations or custom entities.
fn elements(document: &str) -> Vec<String> {
    let (mut open, mut met, mut rest) = (Vec::new(), Vec::new(), document.trim_end());
    let is_text = |text: &str| {
        text.split('&').skip(1).all(|entity| {
            ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known))
        })
    };
    while let Some(start) = rest.find('<') {
        assert!(is_text(&rest[..start]) && !rest[..start].contains('>'), "text: {}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "elements must nest");
        } else {
            let (body, closed) = tag.strip_suffix('/').map_or((tag, false), |body| (body, true));
            let (name, attributes) = body.split_once(' ').unwrap_or((body, ""));
            let quoted: Vec<&str> = attributes.split('"').collect();
            assert_eq!(quoted.len() % 2, 1, "{tag}");
            for pair in quoted.chunks_exact(2) {
                assert!(
                    pair[0].trim().ends_with('=') && pair[0].trim().len() > 1 && is_text(pair[1]),
                    "{tag}"
                );
            }
            met.push(body.to_owned());
            if !closed {
                open.push(name.to_owned());
            }
        }
        assert!(!open.is_empty() || rest.is_empty(), "one element holds everything, before {rest}");
    }
    assert!(open.is_empty() && rest.is_empty());
    met
}

#[test]
fn a_chart_is_well_formed_and_has_a_bar_for_every_variant() {
    let bar = |name, samples_per_second, busy| Bar { name, samples_per_second, busy };
    let bars = [
        bar("per sample", 12.25, Some(0.031)),
        bar("<script> & \"quotes\"", 480.0, Some(1.2)),
        bar("on a CPU", 960.5, None),
        bar("nothing", 0.0, Some(0.0)),
    ];
    let page = chart("gpt on cuda:0: a <b> & c", &bars);
    let met = elements(&page);
    let of = |class: &str| met.iter().filter(|tag| tag.contains(&format!("class=\"{class}\""))).count();
    assert_eq!((of("rate"), of("busy"), of("ground")), (4, 3, 3));
    let width =
        |tag: &String| tag.split(" width=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>();
    let widths: Vec<f64> =
        met.iter().filter(|tag| tag.contains("class=\"rate\"")).map(|tag| width(tag).unwrap()).collect();
    assert_eq!((widths[2], widths[3]), (340.0, 0.0), "the longest bar is the fastest variant");
    assert!((widths[1] / widths[2] - 480.0 / 960.5).abs() < 1e-3, "{widths:?}");
    for words in ["per sample", "12.2", "3.1 %", "&lt;script&gt; &amp; &quot;quotes&quot;", "not measured"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    elements(&chart("nothing was measured", &[]));
}
