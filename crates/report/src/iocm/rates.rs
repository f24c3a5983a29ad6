//! The tables of `exitless iocm watch`.

use iocm::control::rates::{QueueRates, Rates};
use study::Unit;

use crate::format::{NONE, count, per_second, share_of};
use crate::study::figures::Measure;
use crate::terminal::columns::{Column, drawn};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The work of I/O workers, devices and queues between two readings. Queues that no worker serves are left out.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(rates: &Rates, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = drawn(workers(rates), width, false, colour);
    text.push('\n');
    if rates.devices.is_empty() {
        text.push_str("No device.\n");
    } else {
        text.push_str(&drawn(devices(rates), width, false, colour));
    }
    for refused in &rates.refused {
        text.push_str(&wrapped(&format!("Not served: {}", printable(refused)), width, "", "  "));
    }
    let served: Vec<&QueueRates> = rates.queues.iter().filter(|one| one.state != "idle").collect();
    if !served.is_empty() {
        text.push('\n');
        text.push_str(&drawn(queues(&served), width, false, colour));
    }
    text
}

/// A rate of bytes with the prefix that fits it: a console has kilobytes a second.
pub(super) fn bytes_per_second(value: f64) -> String {
    Measure::of(Unit::BytesPerSecond, value).shown(value)
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), per_second)
}

fn name(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { printable(text) }
}

fn workers(rates: &Rates) -> Vec<Column> {
    let all = &rates.workers;
    vec![
        Column::whole_names("worker", all.iter().map(|one| printable(&one.worker)).collect()),
        Column::names("CPUs", all.iter().map(|one| name(&one.cpu)).collect()),
        Column::figures("queues", all.iter().map(|one| count(one.queues)).collect()),
        Column::figures("load", all.iter().map(|one| share_of(one.load_percent)).collect()),
        Column::figures("awake", all.iter().map(|one| share_of(one.awake_percent)).collect()),
        Column::figures("polled", all.iter().map(|one| share_of(one.polled_percent)).collect()).may_go(4),
        Column::figures("napped", all.iter().map(|one| share_of(one.napped_percent)).collect()).may_go(5),
        Column::figures("slept", all.iter().map(|one| share_of(one.slept_percent)).collect()).may_go(6),
        Column::figures("sleeps", all.iter().map(|one| rate(one.sleeps_per_second)).collect()).may_go(2),
        Column::figures("naps", all.iter().map(|one| rate(one.naps_per_second)).collect()).may_go(1),
    ]
}

fn devices(rates: &Rates) -> Vec<Column> {
    let all = &rates.devices;
    let bytes = |bytes: Option<f64>| bytes.map_or_else(|| NONE.to_owned(), bytes_per_second);
    vec![
        Column::whole_names("device", all.iter().map(|one| printable(&one.device)).collect()),
        Column::names("name", all.iter().map(|one| name(&one.name)).collect()),
        Column::names("VM", all.iter().map(|one| name(&one.vm)).collect()),
        Column::names("state", all.iter().map(|one| printable(&one.state)).collect()).may_go(4),
        Column::names("workers", all.iter().map(|one| name(&one.workers.join(", "))).collect()),
        Column::figures("requests", all.iter().map(|one| rate(one.requests_per_second)).collect()),
        Column::figures("data", all.iter().map(|one| bytes(one.bytes_per_second)).collect()),
        Column::figures("kicks", all.iter().map(|one| rate(one.kicks_per_second)).collect()).may_go(3),
        Column::figures("calls", all.iter().map(|one| rate(one.calls_per_second)).collect()).may_go(2),
        Column::figures("in flight", all.iter().map(|one| count(one.in_flight)).collect()).may_go(1),
    ]
}

