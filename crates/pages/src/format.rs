//! Numbers as text with their units, the same in every medium.

pub use exits::grouped as count;

/// The text for a missing value.
pub const NONE: &str = "–";

/// Cycles, rounded to whole ones: "4,720".
pub fn cycles(value: f64) -> String {
    count(value.round().max(0.0) as u64)
}

/// A time in the unit that fits, with three digits: "812 ns", "27.2 µs", "1.50 s", "1,234 s".
pub fn time(ns: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
    let rounded = three_digits(ns);
    let (size, unit) = UNITS.into_iter().rev().find(|(size, _)| rounded >= *size).unwrap_or(UNITS[0]);
    // A single time is whole nanoseconds and gets no decimals; a mean may have some.
    if unit == "ns" && ns.fract() == 0.0 {
        return format!("{ns:.0} ns");
    }
    format!("{} {unit}", digits(ns / size))
}

/// A time in whole nanoseconds.
pub fn whole_time(ns: u64) -> String {
    time(ns as f64)
}

/// Percent: "35.0 %", "100 %"; "<0.1 %" instead of a misleading zero.
pub fn share(percent: f64) -> String {
    match percent {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent if percent < 99.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A rate: "6,670/s", "0.25/s", "0.0025/s", "1.23 M/s".
pub fn per_second(value: f64) -> String {
    const MILLION: f64 = 1e6;
    if three_digits(value) >= MILLION {
        format!("{} M/s", digits(value / MILLION))
    } else {
        format!("{}/s", digits(value))
    }
}

/// A number with its noun: "1 exit", "34,592 exits".
pub fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {one}s", count(number)),
    }
}

/// A number below 0.1 with two significant digits, so that a rare event does not have the rate zero.
pub fn small(value: f64) -> String {
    format!("{value:.0$}", places(value))
}

/// The decimals of a number below 1 that has two significant digits.
pub fn places(value: f64) -> usize {
    let places = |value: f64| (1.0 - value.log10().floor()).clamp(2.0, 12.0) as usize;
    // 0.0996 rounds to 0.10, which needs a place less.
    let rounded: f64 = format!("{value:.0$}", places(value)).parse().unwrap_or(value);
    places(rounded)
}

/// Three significant digits, or more if the integer part has more; two decimals below 10, and two digits below 0.1.
fn digits(value: f64) -> String {
    let rounded = three_digits(value);
    match rounded {
        0.0 => "0".to_owned(),
        rounded if rounded < 0.1 => small(rounded),
        rounded if rounded < 10.0 => format!("{rounded:.2}"),
        rounded if rounded < 100.0 => format!("{rounded:.1}"),
        _ => count(value.round() as u64),
    }
}

/// Rounds to three significant digits. Done before the unit is chosen, so that 999.7 µs becomes 1.00 ms.
fn three_digits(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

/// A tick's label without decimals: "10 µs".
pub fn round(ns: f64) -> String {
    bare(&time(ns))
}

/// A number with its unit, without zeros at the end of its decimals: "1 M/s", "0.005/s".
pub(crate) fn bare(shown: &str) -> String {
    let (number, unit) = shown.split_at(shown.find([' ', '/']).unwrap_or(shown.len()));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

/// Replaces hyphens by minus signs, which are as wide as a plus sign.
pub fn minus(text: &str) -> String {
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn small_rates_are_not_rounded_to_nothing() {
        let rates = [0.0, 0.0025, 0.000_123_4, 0.05, 0.0996, 0.25, 6670.4].map(per_second);
        assert_eq!(rates, ["0/s", "0.0025/s", "0.00012/s", "0.050/s", "0.10/s", "0.25/s", "6,670/s"]);
        assert_eq!(time(0.064), "0.064 ns");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "exit"), "1 exit");
        assert_eq!(counted(34_592, "exit"), "34,592 exits");
    }

    #[test]
    fn ticks_have_no_needless_zeros() {
        assert_eq!([1e4, 2e6, 5e2, 1e9, 2.5e3].map(round), ["10 µs", "2 ms", "500 ns", "1 s", "2.5 µs"]);
        let rates = [0.0, 0.001, 0.005, 0.02, 0.25, 1.0, 10.0, 400.0, 1e6];
        let shown = ["0/s", "0.001/s", "0.005/s", "0.02/s", "0.25/s", "1/s", "10/s", "400/s", "1 M/s"];
        assert_eq!(rates.map(|rate| bare(&per_second(rate))), shown);
        assert_eq!([10.0, 2.5, 100.0].map(|percent| bare(&share(percent))), ["10 %", "2.5 %", "100 %"]);
    }
}
