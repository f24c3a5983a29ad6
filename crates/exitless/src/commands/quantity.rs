//! Numbers with units from the command line.

use std::time::Duration;

use guests::UNITS_OF_TIME;

/// The error of a number that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuantity {
    #[error("a time is a number with a unit (ns, us, ms, s, min, h or d), such as 1.5s, 200ms, 30us or 2min")]
    Time,
    #[error(
        "a time to wait is a number of seconds, or one with a unit (ns, us, ms, s, min, h or d), such as 200ms or \
         2min, and longer than nothing"
    )]
    Wait,
    #[error(
        "it is a number with a unit, such as 50us or 1ms (ns, us, ms, s, min, h or d), and longer than nothing"
    )]
    Bound,
    #[error("it is longer than the longest possible time, 2,500 h")]
    TooLong,
    #[error("a frequency is a number, with a unit or in hertz, such as 2.1G, 2100M or 2100000000")]
    Frequency,
    #[error("it is a number of ticks a second, such as 250 or 1k; 0 if there are none")]
    Ticks,
    #[error("a rate is a number a second, such as 1500, or one with k, M or G, such as 1.5k")]
    Rate,
}

const FREQUENCIES: [(&str, u64); 4] = [("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// A floating-point number above it is not exact.
const LARGEST: f64 = 9_007_199_254_740_992.0;

/// Parses a moment to nanoseconds: "1.5s", "200 ms". Zero needs no unit.
pub(crate) fn time(text: &str) -> Result<u64, BadQuantity> {
    if text.trim() == "0" {
        return Ok(0);
    }
    nanoseconds(scaled(text, &UNITS_OF_TIME).ok_or(BadQuantity::Time)?)
}

/// Parses a duration to nanoseconds: "10" and "10s" are the same, as for `sleep(1)`. Never zero.
pub(crate) fn wait(text: &str) -> Result<u64, BadQuantity> {
    let seconds = || scaled(text, &[("", 1_000_000_000)]);
    let read = scaled(text, &UNITS_OF_TIME).or_else(seconds).ok_or(BadQuantity::Wait)?;
    above_zero(nanoseconds(read)?, BadQuantity::Wait)
}

/// Parses a limit of time as [`wait`] does. A number of seconds may be any: a large one stands for no limit.
pub(crate) fn limit(text: &str) -> Result<Duration, BadQuantity> {
    match text.parse() {
        Ok(seconds) => above_zero(seconds, BadQuantity::Wait).map(Duration::from_secs),
        Err(_) => wait(text).map(Duration::from_nanos),
    }
}

/// Parses the shortest handling time of exits to nanoseconds: "50us". Never zero. The unit is required,
/// because a bare number would probably be meant as microseconds.
pub(crate) fn bound(text: &str) -> Result<u64, BadQuantity> {
    let read = scaled(text, &UNITS_OF_TIME).ok_or(BadQuantity::Bound)?;
    above_zero(nanoseconds(read)?, BadQuantity::Bound)
}

/// Parses a frequency to hertz: "2.1G", "2.1 GHz", "2100000000".
pub(crate) fn frequency(text: &str) -> Result<u64, BadQuantity> {
    let read = hertz(text).map(f64::round).filter(|&hertz| (1.0..=LARGEST).contains(&hertz));
    read.map(|hertz| hertz as u64).ok_or(BadQuantity::Frequency)
}

/// Parses a number of ticks a second: "250", "1k". May be zero.
pub(crate) fn ticks(text: &str) -> Result<u32, BadQuantity> {
    let with_unit = || hertz(text).map(f64::round).filter(|&hertz| hertz <= f64::from(u32::MAX));
    text.parse().ok().or_else(|| with_unit().map(|hertz| hertz as u32)).ok_or(BadQuantity::Ticks)
}

/// Parses a rate a second: "1500", "1.5k". The load generator refuses what is no rate.
pub(crate) fn rate(text: &str) -> Result<f64, BadQuantity> {
    text.parse().ok().or_else(|| scaled(text, &FREQUENCIES)).ok_or(BadQuantity::Rate)
}

fn hertz(text: &str) -> Option<f64> {
    scaled(text.strip_suffix("Hz").unwrap_or(text), &FREQUENCIES)
}

fn nanoseconds(read: f64) -> Result<u64, BadQuantity> {
    let ns = read.round();
    if ns <= LARGEST { Ok(ns as u64) } else { Err(BadQuantity::TooLong) }
}

fn above_zero(number: u64, wrong: BadQuantity) -> Result<u64, BadQuantity> {
    if number > 0 { Ok(number) } else { Err(wrong) }
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    Some(number * *factor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_seconds_without_a_unit_and_never_nothing() {
        let read = ["10", "10s", "0.5", "200ms"].map(wait);
        assert_eq!(read, [10_000_000_000, 10_000_000_000, 500_000_000, 200_000_000].map(Ok));
        let read = ["5m", "5min", "1d", "2h"].map(wait);
        assert_eq!(read, [300_000_000_000, 300_000_000_000, 86_400_000_000_000, 7_200_000_000_000].map(Ok));
        assert_eq!(["0", "0s", "", "x", "-1", "1x"].map(wait), [Err(BadQuantity::Wait); 6]);
    }

    #[test]
    fn limits_are_waits_and_may_be_longer_than_anybody_waits() {
        let read = ["600", "10min", "99999999", "18446744073709551615"].map(limit);
        assert_eq!(read, [600, 600, 99_999_999, u64::MAX].map(|seconds| Ok(Duration::from_secs(seconds))));
        assert_eq!(["0", "0s", "", "x", "-1"].map(limit), [Err(BadQuantity::Wait); 5]);
    }

    #[test]
    fn a_time_that_is_too_long_is_told_from_what_is_none() {
        assert_eq!([time("99999999h"), wait("3000000h"), bound("105d")], [Err(BadQuantity::TooLong); 3]);
        assert_eq!(wait("99999999999"), Err(BadQuantity::TooLong));
        assert_eq!(wait("100d"), Ok(8_640_000_000_000_000));
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
        for wrong in ["", "1", "-1s", "1,5s", "s", "1e3s", "1.2.3s", "nans", "3 days"] {
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

    #[test]
    fn ticks_and_rates_have_the_units_of_frequencies() {
        assert_eq!(["0", "250", "1k", "1 kHz"].map(ticks), [0, 250, 1000, 1000].map(Ok));
        assert_eq!(["", "-1", "5G", "x"].map(ticks), [Err(BadQuantity::Ticks); 4]);
        assert_eq!(["0.5", "1e3", "1.5k"].map(rate), [0.5, 1000.0, 1500.0].map(Ok));
        assert_eq!(["", "fast", "1 day"].map(rate), [Err(BadQuantity::Rate); 3]);
    }
}