fn queues(all: &[&QueueRates]) -> Vec<Column> {
    vec![
        Column::whole_names("queue", all.iter().map(|one| printable(&one.queue)).collect()),
        Column::names("worker", all.iter().map(|one| name(&one.worker)).collect()).may_go(3),
        Column::figures("requests", all.iter().map(|one| rate(one.requests_per_second)).collect()),
        Column::figures("worked", all.iter().map(|one| share_of(one.worked_percent)).collect()),
        Column::figures("polled", all.iter().map(|one| share_of(one.polled_percent)).collect()),
        Column::figures("napped", all.iter().map(|one| share_of(one.napped_percent)).collect()),
        Column::figures("slept", all.iter().map(|one| share_of(one.slept_percent)).collect()),
        Column::figures("kicks asked", all.iter().map(|one| rate(one.kicks_asked_per_second)).collect())
            .may_go(2),
        Column::figures("kicks", all.iter().map(|one| rate(one.kicks_per_second)).collect()),
        Column::figures("kicks saved", all.iter().map(|one| rate(one.kicks_saved_per_second)).collect())
            .may_go(4),
        Column::figures("calls", all.iter().map(|one| rate(one.calls_per_second)).collect()),
        Column::figures("calls saved", all.iter().map(|one| rate(one.calls_saved_per_second)).collect())
            .may_go(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use iocm::control::rates::{DeviceRates, QueueRates, WorkerRates};

    #[test]
    fn slow_devices_have_data_too() {
        let shown = [0.0, 40.0, 40_000.0, 1_500_000.0, 2.5e8].map(bytes_per_second);
        assert_eq!(shown, ["0 B/s", "40.0 B/s", "40.0 kB/s", "1.50 MB/s", "250 MB/s"]);
    }

    #[test]
    fn the_tables_fit_and_have_units() {
        let worker = WorkerRates {
            worker: "w.0".to_owned(),
            cpu: "2-3".to_owned(),
            queues: 4,
            load_percent: Some(25.0),
            awake_percent: None,
            polled_percent: Some(30.0),
            napped_percent: Some(5.0),
            slept_percent: Some(40.0),
            sleeps_per_second: Some(10.0),
            naps_per_second: Some(2000.0),
        };
        let device = DeviceRates {
            device: "d.0".to_owned(),
            name: "a\u{1b}[2Jdisk of a very long name that has to give way".to_owned(),
            vm: String::new(),
            state: "connected".to_owned(),
            workers: vec!["w.0".to_owned(), "w.1".to_owned()],
            requests_per_second: Some(5000.0),
            bytes_per_second: Some(20_480_000.0),
            kicks_per_second: Some(1.5),
            calls_per_second: None,
            in_flight: 3,
        };
        let queue = QueueRates {
            queue: "vq.0.0".to_owned(),
            device: "d.0".to_owned(),
            state: "served".to_owned(),
            worker: "w.0".to_owned(),
            requests_per_second: Some(5000.0),
            worked_percent: Some(12.0),
            polled_percent: Some(34.5),
            napped_percent: Some(0.0),
            slept_percent: Some(53.5),
            kicks_asked_per_second: Some(900.0),
            kicks_per_second: Some(800.0),
            kicks_saved_per_second: Some(4200.0),
            calls_per_second: Some(700.0),
            calls_saved_per_second: None,
        };
        let idle = QueueRates { queue: "vq.0.1".to_owned(), state: "idle".to_owned(), ..queue.clone() };
        let rates = Rates {
            seconds: 1.0,
            workers: vec![worker],
            devices: vec![device],
            refused: vec![format!("db: \u{1b}{}", "its file is gone; ".repeat(9))],
            queues: vec![queue, idle],
        };
        let text = terminal(&rates, 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("20.5 MB/s") && text.contains("w.0, w.1") && text.contains("25"), "{text}");
        assert!(text.contains("Not served: db: ") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("vq.0.0") && text.contains("34.5") && !text.contains("vq.0.1"), "{text}");
        let wide = terminal(&rates, 200, false);
        assert!(
            wide.contains("kicks asked") && wide.contains("calls saved") && wide.contains("slept"),
            "{wide}"
        );
        let none = Rates { devices: Vec::new(), ..rates };
        assert!(terminal(&none, 80, false).contains("No device"));
    }
}
