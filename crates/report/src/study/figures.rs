//! Figures of studies as text with their units, the same in every medium.

use exits::agree;
use stats::{Contrast, Interval, Scale};
use study::analysis::{Comparison, Figure, Finding, Findings, Multiplicity, Point, exits_of_which_work};
use study::{Better, Unit};

use crate::format::{self, NONE, counted, places};

/// A number of guests: "2 VMs", or "2 guests".
pub(crate) fn guests(findings: &Findings, count: u32) -> String {
    counted(count.into(), if findings.study.are_vms { "VM" } else { "guest" })
}

/// The phrase " with 2 VMs"; empty without guests.
pub(crate) fn with_guests(findings: &Findings, count: u32) -> String {
    if count == 0 { String::new() } else { format!(" with {}", guests(findings, count)) }
}

/// "300 comparisons; if nothing differed, about 15 would have a p value below 0.05: 41 have one".
fn below_by_chance(made: &Multiplicity) -> String {
    // Decimals for small numbers: "0.05" instead of a misleading 0.
    let expected =
        if made.expected < 0.95 { format!("{:.2}", made.expected) } else { format!("{:.0}", made.expected) };
    format!(
        "{}; if nothing differed, about {expected} would have a p value below {}: {} {} one",
        counted(made.made as u64, "comparison"),
        made.level,
        made.below,
        agree(made.below as u64, "has", "have")
    )
}

/// The number of comparisons, and the number of false alarms to expect.
pub(crate) fn chance(made: &Multiplicity) -> String {
    format!(
        "{}, {} passed all gates, {} of them also by Holm's method.",
        below_by_chance(made),
        made.found,
        made.found_by_holm
    )
}

/// A unit with a prefix that fits a figure, so that all its values have the same unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measure {
    unit: Unit,
    /// The size of the shown unit in units without a prefix.
    size: f64,
    name: &'static str,
    decimals: usize,
}

