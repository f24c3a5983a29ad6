//! Figures as text with their units, the same in every medium.

use conclusions::RelativeChange;
pub(crate) use prove::grouped as count;
use stats::Interval;

/// The text for an absent figure.
pub(crate) const NONE: &str = "–";

/// Cycles, rounded to whole ones: "4,720".
pub(crate) fn cycles(value: f64) -> String {
    count(value.round().max(0.0) as u64)
}

/// Percent with its sign: "-71.3", "+2.0", "+1,234"; from a hundred on without decimals, and without a sign if it rounds
/// to zero.
pub(crate) fn percent(value: f64) -> String {
    if value.abs() < 99.95 {
        let text = format!("{value:+.1}");
        return if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text };
    }
    if value < 0.0 {
        // -99.97 must not be rounded to -100, because some exits are left.
        return if value > -100.0 && value < -99.95 {
            format!("{:.2}", value.max(-99.99))
        } else {
            "-100".to_owned()
        };
    }
    match value {
        value if value < 1e9 => format!("+{}", count(value.round() as u64)),
        value => format!("+{value:.0e}"),
    }
}

/// An interval in percent: "-71.6 to -71.0 %", "+200 % or more".
pub(crate) fn interval(interval: Interval) -> String {
    let Interval { low, high } = interval;
    if high.is_finite() {
        format!("{} to {} %", percent(low), percent(high))
    } else {
        format!("{} % or more", percent(low))
    }
}

/// The interval, or a dash.
pub(crate) fn interval_of(of: Option<Interval>) -> String {
    of.map_or_else(|| NONE.to_owned(), interval)
}

/// A change in percent, or a word if it is the whole or cannot be given in percent.
pub(crate) fn change(change: Option<RelativeChange>) -> String {
    match change {
        Some(RelativeChange::Percent(-100.0)) => "gone".to_owned(),
        Some(RelativeChange::Percent(value)) => format!("{} %", percent(value)),
        Some(RelativeChange::FromNothing) => "new".to_owned(),
        Some(RelativeChange::StillNothing) => "0.0 %".to_owned(),
        None => NONE.to_owned(),
    }
}

/// The count, or a dash.
pub(crate) fn count_of(value: Option<u64>) -> String {
    value.map_or_else(|| NONE.to_owned(), count)
}

/// Exits for each operation: "2.002", and "<0.001" instead of a misleading zero.
pub(crate) fn per_operation(value: f64) -> String {
    if value > 0.0 && value < 0.0005 { "<0.001".to_owned() } else { format!("{value:.3}") }
}

/// Exits for each operation, or a dash.
pub(crate) fn per_operation_of(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), per_operation)
}

/// Nanoseconds with a unit that fits and three digits: "812 ns", "27.2 µs", "1.50 s", "1,234 s".
pub(crate) fn time(ns: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    let rounded = three_digits(ns);
    let (size, unit) = UNITS.into_iter().rev().find(|(size, _)| rounded >= *size).unwrap_or(UNITS[0]);
    // A clock shows no fractions of a nanosecond; a mean may have one.
    if unit == "ns" && ns.fract() == 0.0 {
        return format!("{ns:.0} ns");
    }
    format!("{} {unit}", digits(ns / size))
}

/// A time in whole nanoseconds.
pub(crate) fn whole_time(ns: u64) -> String {
    time(ns as f64)
}

/// The time, or a dash.
pub(crate) fn time_of(ns: Option<u64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), whole_time)
}

/// Percent: "35.0 %", "100 %"; "<0.1 %" instead of a misleading zero.
pub(crate) fn share(percent: f64) -> String {
    match percent {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent if percent < 99.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// The share, or a dash.
pub(crate) fn share_of(percent: Option<f64>) -> String {
    percent.map_or_else(|| NONE.to_owned(), share)
}

/// The rate of `counted` in `ns` nanoseconds: "6,670/s", "0.250/s"; a dash if `ns` is 0.
pub(crate) fn rate_over(counted: u64, ns: u64) -> String {
    if ns == 0 {
        return NONE.to_owned();
    }
    per_second(counted as f64 / ns as f64 * 1e9)
}

/// A rate: "6,670/s", "0.250/s", "1.23 M/s".
pub(crate) fn per_second(value: f64) -> String {
    const MILLION: f64 = 1e6;
    if three_digits(value) >= MILLION {
        format!("{} M/s", digits(value / MILLION))
    } else {
        format!("{}/s", digits(value))
    }
}

/// A number with its noun: "1 exit", "34,592 exits".
pub(crate) fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {one}s", count(number)),
    }
}

/// Three significant digits, but all digits before the point.
fn digits(value: f64) -> String {
    let rounded = three_digits(value);
    match rounded {
        0.0 => "0".to_owned(),
        rounded if rounded < 10.0 => format!("{rounded:.2}"),
        rounded if rounded < 100.0 => format!("{rounded:.1}"),
        _ => count(value.round() as u64),
    }
}

/// Rounds to three significant digits; done first, so that 999.7 µs becomes 1.00 ms.
fn three_digits(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_keep_what_counts() {
        let shown = [-71.27, 0.01, 2.04, 99.97, 1234.4, -99.97, -99.9999, -100.0, 2e12].map(percent);
        assert_eq!(shown, ["-71.3", "0.0", "+2.0", "+100", "+1,234", "-99.97", "-99.99", "-100", "+2e12"]);
    }

    #[test]
    fn small_rates_are_not_rounded_to_nothing() {
        assert_eq!(["0.000", "<0.001", "0.001", "2.000"], [0.0, 0.0001, 0.001, 2.0].map(per_operation));
    }

    #[test]
    fn ends_of_intervals_that_are_not_there_are_said() {
        assert_eq!(interval(Interval { low: 200.0, high: f64::INFINITY }), "+200 % or more");
        assert_eq!(interval(Interval { low: -5.0, high: 3.0 }), "-5.0 to +3.0 %");
        assert_eq!(interval_of(None), NONE);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let shown = [0, 7, 812, 1_000, 27_186, 999_499, 999_500, 31_370_890, 1_500_000_000].map(whole_time);
        let texts =
            ["0 ns", "7 ns", "812 ns", "1.00 µs", "27.2 µs", "999 µs", "1.00 ms", "31.4 ms", "1.50 s"];
        assert_eq!(shown, texts);
        assert_eq!(whole_time(1_234_567_890_123), "1,235 s");
        assert_eq!(time(0.25), "0.25 ns");
        assert_eq!(time(999.7), "1.00 µs");
        assert_eq!(whole_time(u64::MAX), "18,446,744,074 s");
    }

    #[test]
    fn small_shares_are_not_rounded_to_nothing() {
        let shares = [0.0, 0.01, 0.05, 35.02, 99.94, 100.0, 103.2].map(share);
        assert_eq!(shares, ["0.0 %", "<0.1 %", "0.1 %", "35.0 %", "99.9 %", "100 %", "103 %"]);
    }

    #[test]
    fn rates_are_of_a_second() {
        assert_eq!(rate_over(34_592, 5_186_419_000), "6,670/s");
        assert_eq!(rate_over(1, 4_000_000_000), "0.25/s");
        assert_eq!(rate_over(5, 0), NONE);
        assert_eq!(per_second(1_234_567.0), "1.23 M/s");
        assert_eq!(per_second(0.0), "0/s");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "exit"), "1 exit");
        assert_eq!(counted(34_592, "exit"), "34,592 exits");
    }
}
