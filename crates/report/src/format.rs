//! Figures as text with their units, the same in every medium.

use conclusions::RelativeChange;
pub(crate) use pages::format::{
    NONE, count, counted, cycles, per_second, places, share, small, time, whole_time,
};
use stats::Interval;

/// A percentage with its sign: "-71.3", "+2.0", "+1,234". It has no decimals from a hundred on, and no sign if it rounds to
/// zero.
pub(crate) fn percent(value: f64) -> String {
    if value.abs() < 99.95 {
        let text = format!("{value:+.1}");
        return if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text };
    }
    if value < 0.0 {
        // Do not round -99.97 to -100, because some exits are left.
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

/// A duration in its two largest units: "1 d 2 h", "3 h 12 min", "2 min 5 s", "14.2 s", "10 s", "2.1 ms".
#[must_use]
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NONE.to_owned();
    }
    if seconds < 59.5 {
        let text = if seconds > 0.0 { time(seconds * 1e9) } else { "0 s".to_owned() };
        return match text.split_once(' ') {
            Some((number, unit)) if number.contains('.') => {
                format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        };
    }
    let whole = seconds.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, minutes) => two((minutes, "min"), (whole % 60, "s")),
        (0, hours, minutes) => two((hours, "h"), (minutes, "min")),
        (days, hours, _) => two((days, "d"), (hours, "h")),
    }
}

/// A number of units, and that of the smaller ones unless it is zero.
fn two((large, unit): (u64, &str), (small, smaller): (u64, &str)) -> String {
    if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {smaller}") }
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

/// A change in percent, or a word if it is -100 % or has no percentage.
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

/// Exits per operation: "2.002", and "<0.001" instead of a misleading zero.
pub(crate) fn per_operation(value: f64) -> String {
    if value > 0.0 && value < 0.0005 { "<0.001".to_owned() } else { format!("{value:.3}") }
}

/// Exits per operation, or a dash.
pub(crate) fn per_operation_of(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), per_operation)
}

/// The time, or a dash.
pub(crate) fn time_of(ns: Option<u64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), whole_time)
}

/// The share, or a dash.
pub(crate) fn share_of(percent: Option<f64>) -> String {
    percent.map_or_else(|| NONE.to_owned(), share)
}

/// The rate of `counted` in `ns` nanoseconds: "6,670/s", "0.25/s"; a dash if `ns` is 0.
pub(crate) fn rate_over(counted: u64, ns: u64) -> String {
    if ns == 0 {
        return NONE.to_owned();
    }
    per_second(counted as f64 / ns as f64 * 1e9)
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
    fn durations_have_their_two_largest_units() {
        let short = [0.0, 0.0021, 0.1, 1.5, 10.0, 14.23, 59.4].map(duration);
        assert_eq!(short, ["0 s", "2.1 ms", "100 ms", "1.5 s", "10 s", "14.2 s", "59.4 s"]);
        let minutes = [59.6, 61.0, 125.0, 3600.0, 11_520.0].map(duration);
        assert_eq!(minutes, ["1 min", "1 min 1 s", "2 min 5 s", "1 h", "3 h 12 min"]);
        assert_eq!([90_000.0, 172_800.0, f64::NAN].map(duration), ["1 d 1 h", "2 d", NONE]);
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
    fn rates_are_of_a_second() {
        assert_eq!(rate_over(34_592, 5_186_419_000), "6,670/s");
        assert_eq!(rate_over(1, 4_000_000_000), "0.25/s");
        assert_eq!(rate_over(5, 0), NONE);
        assert_eq!(per_second(1_234_567.0), "1.23 M/s");
        assert_eq!(per_second(0.0), "0/s");
    }
}
