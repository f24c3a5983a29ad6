//! Names of figures and changes in words.

use super::finding::{Finding, Source};
use crate::Unit;
use crate::workload::{WorkUnit, exits_of_which_work};
use stats::{Contrast, Interval, Scale};

/// The metric of the VM exits of all reasons.
pub(super) const EXIT_TOTAL: &str = "exits.total";

/// The name of a figure: "random-read throughput"; "exits total during random-read".
pub(super) fn figure(workload: &str, metric: &str, source: Source) -> String {
    let words = metric_in_words(metric);
    match source {
        Source::Host => format!("{words} during {workload}"),
        Source::Workload => match metric.strip_prefix(workload).and_then(|rest| rest.strip_prefix('.')) {
            Some(rest) => format!("{workload} {}", metric_in_words(rest)),
            None => format!("{workload} {words}"),
        },
    }
}

/// A metric's name in words: dots become blanks, and "cpu" becomes "CPU".
pub(crate) fn metric_in_words(metric: &str) -> String {
    if let Some((unit, reason)) = exits_of_which_work(metric) {
        let rest = if reason == "total" { "in all" } else { reason };
        return format!("VM exits {} {rest}", unit.each());
    }
    if let Some(unit) = WorkUnit::of_metric(metric) {
        return format!("{} of its work", unit.plural());
    }
    let words = metric.split('.').map(|word| match word {
        "cpu" => "CPU",
        "exits" => "VM exits",
        "accesses" => "accesses at",
        "handling" => "handling of VM exits",
        "total" => "in all",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The reason of a metric of exits or their handling time: HLT for `exits.HLT` and `handling.HLT`, `None` for
/// `exits.total`.
pub fn exit_reason(metric: &str) -> Option<&str> {
    counted_reason(metric).or_else(|| metric.strip_prefix("handling.").filter(|rest| *rest != "total"))
}

/// The reason of a metric of exits: HLT for `exits.HLT`.
pub fn counted_reason(metric: &str) -> Option<&str> {
    metric.strip_prefix("exits.").filter(|rest| *rest != "total")
}

/// The port, or the page of addresses, of a metric of accesses: `port.0x20` for `accesses.port.0x20`; `None`
/// for `accesses.port`, which covers all ports.
pub fn accessed(metric: &str) -> Option<&str> {
    metric.strip_prefix("accesses.").filter(|place| place.contains('.'))
}

/// The change with its certainty: "by 2.1 % (95 % interval 1.2 to 3.0 %, 8 pairs)".
pub(super) fn by(change: &Contrast, unit: Unit) -> String {
    let size = amount(change.estimate.abs(), change, unit);
    format!("by {size} ({})", certainty(change, unit))
}

/// The certainty of a change: "95 % interval 1.2 to 3.0 %, 8 pairs".
fn certainty(change: &Contrast, unit: Unit) -> String {
    let repeats = if change.is_paired { "pairs" } else { "repeats a side" };
    match change.interval {
        Some(interval) => {
            format!(
                "95 % interval {}, {} {repeats}",
                interval_in_words(interval, change, unit),
                change.repeats
            )
        }
        None => format!("no interval, {} {repeats}", change.repeats),
    }
}

/// The interval in words, without signs if both ends have the sign of the estimate.
fn interval_in_words(interval: Interval, change: &Contrast, unit: Unit) -> String {
    let Interval { low, high } = interval;
    let number = |value: f64| number(value, change);
    if low > 0.0 || high < 0.0 {
        let (least, most) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        return format!("{} to {}{}", number(least), number(most), suffix(change.scale, unit));
    }
    let signed = |value: f64| format!("{}{}", if value < 0.0 { "-" } else { "+" }, number(value.abs()));
    format!("{} to {}{}", signed(low), signed(high), suffix(change.scale, unit))
}

/// The bound of a difference that is not significant: "1.4 %".
pub(super) fn bound(change: &Contrast, unit: Unit) -> Option<String> {
    let Interval { low, high } = change.interval?;
    Some(amount(low.abs().max(high.abs()), change, unit))
}

/// The largest bound of several changes, in each unit that occurs: "1.4 %", "0.3 s". `None` if there are no changes, or
/// one has no interval.
pub(super) fn bounds(changes: &[(Contrast, Unit)]) -> Option<Vec<String>> {
    let mut widest: Vec<(f64, &(Contrast, Unit))> = Vec::new();
    for one in changes {
        let Interval { low, high } = one.0.interval?;
        let size = low.abs().max(high.abs());
        let of_unit = |other: &&mut (f64, &(Contrast, Unit))| {
            suffix(other.1.0.scale, other.1.1) == suffix(one.0.scale, one.1)
        };
        match widest.iter_mut().find(of_unit) {
            Some(known) if known.0 >= size => {}
            Some(known) => *known = (size, one),
            None => widest.push((size, one)),
        }
    }
    let told = widest.iter().map(|(size, (change, unit))| amount(*size, change, *unit)).collect::<Vec<_>>();
    Some(told).filter(|told| !told.is_empty())
}

fn amount(value: f64, change: &Contrast, unit: Unit) -> String {
    format!("{}{}", number(value, change), suffix(change.scale, unit))
}

/// A number with as many decimals as the interval justifies.
fn number(value: f64, change: &Contrast) -> String {
    let width = change.interval.map_or(value.abs(), |interval| interval.high - interval.low);
    let decimals = match width {
        width if width >= 20.0 => 0,
        width if width >= 0.2 || change.scale == Scale::Ratio => 1,
        width if width > 0.0 => (1.0 - width.log10().floor()).clamp(1.0, 6.0) as usize,
        _ => 1,
    };
    format!("{value:.decimals$}")
}

fn suffix(scale: Scale, unit: Unit) -> &'static str {
    match (scale, unit) {
        (Scale::Ratio, _) => " %",
        (Scale::Difference, Unit::Percent) => " percentage points",
        (Scale::Difference, Unit::BytesPerSecond) => " B/s",
        (Scale::Difference, Unit::BitsPerSecond) => " bit/s",
        (Scale::Difference, Unit::PerSecond) => " a second",
        (Scale::Difference, Unit::Seconds) => " s",
        (Scale::Difference, Unit::PerOperation) => " an operation",
        (Scale::Difference, Unit::Cycles) => " cycles",
        (Scale::Difference, Unit::Hertz) => " Hz",
        (Scale::Difference, Unit::Count) => "",
    }
}

pub(super) fn verb(finding: Finding) -> &'static str {
    if finding == Finding::Lowered { "lowered" } else { "raised" }
}

/// The numbers of guests in words: "1 VM", "1, 2 and 4 VMs".
pub(super) fn guests(counts: &[u32], are_vms: bool) -> String {
    let noun = if are_vms { "VM" } else { "guest" };
    let plural = if counts == [1] { "" } else { "s" };
    match counts {
        [] => String::new(),
        [only] => format!("{only} {noun}{plural}"),
        [first, .., last] if counts.len() > 4 => format!("{first} to {last} {noun}{plural}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            format!("{} and {last} {noun}{plural}", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(scale: Scale, estimate: f64, low: f64, high: f64) -> Contrast {
        let interval = Some(Interval { low, high });
        Contrast { scale, estimate, interval, p_value: None, test: None, repeats: 8, is_paired: true }
    }

    #[test]
    fn changes_have_their_unit_and_as_many_digits_as_are_known() {
        let said = by(&change(Scale::Ratio, 2.14, 1.24, 3.04), Unit::BytesPerSecond);
        assert_eq!(said, "by 2.1 % (95 % interval 1.2 to 3.0 %, 8 pairs)");
        let said = by(&change(Scale::Ratio, -43.1, -60.2, -20.1), Unit::PerSecond);
        assert_eq!(said, "by 43 % (95 % interval 20 to 60 %, 8 pairs)");
        let said = by(&change(Scale::Difference, 0.5, -0.25, 1.25), Unit::Percent);
        assert_eq!(said, "by 0.5 percentage points (95 % interval -0.2 to +1.2 percentage points, 8 pairs)");
        let said = by(&change(Scale::Difference, 0.0012, 0.0011, 0.0013), Unit::Seconds);
        assert_eq!(said, "by 0.00120 s (95 % interval 0.00110 to 0.00130 s, 8 pairs)");
    }

    #[test]
    fn figures_are_named_once() {
        assert_eq!(figure("random-read", "throughput", Source::Workload), "random-read throughput");
        assert_eq!(
            figure("random-read", "random-read.throughput", Source::Workload),
            "random-read throughput"
        );
        assert_eq!(figure("random-read", "cpu.iowait", Source::Host), "CPU iowait during random-read");
    }

    #[test]
    fn exits_of_work_are_told_from_rates() {
        for unit in WorkUnit::ALL {
            let name = format!("exits-per-{}.HLT", unit.singular());
            assert_eq!(exits_of_which_work(&name), Some((unit, "HLT")));
            assert_eq!((exit_reason(&name), counted_reason(&name)), (None, None));
        }
        assert_eq!(
            figure("threads", "exits-per-event.total", Source::Host),
            "VM exits an event in all during threads"
        );
    }

    #[test]
    fn numbers_of_guests_are_listed() {
        assert_eq!(guests(&[1], true), "1 VM");
        assert_eq!(guests(&[1, 2, 4], true), "1, 2 and 4 VMs");
        assert_eq!(guests(&[1, 2, 3, 4, 5], false), "1 to 5 guests");
    }

    #[test]
    fn a_sum_is_of_no_reason() {
        assert_eq!(exit_reason("exits.MSR_WRITE"), Some("MSR_WRITE"));
        assert_eq!(exit_reason("handling.HLT"), Some("HLT"));
        assert_eq!(exit_reason("cpu.total"), None);
        assert_eq!(exit_reason("exits.total"), None);
    }
}
