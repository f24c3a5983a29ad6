//! The I/O workers and devices of a daemon of `exitless iocm`, read from its control tree.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::totals::shortened;

/// The maximum number of CPUs, and of devices, with series of their own.
const MOST: usize = 1024;
/// The label of workers that may run on several CPUs, and of work whose CPU is not known.
const ANY: &str = "any";

/// The counters of a daemon: those of its devices, and those of its workers by CPU.
///
/// `iocm monitor` creates and removes workers as the load changes, and their numbers are not used again: if each had series
/// of its own, Prometheus would get new ones without end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IoWorkers {
    pub(crate) cpus: BTreeMap<String, Cpu>,
    pub(crate) devices: Vec<Device>,
    /// The number of devices above the limit.
    pub(crate) other_devices: usize,
    /// `None` before the first answer.
    last: Option<Answer>,
    /// The last counts of workers that are gone but not yet in the daemon's sums: it reads the sums first, and may remove a
    /// worker before it reads the workers.
    awaited: Counts,
}

/// The workers on one CPU, present and former ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cpu {
    /// Since the first answer.
    pub(crate) counts: Counts,
    /// The queues of the present workers.
    pub(crate) queues: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// The time spent on requests.
    pub(crate) busy_seconds: f64,
    /// The time awake.
    pub(crate) awake_seconds: f64,
    pub(crate) sleeps: f64,
}

/// The part of an answer that is about workers.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answer {
    /// By their names in the control tree, for example `w.0`.
    workers: BTreeMap<String, Worker>,
    /// The sums of the workers that were removed.
    removed: Counts,
}

#[derive(Debug, Clone, PartialEq)]
struct Worker {
    cpu: String,
    counts: Counts,
    queues: f64,
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
    /// Adds what was done since the last answer. An answer has the daemon's workers and devices, by their paths in
    /// its control tree; missing values count as zero.
    pub fn add(&mut self, tree: &Json) {
        self.add_workers(Answer::of_tree(tree));
        // In the order of their numbers: a new device does not take the place of an earlier one.
        let mut devices: Vec<_> = tree["devices"].as_object().into_iter().flatten().collect();
        devices.sort_by_key(|(name, _)| (name.len(), *name));
        self.other_devices = devices.len().saturating_sub(MOST);
        self.devices = devices.into_iter().take(MOST).map(|(name, one)| Device::of_tree(name, one)).collect();
    }

    fn add_workers(&mut self, now: Answer) {
        let before = match self.last.take() {
            // Counters begin at zero with the exporter. If they began with what the present workers have done, they would be
            // lower after a restart of the exporter, and Prometheus would count all of it as new.
            None => now.clone(),
            Some(last) if now.is_of_another_daemon(&last) => {
                self.awaited = Counts::default();
                Answer::default()
            }
            Some(last) => last,
        };
        self.cpus.values_mut().for_each(|cpu| cpu.queues = 0.0);
        for (name, worker) in &now.workers {
            let earlier = before.workers.get(name).map_or_else(Counts::default, |worker| worker.counts);
            let cpu = self.cpu(&worker.cpu);
            cpu.counts = cpu.counts.plus(worker.counts.since(earlier));
            cpu.queues += worker.queues;
        }
        // Workers that are gone also did something after the last answer: the daemon's sums have it.
        let gone = before.workers.iter().filter(|(name, _)| !now.workers.contains_key(*name));
        let counted = gone.fold(self.awaited, |sum, (_, worker)| sum.plus(worker.counts));
        let removed = now.removed.since(before.removed);
        let unseen = removed.since(counted);
        self.awaited = counted.since(removed);
        if unseen != Counts::default() {
            let any = self.cpu(ANY);
            any.counts = any.counts.plus(unseen);
        }
        self.last = Some(now);
    }

    fn cpu(&mut self, cpu: &str) -> &mut Cpu {
        let has_room = self.cpus.len() < MOST || self.cpus.contains_key(cpu);
        let cpu = if has_room { cpu } else { ANY };
        self.cpus.entry(cpu.to_owned()).or_default()
    }
}

