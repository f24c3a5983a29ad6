//! Counters of a running load.

use std::time::{Duration, Instant};

use exits::HandlingTime;

use super::{LOAD_FORMAT, Latency, LoadResult, Protocol};

/// Counts of one thread, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) failed_connections: u32,
    pub(super) due: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) answered_in_time: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
    pub(super) opening: Duration,
    latency: HandlingTime,
}

impl Tally {
    /// Counts a good answer to a request that was due at `due`; `end` is when the last request is due.
    pub(super) fn answer(&mut self, due: Instant, now: Instant, end: Instant, bytes: u64) {
        self.answered += 1;
        if now <= end {
            self.answered_in_time += 1;
            self.bytes += bytes;
        }
        let latency = now.saturating_duration_since(due).as_nanos();
        self.latency.add(u64::try_from(latency).unwrap_or(u64::MAX));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.failed_connections = self.failed_connections.saturating_add(other.failed_connections);
        self.due += other.due;
        self.sent += other.sent;
        self.answered += other.answered;
        self.answered_in_time += other.answered_in_time;
        self.bytes += other.bytes;
        self.refused += other.refused;
        self.opening = self.opening.max(other.opening);
        self.latency.merge(&other.latency);
    }

    pub(super) fn outcome(
        &self,
        protocol: Protocol,
        connections: u32,
        rate: f64,
        duration: Duration,
    ) -> LoadResult {
        LoadResult {
            format: LOAD_FORMAT,
            protocol,
            connections,
            failed_connections: self.failed_connections,
            opening: self.opening.as_secs_f64(),
            seconds: duration.as_secs_f64(),
            requested_rate: rate,
            due: self.due,
            sent: self.sent,
            answered: self.answered,
            answered_in_time: self.answered_in_time,
            bytes: self.bytes,
            refused: self.refused,
            lost: self.due.saturating_sub(self.answered).saturating_sub(self.refused),
            latency: self.latency(),
        }
    }

    fn latency(&self) -> Option<Latency> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let quantile = |share| self.latency.quantile_ns(share).map(seconds);
        Some(Latency {
            mean: self.latency.mean_ns()? / 1e9,
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
            p99_9: quantile(0.999)?,
            max: self.latency.max_ns().map(seconds)?,
        })
    }
}
