//! What a load came to.

use serde::{Deserialize, Serialize};

/// Version of the form of [`Outcome`].
pub const LOAD_FORMAT: u32 = 1;

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Requests to a web server, each answered.
    Http,
    /// Messages through a broker, each delivered.
    Mqtt,
}

/// What a load came to. Requests and their answers, or messages and their deliveries, are called the same here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`LOAD_FORMAT`].
    pub format: u32,
    /// What was asked.
    pub protocol: Protocol,
    /// Connections that were to be opened.
    pub connections: u32,
    /// Of them, those that were not, or were closed before the end.
    pub failed_connections: u32,
    /// How long it took to open them, in seconds.
    pub opening: f64,
    /// How long requests were due, in seconds.
    pub seconds: f64,
    /// Requests due in a second.
    pub requested_rate: f64,
    /// Requests that became due.
    pub due: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Good answers, also late ones.
    pub answered: u64,
    /// Good answers while requests were due.
    pub answered_in_time: u64,
    /// Bytes of the good answers while requests were due: of whole HTTP answers, of the payload of messages.
    pub bytes: u64,
    /// Answers that say no: HTTP statuses other than 2xx and 3xx.
    pub refused: u64,
    /// Requests without an answer in the end, those that could not be sent included.
    pub lost: u64,
    /// From when a request was due to its good answer; `None` without one.
    pub latency: Option<Latency>,
}

/// Latencies, in seconds. Quantiles are exact to a 32nd.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 of 100 are at most this.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

/// A text is no [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum NoOutcome {
    /// It is no JSON, or of another form.
    #[error("not the form of a load's outcome: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It was written by a later version.
    #[error("a load's outcome of format {0}, and {LOAD_FORMAT} is the last that is known")]
    Newer(u64),
    /// A number in it makes no sense.
    #[error("{0} is not a number above 0")]
    Senseless(&'static str),
}

impl Outcome {
    /// Reads what `exitless load http --json` and its siblings printed.
    ///
    /// # Errors
    /// Where it is another text, or one that a later version wrote.
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

    /// The same, in hundredths of what was due.
    pub fn attained_percent(&self) -> f64 {
        if self.due == 0 { 0.0 } else { 100.0 * self.answered_in_time as f64 / self.due as f64 }
    }

    /// Bytes of good answers per second while requests were due.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// All that went wrong.
    pub fn failures(&self) -> u64 {
        self.refused.saturating_add(self.lost).saturating_add(self.failed_connections.into())
    }
}

impl Latency {
    /// By the names that metrics have.
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
