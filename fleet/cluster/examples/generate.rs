//! Generates a data set of many hosts as it is after compaction: one file per table, host and day.
//!
//! ```text
//! cargo run --release -p exitless-fleet-cluster --example generate -- STORE HOSTS DAYS MINUTES
//! ```
//!
//! Each host counts exits of six reasons, once every MINUTES minutes.

use chrono::{TimeDelta, TimeZone, Utc};
use exitless_fleet::document::Rows;
use exitless_fleet::store::Store;
use exitless_fleet::write;
use serde_json::json;

const REASONS: [(&str, i64); 6] = [
    ("MSR_WRITE", 900),
    ("EXTERNAL_INTERRUPT", 400),
    ("IO_INSTRUCTION", 120),
    ("HLT", 300),
    ("EPT_MISCONFIG", 40),
    ("PAUSE_INSTRUCTION", 15),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, hosts, days, minutes] = &arguments[..] else { anyhow::bail!("STORE HOSTS DAYS MINUTES") };
    let (hosts, days, minutes): (i64, i64, i64) = (hosts.parse()?, days.parse()?, minutes.parse()?);
    let store = Store::open(store, true)?;
    let mut work = Vec::new();
    let together = 8;
    for part in 0..together {
        let store = store.clone();
        work.push(tokio::spawn(async move {
            for host in (part..hosts).step_by(together as usize) {
                for day in 0..days {
                    write::rows(&store, &rows(host, day, minutes)).await?;
                }
            }
            anyhow::Ok(())
        }));
    }
    for one in work {
        one.await??;
    }
    Ok(())
}

fn rows(host: i64, day: i64, minutes: i64) -> Rows {
    let mut rows = Rows::new();
    let name = format!("host-{host:04}");
    let begin = Utc.timestamp_opt(1_772_323_200, 0).unwrap() + TimeDelta::days(day);
    let kernel = if day < 15 || host % 3 == 0 { "6.12.0" } else { "6.18.0" };
    let document = format!("{host:08x}{day:08x}");
    let mut put = |table: &'static str, time: i64, row: serde_json::Value| {
        let mut all = json!({
            "host_name": name, "time": time, "source": "stat", "document": document, "tool_version": "0.2.0", "kernel": kernel,
        });
        let (Some(all), Some(row)) = (all.as_object_mut(), row.as_object()) else { return };
        all.extend(row.clone());
        rows.entry(table).or_default().push(std::mem::take(all));
    };
    put(
        "hosts",
        begin.timestamp_micros(),
        json!({
            "outcome": "ready", "fail": host % 3, "warn": 2, "pass": 40, "skip": 3, "isa": "vmx", "module": "kvm_intel",
            "mechanism": "APICv", "capable": true, "enabled": host % 5 != 0, "online_cpus": 64,
        }),
    );
    for number in 0..24 * 60 / minutes {
        let end = (begin + TimeDelta::minutes(number * minutes) + TimeDelta::seconds(10)).timestamp_micros();
        let start = end - 10_000_000;
        let (mut all, mut ns) = (0, 0);
        for (place, (reason, usual)) in REASONS.into_iter().enumerate() {
            // Varies, but is the same in each run.
            let noise = (host * 7919 + day * 104_729 + number * 1_299_709 + place as i64 * 15_485_863) % 97;
            let exits = usual * (50 + noise);
            let handling = exits * (1500 + noise * 10);
            (all, ns) = (all + exits, ns + handling);
            put(
                "exits",
                end,
                json!({
                    "interval_start": start, "interval_end": end, "vm_name": format!("vm-{}", place % 2), "vm_pid": 1000 + host, "isa": "vmx",
                    "reason": reason, "exits": exits, "samples": exits, "handling_ns": handling, "min_ns": 700, "max_ns": 90_000,
                    "mean_ns": handling as f64 / exits as f64, "p50_ns": 1400, "p99_ns": 9000, "p999_ns": 40_000,
                }),
            );
        }
        put(
            "intervals",
            end,
            json!({
                "interval_start": start, "interval_end": end, "format": "live", "observed_ns": 10_000_000_000_i64, "exits": all,
                "samples": all, "handling_ns": ns, "vms": 2, "vcpus": 4, "lost_events": 0,
            }),
        );
    }
    rows
}