impl Counts {
    fn each(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            busy_seconds: of(self.busy_seconds, other.busy_seconds),
            awake_seconds: of(self.awake_seconds, other.awake_seconds),
            sleeps: of(self.sleeps, other.sleeps),
        }
    }

    fn plus(self, more: Self) -> Self {
        self.each(more, |one, more| one + more)
    }

    /// The increase since earlier ones; 0 where they decreased.
    fn since(self, earlier: Self) -> Self {
        self.each(earlier, |now, earlier| (now - earlier).max(0.0))
    }

    /// Tests whether the counting began anew. The time awake may decrease by a little: it is read before the worker has
    /// written the moment at which it fell asleep.
    fn began_anew(self, before: Self) -> bool {
        self.busy_seconds < before.busy_seconds || self.sleeps < before.sleeps
    }
}

impl Answer {
    fn of_tree(tree: &Json) -> Self {
        let ticks = number(&tree["ticks_per_second"]);
        let seconds = |value: &Json| if ticks > 0.0 { number(value) / ticks } else { 0.0 };
        let counts = |of: &Json| Counts {
            busy_seconds: seconds(&of["useful_ticks"]),
            awake_seconds: seconds(&of["awake_ticks"]),
            sleeps: number(&of["sleeps"]),
        };
        let workers = tree["workers"].as_object().into_iter().flatten().map(|(name, worker)| {
            let cpu = worker["cpu"].as_str().and_then(|cpus| cpus.parse::<u32>().ok());
            let cpu = cpu.map_or_else(|| ANY.to_owned(), |cpu| cpu.to_string());
            let queues = worker["queues"].as_array().map_or(0.0, |queues| queues.len() as f64);
            (name.clone(), Worker { cpu, counts: counts(&worker["statistics"]), queues })
        });
        Self { workers: workers.collect(), removed: counts(&tree["removed_workers"]) }
    }

    /// Tests whether the daemon has been restarted since. Its process ID does not show that: in a container it is always the
    /// same.
    fn is_of_another_daemon(&self, last: &Self) -> bool {
        let began_anew = |(name, worker): (&String, &Worker)| {
            last.workers.get(name).is_some_and(|before| worker.counts.began_anew(before.counts))
        };
        self.removed.began_anew(last.removed) || self.workers.iter().any(began_anew)
    }
}

