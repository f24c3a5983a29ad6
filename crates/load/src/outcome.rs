//! The result of a load.

use serde::{Deserialize, Serialize};

/// Format version of [`LoadResult`].
pub const LOAD_FORMAT: u32 = 1;

/// The protocol of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP requests to a server, each answered.
    Http,
    /// MQTT messages through a broker, each delivered.
    Mqtt,
}

/// The result of a load. "Request" and "answer" also mean an MQTT message and its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_FORMAT`].
    pub format: u32,
    /// The protocol.
    pub protocol: Protocol,
    /// The number of requested connections.
    pub connections: u32,
    /// The number of connections that could not be opened, or were closed before the end.
    pub failed_connections: u32,
    /// The time it took to open them, in seconds.
    pub opening: f64,
    /// The time during which requests were due, in seconds.
    pub seconds: f64,
    /// Requests due per second.
    pub requested_rate: f64,
    /// Requests that became due.
    pub due: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Good answers, including those after the end.
    pub answered: u64,
    /// Good answers while requests were due.
    pub answered_in_time: u64,
    /// Bytes of the good answers while requests were due: whole HTTP answers, or payloads of messages.
    pub bytes: u64,
    /// Error answers: HTTP statuses other than 2xx and 3xx.
    pub refused: u64,
    /// Requests that were not answered, including those that could not be sent.
    pub lost: u64,
    /// Time from when a request was due to its good answer; `None` if there was none.
    pub latency: Option<Latency>,
}

/// Latencies, in seconds. Quantiles have a relative error of at most 1/32.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p99_9: f64,
    /// Maximum.
    pub max: f64,
}

/// The reason why a text is not a [`LoadResult`].
#[derive(Debug, thiserror::Error)]
pub enum NoOutcome {
    /// It is not JSON, or has other fields.
    #[error("not the form of a load's outcome: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It was written by a later version.
    #[error("a load's outcome has format {0}; this version reads formats up to {LOAD_FORMAT}")]
    Newer(u64),
    /// A number in it is not valid.
    #[error("{0} is not a number above 0")]
    Senseless(&'static str),
}

impl LoadResult {
    /// Parses the output of `exitless load http --json` and `exitless load mqtt --json`.
    ///
    /// # Errors
    /// If the text is not such an output, or if a later version wrote it.
    pub fn read(text: &str) -> Result<Self, NoOutcome> {
        let json: serde_json::Value = serde_json::from_str(text)?;
        match json.get("format").and_then(serde_json::Value::as_u64) {
            Some(found) if found > u64::from(LOAD_FORMAT) => return Err(NoOutcome::Newer(found)),
            _ => {}
        }
        let outcome: Self = serde_json::from_value(json)?;
        for (value, name) in [(outcome.seconds, "seconds"), (outcome.requested_rate, "requested_rate")] {
            if !(value.is_finite() && value > 0.0) {
                return Err(NoOutcome::Senseless(name));
            }
        }
        Ok(outcome)
    }

    /// Good answers per second while requests were due.
    pub fn attained_rate(&self) -> f64 {
        self.answered_in_time as f64 / self.seconds
    }

    /// Good answers while requests were due, in percent of the requests due.
    pub fn attained_percent(&self) -> f64 {
        if self.due == 0 { 0.0 } else { 100.0 * self.answered_in_time as f64 / self.due as f64 }
    }

    /// Bytes of good answers per second while requests were due.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// All failures: refused and lost requests, and failed connections.
    pub fn failures(&self) -> u64 {
        self.refused.saturating_add(self.lost).saturating_add(self.failed_connections.into())
    }
}

impl Latency {
    /// Latencies by metric name.
    pub fn by_name(&self) -> [(&'static str, f64); 6] {
        [
            ("mean", self.mean),
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("max", self.max),
        ]
    }
}
