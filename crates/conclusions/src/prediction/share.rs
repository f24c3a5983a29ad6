//! The time of a part of the exits, if it is unknown which exits are in the part.

use super::Range;
use exits::HandlingTime;

/// The part of `time_ns` that is avoided if `gone` of `exits` with these `times` are.
///
/// It is unknown which exits are avoided, so `low` is for the shortest ones, `high` for the longest ones, and `expected`
/// for exits with the mean time.
pub(super) fn time_of_part(times: &HandlingTime, time_ns: u64, gone: Range, exits: u64) -> Range {
    let (whole, time) = (exits as f64, time_ns as f64);
    if exits == 0 {
        return Range::NONE;
    }
    let part = |count: f64| (count / whole).clamp(0.0, 1.0);
    let (low, expected, high) = (part(gone.low), part(gone.expected), part(gone.high));
    Range::within(
        time * shortest(times, low).min(expected),
        time * expected,
        time * (1.0 - shortest(times, 1.0 - high)).max(expected),
        time,
    )
}

/// The share of the total time that the shortest `part` of the exits takes. Times within a bucket count as equal.
fn shortest(times: &HandlingTime, part: f64) -> f64 {
    let whole: f64 = times.buckets().map(|(ns, count)| ns as f64 * count as f64).sum();
    if part <= 0.0 || part >= 1.0 || whole <= 0.0 {
        return part;
    }
    let samples: f64 = times.buckets().map(|(_, count)| count as f64).sum();
    let (mut left, mut sum) = (part * samples, 0.0);
    for (ns, count) in times.buckets() {
        let taken = left.min(count as f64);
        sum += taken * ns as f64;
        left -= taken;
    }
    // The shortest exits are not longer than the mean, so their share of time is at most `part`.
    (sum / whole).min(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_of_the_shortest_and_the_most_of_the_longest() {
        let mut times = HandlingTime::new();
        [1000, 1000, 1000, 7000].into_iter().for_each(|ns| times.add(ns));
        let gone = Range { low: 1.0, expected: 1.0, high: 1.0 };
        let time = time_of_part(&times, 10_000, gone, 4);
        assert!((time.low - 1000.0).abs() < 50.0, "{time:?}");
        assert_eq!(time.expected, 2500.0);
        assert!((time.high - 7000.0).abs() < 250.0, "{time:?}");
        assert_eq!(time_of_part(&times, 10_000, Range::exactly(4.0), 4), Range::exactly(10_000.0));
        assert_eq!(time_of_part(&times, 10_000, Range::NONE, 4), Range::NONE);
    }

    #[test]
    fn without_times_there_is_none() {
        let times = HandlingTime::new();
        assert_eq!(time_of_part(&times, 0, Range::exactly(2.0), 4), Range::NONE);
        assert_eq!(time_of_part(&times, 5, Range::exactly(2.0), 0), Range::NONE);
    }
}
