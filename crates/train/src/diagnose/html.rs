//! A diagnosis as one self-contained HTML page, without scripts, fonts or images from elsewhere.

use super::diagnosis::{Device, Diagnosis};
use super::rules::{ms, percent};
use super::text::{PARTS, gain, spreads, summary};
use super::trace::Trace;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222;\
background:#fff}h1,h2{line-height:1.2}table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}\
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f4f4}svg{width:100%;height:auto}\
.finding{border-left:.3rem solid #c33;padding-left:1rem;margin:1rem 0}.finding.healthy{border-color:#2a7}\
.step{fill:#2b6cb0}.wait{fill:#d9480f}.new{fill:#805ad5}.busy{fill:none;stroke:#2a7;stroke-width:1.5}\
.gpu{fill:none;stroke:#d69e2e;stroke-width:1.5}.cores{fill:none;stroke:#a0aec0;stroke-width:1}\
.level{stroke:#d69e2e;stroke-dasharray:4 4}.bar{fill:#4a5568}text{font:11px system-ui,sans-serif;fill:#555}";

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 180.0;

/// Renders the page; `title` is plain text and is escaped.
pub fn page(title: &str, trace: &Trace, diagnosis: &Diagnosis) -> String {
    let title = escaped(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n"
    );
    for line in summary(trace, diagnosis) {
        let _ = writeln!(out, "<div>{}</div>", escaped(&line));
    }
    out.push_str("<h2>Findings</h2>\n");
    for finding in &diagnosis.findings {
        let class = if finding.cause == super::Cause::Healthy { "finding healthy" } else { "finding" };
        let _ = writeln!(
            out,
            "<div class=\"{class}\"><b>{}</b><br>{}<br><b>Fix:</b> {}<br><b>Gain:</b> {}</div>",
            escaped(finding.cause.name()),
            escaped(&finding.evidence),
            escaped(&finding.recommendation),
            escaped(&gain(finding.gain))
        );
    }
    out.push_str("<h2>Batch by batch</h2>\n<p>Blue: the step. Purple: a step whose shape was new. Red: waiting for the batch.</p>\n");
    out.push_str(&timeline(trace));
    out.push_str("<p>Over time. Green: the share in which a step ran. Yellow: GPU utilisation, if available. Grey: the CPU, all cores.</p>\n");
    out.push_str(&shares(trace, diagnosis.gpu.as_ref()));
    out.push_str("<h2>Where the time goes</h2>\n<table><tr><th></th><th>p50</th><th>p95</th><th>p99</th><th>varies</th></tr>\n");
    for (name, spread) in spreads(trace) {
        let [p50, p95, p99] = [spread.p50, spread.p95, spread.p99].map(ms);
        let varies = percent(spread.variation);
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td>{p50}</td><td>{p95}</td><td>{p99}</td><td>{varies}</td></tr>"
        );
    }
    out.push_str("</table>\n");
    for (name, part) in PARTS {
        let times: Vec<f64> = trace.batches.iter().map(part).collect();
        if times.iter().any(|time| *time > 0.0) {
            let _ = write!(out, "<h3>{name}</h3>\n{}", histogram(&times));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn svg(body: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">{body}</svg>\n")
}

/// A bar for each batch: its step, and above it the wait for it.
fn timeline(trace: &Trace) -> String {
    let longest = trace.batches.iter().map(|batch| batch.step + batch.wait).fold(1e-9, f64::max);
    let width = WIDTH / trace.batches.len().max(1) as f64;
    let mut body = String::new();
    for (number, batch) in trace.batches.iter().enumerate() {
        let (x, w) = (number as f64 * width, (width - 1.0).max(0.5));
        let [step, wait] = [batch.step, batch.wait].map(|time| time / longest * (HEIGHT - 20.0));
        let class = if batch.is_disturbed() { "new" } else { "step" };
        let _ = write!(
            body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{step:.1}\"><title>batch {number}: step {}, wait {}, thread {}</title></rect>\
             <rect class=\"wait\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{wait:.1}\"/>",
            HEIGHT - step,
            ms(batch.step),
            ms(batch.wait),
            batch.worker,
            HEIGHT - step - wait
        );
    }
    let _ = write!(body, "<text x=\"2\" y=\"12\">{}</text>", ms(longest));
    svg(&body, HEIGHT)
}

/// Share of the time in which a step ran, the driver's GPU utilisation with its low and high, and CPU usage.
fn shares(trace: &Trace, device: Option<&Device>) -> String {
    let height = 100.0;
    let total = trace.batches.iter().map(|batch| batch.period).sum::<f64>().max(1e-9);
    let line = |class: &str, shares: Vec<(f64, f64)>| {
        let mut points = String::new();
        for (at, share) in shares {
            let x = (at / total).clamp(0.0, 1.0) * WIDTH;
            let y = height - share.clamp(0.0, 1.0) * (height - 4.0) - 2.0;
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        format!("<polyline class=\"{class}\" points=\"{}\"/>", points.trim_end())
    };
    let mut ended = 0.0;
    let ran = trace.batches.iter().map(|batch| {
        ended += batch.period;
        (ended - batch.period / 2.0, batch.step / batch.period.max(1e-9))
    });
    let ran = line("busy", ran.collect());
    let own = line("gpu", trace.gpu.iter().filter_map(|sample| Some((sample.at, sample.busy?))).collect());
    let cores = line("cores", trace.cores.iter().map(|sample| (sample.at, sample.busy)).collect());
    let mut words = format!(
        "<text x=\"2\" y=\"12\">100 %</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        WIDTH - 2.0,
        height - 3.0,
        ms(total)
    );
    if let Some(device) = device {
        let level = |share: f64, name: &str| {
            let y = height - share.clamp(0.0, 1.0) * (height - 4.0) - 2.0;
            format!(
                "<line class=\"level\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>GPU, {name}: {}</title></line>",
                percent(share)
            )
        };
        words += &level(device.busy_low, "low");
        words += &level(device.busy_high, "high");
    }
    svg(&format!("{cores}{ran}{own}{words}"), height)
}

/// Histogram of times.
fn histogram(times: &[f64]) -> String {
    const BINS: usize = 40;
    let height = 90.0;
    let (low, high) = times.iter().fold((f64::MAX, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
    let span = (high - low).max(1e-12);
    let mut counts = [0u32; BINS];
    for time in times {
        counts[(((time - low) / span * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let most = f64::from(counts.iter().copied().max().unwrap_or(1).max(1));
    let width = WIDTH / BINS as f64;
    let mut body = String::new();
    for (bin, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let h = f64::from(count) / most * (height - 20.0);
        let (x, y) = (bin as f64 * width, height - 16.0 - h);
        let _ = write!(
            body,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{h:.1}\"/>",
            width - 1.0
        );
    }
    let _ = write!(
        body,
        "<text x=\"2\" y=\"{0}\">{1}</text><text x=\"{2}\" y=\"{0}\" text-anchor=\"end\">{3}</text>",
        height - 3.0,
        ms(low),
        WIDTH - 2.0,
        ms(high)
    );
    svg(&body, height)
}
