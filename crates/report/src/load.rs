//! The result of `exitless load`.

use load::{LoadResult, Protocol};

use crate::format::{per_second, share, time};

/// A line for each figure, none wider than 80 columns.
#[must_use]
pub fn terminal(outcome: &LoadResult) -> String {
    let (what, answers) = match outcome.protocol {
        Protocol::Http => ("requests", "answers"),
        Protocol::Mqtt => ("messages", "deliveries"),
    };
    let seconds = |value: f64| time(value * 1e9);
    let mut lines = vec![
        (
            "connections".to_owned(),
            format!("{}, open after {}", outcome.connections, seconds(outcome.opening)),
        ),
        ("failed connections".to_owned(), outcome.failed_connections.to_string()),
        (
            format!("{what} due"),
            format!(
                "{} in {}, {}",
                outcome.due,
                seconds(outcome.seconds),
                per_second(outcome.requested_rate)
            ),
        ),
        (
            format!("{answers} in time"),
            format!(
                "{}, {}, {} of those due",
                outcome.answered_in_time,
                per_second(outcome.attained_rate()),
                share(outcome.attained_percent())
            ),
        ),
        (format!("{answers} in all"), outcome.answered.to_string()),
        ("refused".to_owned(), outcome.refused.to_string()),
        ("lost".to_owned(), outcome.lost.to_string()),
    ];
    let latency = outcome.latency.as_ref().map_or_else(Vec::new, |latency| latency.by_name().to_vec());
    lines.extend(latency.into_iter().map(|(name, value)| (format!("latency, {name}"), seconds(value))));
    lines.into_iter().map(|(name, value)| format!("{name:<20} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use load::{LOAD_FORMAT, Latency};

    use super::*;

    #[test]
    fn every_figure_has_its_unit() {
        let latency = Latency { mean: 2e-3, p50: 1e-3, p90: 3e-3, p99: 9e-3, p99_9: 0.02, max: 1.5 };
        let outcome = LoadResult {
            format: LOAD_FORMAT,
            protocol: Protocol::Mqtt,
            connections: 100_001,
            failed_connections: 1,
            opening: 2.5,
            seconds: 10.0,
            requested_rate: 5000.0,
            due: 50_000,
            sent: 49_000,
            answered: 48_000,
            answered_in_time: 40_000,
            bytes: 2_560_000,
            refused: 0,
            lost: 2000,
            latency: Some(latency),
        };
        let text = terminal(&outcome);
        for line in ["failed connections   1", "deliveries in all    48000", "lost                 2000"] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        assert!(text.contains("latency, p99.9") && text.contains("20.0 ms"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!terminal(&LoadResult { latency: None, ..outcome }).contains("latency"));
    }
}
