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
    /// The devices of the daemon's file that are not served, each with the reason.
    pub refused: Vec<String>,
    /// The rates of each queue.
    pub queues: Vec<QueueRates>,
}

/// The rates of a worker; `None` if the first sample does not have it.
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
    /// Share of the time awake without requests, percent: looking for them, and handling completions.
    pub polled_percent: Option<f64>,
    /// Share of the time in naps, percent.
    pub napped_percent: Option<f64>,
    /// Share of the time asleep until an event, percent.
    pub slept_percent: Option<f64>,
    /// Times a second that it slept.
    pub sleeps_per_second: Option<f64>,
    /// Times a second that it napped.
    pub naps_per_second: Option<f64>,
}

/// The rates of a device; `None` if the first sample does not have it.
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

/// The rates of a queue; `None` if the first sample does not have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueRates {
    /// `vq.0.0`.
    pub queue: String,
    /// The device that it belongs to.
    pub device: String,
    /// Its state: `idle`, `served`, `broken`.
    pub state: String,
    /// The worker that serves it; empty for none.
    pub worker: String,
    /// Requests a second.
    pub requests_per_second: Option<f64>,
    /// Share of the time that its worker spent in turns that found requests, percent.
    pub worked_percent: Option<f64>,
    /// Share of the time that its worker spent on looking for its requests without a kick, percent.
    pub polled_percent: Option<f64>,
    /// Share of the time that its worker napped, percent.
    pub napped_percent: Option<f64>,
    /// Share of the time that it was left to its kicks, percent.
    pub slept_percent: Option<f64>,
    /// Times a second that the driver was asked for a kick.
    pub kicks_asked_per_second: Option<f64>,
    /// Kicks a second.
    pub kicks_per_second: Option<f64>,
    /// Requests a second that were found without a kick.
    pub kicks_saved_per_second: Option<f64>,
    /// Calls a second.
    pub calls_per_second: Option<f64>,
    /// Times a second that the driver wanted no call.
    pub calls_saved_per_second: Option<f64>,
}

impl Rates {
    /// Computes the rates between two samples of the whole tree.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
        let of = |collection: &str| {
            let mut names: Vec<&String> =
                now.value[collection].as_object().map_or_else(Vec::new, |all| all.keys().collect());
            names.sort_by_key(|name| numbers(name));
            names
        };
        let between = |collection: &'static str, name: &str| Pair {
            before: &before.value[collection][name],
            now: &now.value[collection][name],
            seconds,
            ticks_per_second: now.value["ticks_per_second"].as_f64().unwrap_or(0.0),
        };
        let workers = of("workers").into_iter().map(|name| {
            let pair = between("workers", name);
            WorkerRates {
                worker: name.clone(),
                cpu: text(&pair.now["cpu"]),
                queues: pair.now["queues"].as_array().map_or(0, |queues| queues.len() as u64),
                load_percent: pair.share("/statistics/useful_ticks"),
                awake_percent: pair.share("/statistics/awake_ticks"),
                polled_percent: pair.percent("/time/polled_ns"),
                napped_percent: pair.percent("/time/napped_ns"),
                slept_percent: pair.percent("/time/slept_ns"),
                sleeps_per_second: pair.rate("/statistics/sleeps"),
                naps_per_second: pair.rate("/statistics/naps"),
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
                requests_per_second: pair.rate("/statistics/requests"),
                bytes_per_second: pair.rate("/statistics/bytes"),
                kicks_per_second: pair.rate("/statistics/kicks"),
                calls_per_second: pair.rate("/statistics/calls"),
                in_flight: pair.now["statistics"]["in_flight"].as_u64().unwrap_or(0),
            }
        });
        let queues = of("queues").into_iter().map(|name| {
            let pair = between("queues", name);
            QueueRates {
                queue: name.clone(),
                device: text(&pair.now["device"]),
                state: text(&pair.now["state"]),
                worker: text(&pair.now["worker"]),
                requests_per_second: pair.rate("/requests"),
                worked_percent: pair.percent("/time/worked_ns"),
                polled_percent: pair.percent("/time/polled_ns"),
                napped_percent: pair.percent("/time/napped_ns"),
                slept_percent: pair.percent("/time/slept_ns"),
                kicks_asked_per_second: pair.rate("/kicks_asked"),
                kicks_per_second: pair.rate("/kicks"),
                kicks_saved_per_second: pair.rate("/kicks_saved"),
                calls_per_second: pair.rate("/calls"),
                calls_saved_per_second: pair.rate("/calls_saved"),
            }
        });
        let refused = now.value["refused"].as_array().into_iter().flatten().map(text).collect();
        let (workers, devices, queues) = (workers.collect(), devices.collect(), queues.collect());
        Self { seconds, workers, devices, refused, queues }
    }
}

