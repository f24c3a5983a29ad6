//! The I/O workers and devices of a daemon of `exitless iocm`, read from its control tree.

use serde_json::Value as Json;

use crate::totals::shortened;

/// The maximum number of workers, and of devices, with series of their own.
const MOST: usize = 1024;

/// The counters of a daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IoWorkers {
    pub(crate) workers: Vec<Worker>,
    pub(crate) devices: Vec<Device>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worker {
    /// The name in the control tree, for example `w.0`.
    pub(crate) name: String,
    /// The time spent on requests.
    pub(crate) busy_seconds: f64,
    /// The time awake.
    pub(crate) awake_seconds: f64,
    pub(crate) sleeps: f64,
    pub(crate) queues: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Device {
    /// The name in the control tree, for example `d.0`.
    pub(crate) device: String,
    /// Its name in the configuration.
    pub(crate) name: String,
    /// The connected VM; empty without one.
    pub(crate) vm: String,
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
    pub(crate) errors: f64,
    pub(crate) kicks: f64,
    pub(crate) calls: f64,
    pub(crate) in_flight: f64,
}

impl IoWorkers {
    /// The counters of a daemon's whole control tree. Missing values count as zero.
    #[must_use]
    pub fn of_tree(tree: &Json) -> Self {
        let ticks = number(&tree["ticks_per_second"]);
        let seconds = |value: &Json| if ticks > 0.0 { number(value) / ticks } else { 0.0 };
        let of = |collection: &str| tree[collection].as_object().into_iter().flatten().take(MOST);
        let workers = of("workers").map(|(name, worker)| Worker {
            name: shortened(name),
            busy_seconds: seconds(&worker["statistics"]["useful_ticks"]),
            awake_seconds: seconds(&worker["statistics"]["awake_ticks"]),
            sleeps: number(&worker["statistics"]["sleeps"]),
            queues: worker["queues"].as_array().map_or(0.0, |queues| queues.len() as f64),
        });
        let devices = of("devices").map(|(name, device)| {
            let counter = |name: &str| number(&device["statistics"][name]);
            Device {
                device: shortened(name),
                name: shortened(device["name"].as_str().unwrap_or_default()),
                vm: shortened(device["vm"].as_str().unwrap_or_default()),
                requests: counter("requests"),
                bytes: counter("bytes"),
                errors: counter("errors"),
                kicks: counter("kicks"),
                calls: counter("calls"),
                in_flight: counter("in_flight"),
            }
        });
        Self { workers: workers.collect(), devices: devices.collect() }
    }
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or(0.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ticks_become_seconds_and_what_makes_no_sense_is_zero() {
        let tree = json!({
            "ticks_per_second": 2_000_000_000_u64,
            "workers": { "w.0": {
                "queues": ["vq.0.0", "vq.1.0"],
                "statistics": { "useful_ticks": 1_000_000_000_u64, "awake_ticks": 3_000_000_000_u64, "sleeps": 7 },
            } },
            "devices": { "d.0": {
                "name": "disk", "vm": "web", "statistics": { "requests": 5, "bytes": -1, "errors": "many" },
            } },
        });
        let read = IoWorkers::of_tree(&tree);
        let worker = &read.workers[0];
        assert_eq!((worker.busy_seconds, worker.awake_seconds, worker.sleeps), (0.5, 1.5, 7.0));
        assert_eq!((worker.name.as_str(), worker.queues), ("w.0", 2.0));
        let device = &read.devices[0];
        assert_eq!((device.name.as_str(), device.vm.as_str(), device.requests), ("disk", "web", 5.0));
        assert_eq!((device.bytes, device.errors), (0.0, 0.0));
    }

    #[test]
    fn any_answer_of_a_daemon_is_bounded() {
        let many: serde_json::Map<String, Json> =
            (0..5000).map(|one| (format!("w.{one}"), json!(null))).collect();
        let read = IoWorkers::of_tree(&json!({ "workers": many, "devices": { "d".repeat(9999): [] } }));
        assert_eq!(read.workers.len(), MOST);
        assert_eq!(read.devices[0].device.len(), 128);
        for other in [json!(null), json!([1]), json!({ "workers": 3, "devices": "x" })] {
            assert_eq!(IoWorkers::of_tree(&other), IoWorkers::default());
        }
    }
}
