//! A diagnosis as text: where batches spend their time, the causes, and what to set.

use super::diagnosis::{Device, Diagnosis};
use super::rules::{ms, percent};
use super::trace::{Batch, Trace};
use crate::statistics::{Spread, mean};
use std::fmt::Write;

/// Name and value of one time of a batch.
pub(super) type Part = (&'static str, fn(&Batch) -> f64);

/// Times of a batch, in the order they are spent.
pub(super) const PARTS: [Part; 9] = [
    ("read", |batch| batch.read),
    ("decode", |batch| batch.decode),
    ("collate", |batch| batch.collate),
    ("fill", |batch| batch.fill),
    ("blocked", |batch| batch.blocked),
    ("upload", |batch| batch.upload),
    ("wait", |batch| batch.wait),
    ("step", |batch| batch.step),
    ("period", |batch| batch.period),
];

/// Distribution of each time; those that are always 0 are left out.
pub fn spreads(trace: &Trace) -> Vec<(&'static str, Spread)> {
    let of = |part: fn(&Batch) -> f64| Spread::of(&trace.batches.iter().map(part).collect::<Vec<_>>());
    PARTS.iter().map(|(name, part)| (*name, of(*part))).filter(|(_, spread)| spread.mean > 0.0).collect()
}

/// Lines about a trace as a whole.
pub(super) fn summary(trace: &Trace, diagnosis: &Diagnosis) -> Vec<String> {
    let setup = &trace.setup;
    let mut lines = vec![format!(
        "{} batches of {}, made by {}, up to {} ready; {:.2} MB each",
        trace.batches.len(),
        setup.batch_size,
        threads(setup.workers),
        setup.slots,
        setup.batch_bytes as f64 / 1e6
    )];
    lines.push(format!(
        "a step ran {} of the time; waits add {} to the steps",
        percent(diagnosis.busy),
        percent(diagnosis.waiting)
    ));
    if diagnosis.left_out > 0 {
        lines.push(format!(
            "{} of the batches are left out of that: new shapes were captured meanwhile, which took {} of all time",
            diagnosis.left_out,
            percent(diagnosis.recording)
        ));
    }
    let mean_of = |part: fn(&Batch) -> f64| mean(&trace.batches.iter().map(part).collect::<Vec<_>>());
    let (read, computed) = (mean_of(|batch| batch.read), mean_of(|batch| batch.decode));
    if computed > 0.0 {
        lines.push(format!(
            "records are decoded and their features computed on demand: {} per batch, in addition to {} of reading",
            ms(computed),
            ms(read)
        ));
    }
    lines.push(match diagnosis.compared {
        Some(compared) => format!(
            "time per batch: {} in training, {} replayed from the device, {} for the step alone; with every batch on the device it \
             would be {} faster",
            ms(compared.trained),
            ms(compared.replayed),
            ms(compared.alone),
            percent(compared.headroom())
        ),
        None => "no batch was replayed: this stage, or a step of several batches, does not support it".to_owned(),
    });
    if let Some(cpu) = trace.cpu {
        lines.push(format!("CPU: {} busy, {} by this program", percent(cpu.all), percent(cpu.own)));
    }
    if let Some(device) = &diagnosis.gpu {
        lines.push(gpu(device));
    }
    if let Some(why) = &trace.no_gpu {
        lines.push(format!("GPU: not sampled: {why}"));
    }
    if let Some(oscillation) = &diagnosis.oscillation {
        let period = match oscillation.period {
            Some(period) => {
                format!("every {} batches (autocorrelation {:.2})", period.every, period.strength)
            }
            None => "without a period".to_owned(),
        };
        lines.push(format!(
            "times between steps vary by {}, {period}; a step runs between {} and {} of the time",
            percent(oscillation.variation),
            percent(oscillation.busy_low),
            percent(oscillation.busy_high)
        ));
    }
    lines
}

/// `GPU: 97.0 % busy (from 91.0 % to 99.0 %), up to 64 °C, 612 W, 1755 of 1980 MHz`
fn gpu(device: &Device) -> String {
    let mut words = format!(
        "GPU: {} busy (from {} to {}, {} samples)",
        percent(device.busy),
        percent(device.busy_low),
        percent(device.busy_high),
        device.samples
    );
    let mut add = |value: Option<f64>, before: &str, unit: &str| {
        if let Some(value) = value {
            let _ = write!(words, "{before}{value:.0}{unit}");
        }
    };
    add(device.temperature, ", up to ", " °C");
    add(device.power, ", ", " W");
    add(device.clock, ", ", " MHz");
    add(device.clock_most, " of ", " MHz");
    for (share, by) in [(device.held_by_heat, "heat"), (device.held_by_power, "its power limit")] {
        if share > 0.0 {
            let _ = write!(words, ", limited by {by} {} of the time", percent(share));
        }
    }
    words
}

/// `1 thread`, `4 threads`
fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Describes a gain.
pub(super) fn gain(gain: Option<f64>) -> String {
    match gain {
        // From twice as many on, a percentage is hard to read.
        Some(gain) if gain >= 1.0 => {
            let times = 1.0 + gain;
            format!("up to {times:.*} times as many steps per second", usize::from(times < 4.0))
        }
        Some(gain) => format!("up to {} more steps per second", percent(gain)),
        None => "unknown".to_owned(),
    }
}

/// The whole report.
pub fn text(trace: &Trace, diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    let line = |out: &mut String, line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    summary(trace, diagnosis).iter().for_each(|one| line(&mut out, one));
    let _ = writeln!(out, "\n{:<10} {:>10} {:>10} {:>10} {:>8}", "", "p50", "p95", "p99", "varies");
    for (name, spread) in spreads(trace) {
        let [p50, p95, p99] = [spread.p50, spread.p95, spread.p99].map(ms);
        let _ = writeln!(out, "{name:<10} {p50:>10} {p95:>10} {p99:>10} {:>8}", percent(spread.variation));
    }
    for (number, finding) in diagnosis.findings.iter().enumerate() {
        let _ = writeln!(out, "\n{}. {}", number + 1, finding.cause.name());
        line(&mut out, &format!("   evidence: {}", finding.evidence));
        line(&mut out, &format!("   fix:      {}", finding.recommendation));
        line(&mut out, &format!("   gain:     {}", gain(finding.gain)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_described_by_their_size() {
        assert_eq!(gain(Some(0.125)), "up to 12.5 % more steps per second");
        assert_eq!(gain(Some(1.5)), "up to 2.5 times as many steps per second");
        assert_eq!(gain(Some(7.078)), "up to 8 times as many steps per second");
        assert_eq!((threads(1), threads(4)), ("1 thread".to_owned(), "4 threads".to_owned()));
    }
}