impl Device {
    fn of_tree(name: &str, device: &Json) -> Self {
        let counter = |name: &str| number(&device["statistics"][name]);
        Self {
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
    }
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or(0.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Host, text};
    use serde_json::json;

    /// An answer with these workers, each with the CPUs and the seconds on requests, and the seconds of removed ones.
    fn tree(workers: &[(usize, &str, f64)], removed: f64) -> Json {
        let statistics = |seconds: f64| {
            let ticks = seconds * 1000.0;
            json!({ "useful_ticks": ticks, "awake_ticks": 2.0 * ticks, "sleeps": seconds })
        };
        let worker = |&(number, cpu, seconds): &(usize, &str, f64)| {
            let worker = json!({ "cpu": cpu, "queues": ["vq.0.0"], "statistics": statistics(seconds) });
            (format!("w.{number}"), worker)
        };
        let workers: serde_json::Map<String, Json> = workers.iter().map(worker).collect();
        json!({ "ticks_per_second": 1000, "workers": workers, "removed_workers": statistics(removed) })
    }

    /// The seconds on requests by CPU.
    fn busy(of: &IoWorkers) -> Vec<(&str, f64)> {
        of.cpus.iter().map(|(cpu, one)| (cpu.as_str(), one.counts.busy_seconds)).collect()
    }

    #[test]
    fn ticks_become_seconds_and_what_makes_no_sense_is_zero() {
        let tree = json!({
            "ticks_per_second": 2_000_000_000_u64,
            "workers": { "w.0": {
                "cpu": "2",
                "queues": ["vq.0.0", "vq.1.0"],
                "statistics": { "useful_ticks": 1_000_000_000_u64, "awake_ticks": 3_000_000_000_u64, "sleeps": 7 },
            } },
            "devices": { "d.0": {
                "name": "disk", "vm": "web", "statistics": { "requests": 5, "bytes": -1, "errors": "many" },
            } },
        });
        let mut read = IoWorkers::default();
        read.add(&json!(null));
        read.add(&tree);
        let counts = Counts { busy_seconds: 0.5, awake_seconds: 1.5, sleeps: 7.0 };
        assert_eq!(read.cpus, BTreeMap::from([("2".to_owned(), Cpu { counts, queues: 2.0 })]));
        let device = &read.devices[0];
        assert_eq!((device.name.as_str(), device.vm.as_str(), device.requests), ("disk", "web", 5.0));
        assert_eq!((device.bytes, device.errors), (0.0, 0.0));
    }

    #[test]
    fn any_answer_of_a_daemon_is_bounded() {
        let many: serde_json::Map<String, Json> =
            (0..5000).map(|one| (format!("w.{one}"), json!({ "cpu": one.to_string() }))).collect();
        let mut read = IoWorkers::default();
        read.add(&json!({ "workers": many, "devices": { "d".repeat(9999): [] } }));
        // With that of the others.
        assert_eq!(read.cpus.len(), MOST + 1);
        assert_eq!(read.devices[0].device.len(), 128);
        for other in [json!(null), json!([1]), json!({ "workers": 3, "devices": "x" })] {
            let mut read = IoWorkers::default();
            read.add(&other);
            assert!(read.cpus.is_empty() && read.devices.is_empty());
        }
    }

    #[test]
    fn the_first_devices_keep_their_series() {
        let devices = |count: usize| {
            let devices: serde_json::Map<String, Json> =
                (0..count).map(|one| (format!("d.{one}"), json!({}))).collect();
            json!({ "devices": devices })
        };
        let mut read = IoWorkers::default();
        read.add(&devices(MOST));
        let first = read.devices.clone();
        read.add(&devices(MOST + 2));
        assert_eq!((read.devices, read.other_devices), (first, 2));
    }

    #[test]
    fn workers_that_come_and_go_add_to_the_series_of_their_cpus() {
        let mut read = IoWorkers::default();
        let mut after = |workers: &[(usize, &str, f64)], removed| {
            read.add(&tree(workers, removed));
            let said: Vec<String> =
                busy(&read).into_iter().map(|(cpu, seconds)| format!("{cpu}={seconds}")).collect();
            said.join(" ")
        };
        assert_eq!(
            after(&[(0, "3", 5.0), (1, "0-7", 9.0)], 4.0),
            "3=0 any=0",
            "what was before does not count"
        );
        assert_eq!(after(&[(0, "3", 6.0), (1, "0-7", 9.0)], 4.0), "3=1 any=0");
        assert_eq!(
            after(&[(1, "0-7", 9.0), (2, "3", 1.0)], 10.0),
            "3=2 any=0",
            "one took the place of another"
        );
        assert_eq!(after(&[(1, "4", 10.0), (2, "3", 1.0)], 10.0), "3=2 4=1 any=0", "it was moved");
        assert_eq!(after(&[(1, "4", 10.0)], 14.0), "3=2 4=1 any=3", "what was done after the last answer");
        assert_eq!(after(&[], 14.0), "3=2 4=1 any=3", "the sum was read before the worker was removed");
        assert_eq!(after(&[], 26.0), "3=2 4=1 any=5");
        assert_eq!(after(&[(0, "4", 1.0)], 0.0), "3=2 4=2 any=5", "another daemon");
        assert_eq!(after(&[(0, "4", 0.5)], 0.0), "3=2 4=2.5 any=5", "another one again");
    }

    #[test]
    fn the_number_of_series_does_not_grow_with_removed_workers() {
        let mut read = IoWorkers::default();
        let lines = (0..1000).map(|number| {
            read.add(&tree(&[(number, "3", 1.0)], number as f64));
            text(Host { io_workers: Some(read.clone()), ..Host::default() }).lines().count()
        });
        let lines: Vec<usize> = lines.collect();
        assert!(lines.iter().all(|count| *count == lines[0]), "{lines:?}");
        assert_eq!(busy(&read), [("3", 999.0)]);
    }

    #[test]
    fn a_time_that_is_read_while_a_worker_falls_asleep_does_not_decrease() {
        let mut read = IoWorkers::default();
        let mut awake = |ticks: u64| {
            let statistics = json!({ "useful_ticks": 1000, "awake_ticks": ticks, "sleeps": 1 });
            read.add(&json!({
                "ticks_per_second": 1000, "workers": { "w.0": { "cpu": "3", "statistics": statistics } },
            }));
            read.cpus["3"].counts.awake_seconds
        };
        assert_eq!([1000, 3000, 2999, 3999].map(&mut awake), [0.0, 2.0, 2.0, 3.0]);
    }
}
