//! Numbers with units from the command line.

/// The error of a number that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuantity {
    #[error("a time is a number with a unit, such as 1.5s, 200ms, 30us or 2min")]
    Time,
    #[error(
        "a time to wait is a number of seconds, or one with a unit such as 200ms or 2min, and longer than nothing"
    )]
    Wait,
    #[error("it is a number with a unit, such as 50us or 1ms, and longer than nothing")]
    Bound,
    #[error("a frequency is a number, with a unit or in hertz, such as 2.1G, 2100M or 2100000000")]
    Frequency,
}

const TIMES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];

const FREQUENCIES: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];

/// Parses a time to nanoseconds: "1.5s", "200 ms". Zero needs no unit.
pub(crate) fn time(text: &str) -> Result<u64, BadQuantity> {
    if text.trim() == "0" {
        return Ok(0);
    }
    scaled(text, &TIMES).ok_or(BadQuantity::Time)
}

/// Parses a duration to nanoseconds: "10" and "10s" are the same, as for `sleep(1)`. Never zero.
pub(crate) fn wait(text: &str) -> Result<u64, BadQuantity> {
    let seconds = || scaled(text, &[("", 1e9)]);
    scaled(text, &TIMES).or_else(seconds).filter(|&ns| ns > 0).ok_or(BadQuantity::Wait)
}

/// Parses the shortest handling time of exits to nanoseconds: "50us". Never zero. The unit is required,
/// because a bare number would probably be meant as microseconds.
pub(crate) fn bound(text: &str) -> Result<u64, BadQuantity> {
    scaled(text, &TIMES).filter(|&ns| ns > 0).ok_or(BadQuantity::Bound)
}

/// Parses a frequency to hertz: "2.1G", "2.1 GHz", "2100000000".
pub(crate) fn frequency(text: &str) -> Result<u64, BadQuantity> {
    let number = text.strip_suffix("Hz").unwrap_or(text);
    scaled(number, &FREQUENCIES).filter(|&hertz| hertz > 0).ok_or(BadQuantity::Frequency)
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let value = (number * factor).round();
    // A floating-point number above 2^53 is not exact.
    (value <= 9_007_199_254_740_992.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_seconds_without_a_unit_and_never_nothing() {
        let read = ["10", "10s", "0.5", "200ms"].map(wait);
        assert_eq!(read, [10_000_000_000, 10_000_000_000, 500_000_000, 200_000_000].map(Ok));
        assert_eq!(["0", "0s", "", "x", "-1", "1x"].map(wait), [Err(BadQuantity::Wait); 6]);
    }

    #[test]
    fn bounds_need_a_unit_and_are_never_nothing() {
        assert_eq!(["50us", "1 ms"].map(bound), [50_000, 1_000_000].map(Ok));
        assert_eq!(["50", "0", "0us", "-1ms"].map(bound), [Err(BadQuantity::Bound); 4]);
    }

    #[test]
    fn times_need_a_unit() {
        let read = ["1.5s", "200ms", "30 us", "7µs", "2min", "1h", "12ns", "0", ".5s"].map(time);
        let ns = [
            1_500_000_000,
            200_000_000,
            30_000,
            7_000,
            120_000_000_000,
            3_600_000_000_000,
            12,
            0,
            500_000_000,
        ];
        assert_eq!(read, ns.map(Ok));
        for wrong in ["", "1", "-1s", "1,5s", "s", "1e3s", "1.2.3s", "nans", "3 days", "99999999h"] {
            assert_eq!(time(wrong), Err(BadQuantity::Time), "{wrong}");
        }
    }

    #[test]
    fn frequencies_may_have_one() {
        let read = ["2.1G", "2.1 GHz", "2100M", "2100000000", "2100000kHz"].map(frequency);
        assert_eq!(read, [Ok(2_100_000_000); 5]);
        for wrong in ["", "0", "fast", "2.1T", "-1", "inf"] {
            assert_eq!(frequency(wrong), Err(BadQuantity::Frequency), "{wrong}");
        }
    }
}