/// One object in both samples.
struct Pair<'a> {
    before: &'a Json,
    now: &'a Json,
    seconds: f64,
    ticks_per_second: f64,
}

impl Pair<'_> {
    /// The change of a counter, given by its JSON pointer.
    fn change(&self, counter: &str) -> Option<f64> {
        let of = |object: &Json| object.pointer(counter)?.as_u64();
        Some(of(self.now)?.checked_sub(of(self.before)?)? as f64)
    }

    /// The share of the time, for a counter in ticks of the TSC.
    fn share(&self, counter: &str) -> Option<f64> {
        let ticks = self.ticks_per_second * self.seconds;
        self.change(counter).filter(|_| ticks > 0.0).map(|change| (change * 100.0 / ticks).min(100.0))
    }

    /// The share of the time, for a time in nanoseconds. It may seem to go back a little, because it is computed from
    /// several counters that are not read at once.
    fn percent(&self, time: &str) -> Option<f64> {
        let of = |object: &Json| object.pointer(time)?.as_u64();
        let change = of(self.now)?.saturating_sub(of(self.before)?) as f64;
        (self.seconds > 0.0).then(|| (change / self.seconds / 1e7).min(100.0))
    }

    fn rate(&self, counter: &str) -> Option<f64> {
        self.change(counter).filter(|_| self.seconds > 0.0).map(|change| change / self.seconds)
    }
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The numbers in `w.12` and `vq.0.3`, by which names are sorted; names without numbers come last.
fn numbers(name: &str) -> Vec<u64> {
    let (_, numbers) = name.split_once('.').unwrap_or_default();
    numbers.split('.').map(|number| number.parse().unwrap_or(u64::MAX)).collect()
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
            "refused": ["db: its file is gone"],
            "workers": { "w.10": worker(0), "w.2": worker(useful), "create": null },
            "devices": { "d.0": {
                "name": "web", "vm": "guest", "state": "connected", "worker": ["w.2"],
                "statistics": { "requests": requests, "bytes": 4096 * requests, "in_flight": 3 },
            } },
            "queues": { "vq.0.10": {}, "vq.0.9": {
                "device": "d.0", "state": "served", "worker": "w.2", "requests": requests, "kicks": requests / 10,
                "time": { "worked_ns": 1000 * useful, "polled_ns": 500_u64.saturating_sub(useful / 1000), "slept_ns": time_ns },
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
        assert_eq!(rates.refused, ["db: its file is gone"]);
        let device = &rates.devices[0];
        assert_eq!((device.requests_per_second, device.bytes_per_second), (Some(2500.0), Some(10_240_000.0)));
        assert_eq!((device.kicks_per_second, device.in_flight), (None, 3));
        let [nine, ten] = &rates.queues[..] else { panic!("{:?}", rates.queues) };
        assert_eq!((nine.queue.as_str(), ten.queue.as_str()), ("vq.0.9", "vq.0.10"));
        assert_eq!(
            (nine.worked_percent, nine.slept_percent, nine.napped_percent),
            (Some(25.0), Some(100.0), None)
        );
        assert_eq!(nine.polled_percent, Some(0.0), "a time that a reader found shorter has not lasted");
        assert_eq!((nine.requests_per_second, nine.kicks_per_second), (Some(2500.0), Some(250.0)));
    }

    #[test]
    fn what_was_not_there_before_has_no_rates() {
        let nothing = Sample { time_ns: 0, value: json!({}) };
        let rates = Rates::between(&nothing, &sample(1, 1, 1));
        assert!(rates.devices[0].requests_per_second.is_none() && rates.workers[0].load_percent.is_none());
        assert_eq!(Rates::between(&sample(1, 1, 1), &nothing).devices, []);
    }
}
