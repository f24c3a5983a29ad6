//! Rates between two samples of the whole tree.

use super::client::Sample;
use serde::Serialize;
use serde_json::Value as Json;

/// Rates between two samples of the whole tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// The time between the samples, seconds.
    pub seconds: f64,
    /// The rates of each worker.
    pub workers: Vec<WorkerRates>,
    /// The rates of each device.
    pub devices: Vec<DeviceRates>,
}

/// The rates of a worker, `None` where the first sample does not have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerRates {
    /// `w.0`.
    pub worker: String,
    /// Host CPUs that it may run on.
    pub cpu: String,
    /// Queues that it serves.
    pub queues: u64,
    /// Share of the time on requests, percent.
    pub load_percent: Option<f64>,
    /// Share of the time awake, percent.
    pub awake_percent: Option<f64>,
    /// Times a second that it slept.
    pub sleeps_per_second: Option<f64>,
    /// Times a second that it napped.
    pub naps_per_second: Option<f64>,
}

/// The rates of a device, `None` where the first sample does not have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRates {
    /// `d.0`.
    pub device: String,
    /// Its name in the configuration.
    pub name: String,
    /// The VM that is connected; empty for none.
    pub vm: String,
    /// Its state: `waiting`, `connected`, `removing`.
    pub state: String,
    /// The workers that serve it.
    pub workers: Vec<String>,
    /// Requests a second.
    pub requests_per_second: Option<f64>,
    /// Bytes a second.
    pub bytes_per_second: Option<f64>,
    /// Kicks a second.
    pub kicks_per_second: Option<f64>,
    /// Calls a second.
    pub calls_per_second: Option<f64>,
    /// Requests in flight.
    pub in_flight: u64,
}

impl Rates {
    /// Computes the rates between two samples of the whole tree.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
        let ticks = now.value["ticks_per_second"].as_f64().unwrap_or(0.0) * seconds;
        let of = |collection: &str| {
            let mut names: Vec<&String> =
                now.value[collection].as_object().map_or_else(Vec::new, |all| all.keys().collect());
            names.sort_by_key(|name| number(name));
            names
        };
        let between = |collection: &'static str, name: &str| Pair {
            before: &before.value[collection][name],
            now: &now.value[collection][name],
            seconds,
        };
        let workers = of("workers").into_iter().map(|name| {
            let pair = between("workers", name);
            let share = |counter: &str| {
                pair.change(counter).filter(|_| ticks > 0.0).map(|change| (change * 100.0 / ticks).min(100.0))
            };
            WorkerRates {
                worker: name.clone(),
                cpu: text(&pair.now["cpu"]),
                queues: pair.now["queues"].as_array().map_or(0, |queues| queues.len() as u64),
                load_percent: share("useful_ticks"),
                awake_percent: share("awake_ticks"),
                sleeps_per_second: pair.rate("sleeps"),
                naps_per_second: pair.rate("naps"),
            }
        });
        let devices = of("devices").into_iter().map(|name| {
            let pair = between("devices", name);
            let workers = pair.now["worker"].as_array().into_iter().flatten();
            DeviceRates {
                device: name.clone(),
                name: text(&pair.now["name"]),
                vm: text(&pair.now["vm"]),
                state: text(&pair.now["state"]),
                workers: workers.map(text).collect(),
                requests_per_second: pair.rate("requests"),
                bytes_per_second: pair.rate("bytes"),
                kicks_per_second: pair.rate("kicks"),
                calls_per_second: pair.rate("calls"),
                in_flight: pair.now["statistics"]["in_flight"].as_u64().unwrap_or(0),
            }
        });
        Self { seconds, workers: workers.collect(), devices: devices.collect() }
    }
}

/// One object in both samples.
struct Pair<'a> {
    before: &'a Json,
    now: &'a Json,
    seconds: f64,
}

impl Pair<'_> {
    fn change(&self, counter: &str) -> Option<f64> {
        let of = |object: &Json| object["statistics"][counter].as_u64();
        Some(of(self.now)?.checked_sub(of(self.before)?)? as f64)
    }

    fn rate(&self, counter: &str) -> Option<f64> {
        self.change(counter).filter(|_| self.seconds > 0.0).map(|change| change / self.seconds)
    }
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The number in `w.12`, by which names are sorted.
fn number(name: &str) -> u64 {
    name.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(time_ns: u64, useful: u64, requests: u64) -> Sample {
        let worker = |useful: u64| {
            json!({
                "cpu": "2", "queues": ["vq.0.0"],
                "statistics": { "useful_ticks": useful, "awake_ticks": 2 * useful, "sleeps": 0, "naps": useful / 1000 },
            })
        };
        let value = json!({
            "ticks_per_second": 1_000_000,
            "workers": { "w.10": worker(0), "w.2": worker(useful), "create": null },
            "devices": { "d.0": {
                "name": "web", "vm": "guest", "state": "connected", "worker": ["w.2"],
                "statistics": { "requests": requests, "bytes": 4096 * requests, "in_flight": 3 },
            } },
        });
        Sample { time_ns, value }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let rates = Rates::between(&sample(0, 1000, 100), &sample(2_000_000_000, 501_000, 5100));
        let [two, ten, _] = &rates.workers[..] else { panic!("{:?}", rates.workers) };
        assert_eq!((two.worker.as_str(), ten.worker.as_str()), ("w.2", "w.10"));
        assert_eq!((two.load_percent, two.awake_percent), (Some(25.0), Some(50.0)));
        assert_eq!((two.naps_per_second, two.queues), (Some(250.0), 1));
        let device = &rates.devices[0];
        assert_eq!((device.requests_per_second, device.bytes_per_second), (Some(2500.0), Some(10_240_000.0)));
        assert_eq!((device.kicks_per_second, device.in_flight), (None, 3));
    }

    #[test]
    fn what_was_not_there_before_has_no_rates() {
        let nothing = Sample { time_ns: 0, value: json!({}) };
        let rates = Rates::between(&nothing, &sample(1, 1, 1));
        assert!(rates.devices[0].requests_per_second.is_none() && rates.workers[0].load_percent.is_none());
        assert_eq!(Rates::between(&sample(1, 1, 1), &nothing).devices, []);
    }
}