const BYTES: [(f64, &str); 4] = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")];
const BITS: [(f64, &str); 4] = [(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")];
const RATES: [(f64, &str); 3] = [(1.0, "a second"), (1e3, "thousand a second"), (1e6, "million a second")];
const TIMES: [(f64, &str); 4] = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];
const HERTZ: [(f64, &str); 3] = [(1.0, "Hz"), (1e6, "MHz"), (1e9, "GHz")];

/// The ratio of a figure's largest value to its smallest from which the unit fits the largest.
const MOST_SPREAD: f64 = 1e3;

impl Measure {
    /// The unit in which `largest` has one to three digits before its point.
    pub(crate) fn of(unit: Unit, largest: f64) -> Self {
        let largest = if largest.is_finite() { largest.abs() } else { 0.0 };
        let sizes: &[(f64, &'static str)] = match unit {
            Unit::BytesPerSecond => &BYTES,
            Unit::BitsPerSecond => &BITS,
            // Rates in thousands are readable without a prefix.
            Unit::PerSecond if largest < 1e7 => &RATES[..1],
            Unit::PerSecond => &RATES,
            Unit::Seconds => &TIMES,
            Unit::Hertz => &HERTZ,
            Unit::Percent => &[(1.0, "%")],
            Unit::PerOperation => &[(1.0, "an operation")],
            Unit::Cycles => &[(1.0, "cycles")],
            Unit::Count => &[(1.0, "")],
        };
        let fitting = sizes.iter().rev().find(|(size, _)| largest >= *size).or(sizes.first());
        let &(size, name) = fitting.unwrap_or(&(1.0, ""));
        Self { unit, size, name, decimals: 0 }.with_decimals(largest)
    }

    /// The unit with the decimals that values up to `largest` need.
    fn with_decimals(self, largest: f64) -> Self {
        let shown = largest / self.size;
        let decimals = match shown {
            shown if shown >= 100.0 => usize::from(self.unit == Unit::Percent),
            shown if shown >= 10.0 => 1,
            0.0 => 0,
            // Two significant digits: a rare exit has a small rate, which is not zero.
            shown
                if shown < 1.0 && matches!(self.unit, Unit::PerOperation | Unit::PerSecond | Unit::Count) =>
            {
                places(shown)
            }
            _ => 2,
        };
        Self { decimals, ..self }
    }

    /// The unit with the decimals for one row of a table. Other rows may have much larger values, and the levels of this
    /// row must show its change.
    pub(crate) fn of_row(self, point: &Point) -> Self {
        self.with_decimals(point.arms.iter().flatten().map(|arm| arm.level.abs()).fold(0.0, f64::max))
    }

    /// The unit for all values of a figure: that of the smallest, unless the largest would get too many
    /// digits.
    pub(crate) fn of_figure(figure: &Figure) -> Self {
        let values =
            figure.points.iter().flat_map(|point| point.arms.iter().flatten()).map(|arm| arm.level.abs());
        let largest = values.clone().fold(0.0, f64::max);
        let smallest = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let largest = if smallest * MOST_SPREAD > largest { smallest } else { largest };
        Self::of_metric(&figure.metric, figure.unit, largest)
    }

    /// Like [`Self::of`], but exits per unit of work have the name of that unit: "an event".
    pub(crate) fn of_metric(metric: &str, unit: Unit, largest: f64) -> Self {
        let measure = Self::of(unit, largest);
        exits_of_which_work(metric).map_or(measure, |(work, _)| Self { name: work.each(), ..measure })
    }

    /// The unit: "MB/s"; empty for plain counts.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The value without the unit: "412".
    pub(crate) fn number(&self, value: f64) -> String {
        grouped(value / self.size, self.decimals)
    }

    /// A value of an axis, with the decimals that `step` needs.
    pub(crate) fn tick(&self, value: f64, step: f64) -> String {
        let step = step / self.size;
        let decimals = if step > 0.0 { (-step.log10().floor()).clamp(0.0, 6.0) as usize } else { 0 };
        grouped(value / self.size, decimals)
    }

    /// The size of the shown unit in units without a prefix.
    pub(crate) fn size(&self) -> f64 {
        self.size
    }

    /// The value with the unit: "412 MB/s".
    pub(crate) fn shown(&self, value: f64) -> String {
        let number = self.number(value);
        if self.name.is_empty() { number } else { format!("{number} {}", self.name) }
    }
}

/// Formats a number with thousands separators.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.'));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), crate::format::count);
    format!("{}{whole}{rest}", if is_zero { "" } else { sign })
}

/// The level of an arm: "412".
pub(crate) fn level(point: &Point, arm: usize, measure: &Measure) -> String {
    point.level(arm).map_or_else(|| NONE.to_owned(), |level| measure.number(level))
}

/// A change: "+2.1 %", "-0.4 points", "+12.0 MB/s".
pub(crate) fn change(change: Option<Contrast>, unit: Unit) -> String {
    change.map_or_else(|| NONE.to_owned(), |change| with_sign(change.estimate, change.scale, unit))
}

/// The interval of a change: "+1.2 to +3.0 %".
pub(crate) fn interval(change: Option<Contrast>, unit: Unit) -> String {
    let Some((change, Interval { low, high })) = change.and_then(|change| Some((change, change.interval?)))
    else {
        return NONE.to_owned();
    };
    match change.scale {
        Scale::Ratio => format!("{} to {}", format::percent(low), with_sign(high, change.scale, unit)),
        Scale::Difference => {
            let (shown, suffix) = absolute(unit, low.abs().max(high.abs()));
            format!("{} to {}{suffix}", shown(low), shown(high))
        }
    }
}

fn with_sign(value: f64, scale: Scale, unit: Unit) -> String {
    match scale {
        Scale::Ratio => format!("{} %", format::percent(value)),
        Scale::Difference => {
            let (shown, suffix) = absolute(unit, value.abs());
            format!("{}{suffix}", shown(value))
        }
    }
}

/// The formatter of differences in this unit, and their suffix.
fn absolute(unit: Unit, largest: f64) -> (impl Fn(f64) -> String, String) {
    let measure = Measure::of(unit, largest);
    let decimals = if unit == Unit::Percent { 2 } else { measure.decimals };
    let suffix = match unit {
        Unit::Percent => " points".to_owned(),
        _ if measure.name.is_empty() => String::new(),
        _ => format!(" {}", measure.name),
    };
    (move |value: f64| signed_grouped(value / measure.size, decimals), suffix)
}

fn signed_grouped(value: f64, decimals: usize) -> String {
    let text = grouped(value.abs(), decimals);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.' | ','));
    match value {
        _ if is_zero => text,
        value if value < 0.0 => format!("-{text}"),
        _ => format!("+{text}"),
    }
}

/// The change in percent of the baseline, if defined: "-43.2 %".
pub(crate) fn percent(comparison: &Comparison) -> String {
    comparison.percent.map_or_else(|| NONE.to_owned(), |percent| format!("{} %", format::percent(percent)))
}

/// A p value: "0.008", "<0.001".
pub(crate) fn p_value(change: Option<Contrast>) -> String {
    match change.and_then(|change| change.p_value) {
        None => NONE.to_owned(),
        Some(p) if p < 0.001 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// The finding in a word or two.
pub(crate) fn finding(finding: Finding, better: Better) -> &'static str {
    match (finding, finding.is_good(better)) {
        (_, Some(true)) => "better",
        (_, Some(false)) => "worse",
        (Finding::Raised, None) => "more",
        (Finding::Lowered, None) => "less",
        (Finding::Small, _) => "too small",
        (Finding::NotSeen, _) => "not seen",
        (Finding::TooFew, _) => "too few",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(scale: Scale, estimate: f64, low: f64, high: f64) -> Option<Contrast> {
        let interval = Some(Interval { low, high });
        Some(Contrast { scale, estimate, interval, p_value: None, test: None, repeats: 8, is_paired: true })
    }

    #[test]
    fn values_have_the_unit_that_fits_the_largest() {
        let shown = |unit, value| Measure::of(unit, value).shown(value);
        assert_eq!(shown(Unit::BytesPerSecond, 412_345_678.0), "412 MB/s");
        assert_eq!(shown(Unit::BitsPerSecond, 9.41e9), "9.41 Gbit/s");
        assert_eq!(shown(Unit::PerSecond, 21_400.0), "21,400 a second");
        assert_eq!(shown(Unit::PerSecond, 214_000.0), "214,000 a second");
        assert_eq!(shown(Unit::PerSecond, 21_400_000.0), "21.4 million a second");
        assert_eq!(shown(Unit::Seconds, 0.000_812), "812 µs");
        assert_eq!(shown(Unit::PerSecond, 0.004_17), "0.0042 a second");
        assert_eq!(shown(Unit::PerSecond, 0.0999), "0.10 a second");
        assert_eq!(shown(Unit::Percent, 100.0), "100.0 %");
        assert_eq!(shown(Unit::Count, 0.0), "0");
        assert_eq!(Measure::of(Unit::BytesPerSecond, 4e8).shown(1e6), "1 MB/s");
    }

    #[test]
    fn changes_have_signs_and_their_own_unit() {
        let ratio = changed(Scale::Ratio, 2.14, 1.24, 3.04);
        assert_eq!(
            (change(ratio, Unit::Seconds), interval(ratio, Unit::Seconds)),
            ("+2.1 %".to_owned(), "+1.2 to +3.0 %".to_owned())
        );
        let points = changed(Scale::Difference, -0.4, -0.9, 0.1);
        assert_eq!(change(points, Unit::Percent), "-0.40 points");
        assert_eq!(interval(points, Unit::Percent), "-0.90 to +0.10 points");
        let rate = changed(Scale::Difference, -3100.0, -3140.0, -3060.0);
        assert_eq!(change(rate, Unit::PerSecond), "-3,100 a second");
        assert_eq!(change(None, Unit::Percent), NONE);
        let rare = changed(Scale::Difference, 0.004_17, 0.001_2, 0.007_1);
        assert_eq!(change(rare, Unit::PerSecond), "+0.0042 a second");
        assert_eq!(interval(rare, Unit::PerSecond), "+0.0012 to +0.0071 a second");
    }

    #[test]
    fn small_levels_in_a_large_table_show_their_change() {
        let measure = Measure::of(Unit::PerSecond, 85_465.0);
        let shown = |largest: f64, value: f64| measure.with_decimals(largest).number(value);
        assert_eq!([shown(3.16, 1.83), shown(3.16, 3.16), shown(12.6, 12.6)], ["1.83", "3.16", "12.6"]);
        assert_eq!([shown(85_465.0, 85_465.0), shown(0.0, 0.0)], ["85,465", "0"]);
    }

    #[test]
    fn one_comparison_has_what_others_have() {
        let said = |made, below| {
            let expected = made as f64 * 0.05;
            below_by_chance(&Multiplicity { made, level: 0.05, expected, below, found: 0, found_by_holm: 0 })
        };
        assert_eq!(
            [said(1, 1), said(30, 0)],
            [
                "1 comparison; if nothing differed, about 0.05 would have a p value below 0.05: 1 has one",
                "30 comparisons; if nothing differed, about 2 would have a p value below 0.05: 0 have one"
            ]
        );
    }

    #[test]
    fn ticks_have_no_more_decimals_than_their_step() {
        let measure = Measure::of(Unit::BytesPerSecond, 4.2e8);
        assert_eq!(measure.tick(2e8, 1e8), "200");
        assert_eq!(Measure::of(Unit::Percent, 0.9).tick(0.2, 0.2), "0.2");
    }
}
