//! `exitless stat --json` and `exitless report --json`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, Gathered, LENGTH_US, typed, version};

#[derive(Deserialize)]
struct Document {
    files: Vec<File>,
    span: Option<Span>,
    totals: Totals,
    by: Vec<String>,
    rows: Vec<Figures>,
    other: Option<Figures>,
}

#[derive(Deserialize)]
struct File {
    origin: Origin,
}

#[derive(Deserialize)]
struct Origin {
    format: String,
    host: Option<String>,
    kernel: Option<String>,
}

#[derive(Deserialize)]
struct Span {
    first_ns: i64,
    last_ns: i64,
}

#[derive(Deserialize)]
struct Totals {
    observed_ns: i64,
    exits: i64,
    samples: i64,
    time_ns: i64,
    vms: i64,
    vcpus: i64,
    lost_events: i64,
}

#[derive(Deserialize)]
struct Figures {
    vm: Option<i64>,
    vm_name: Option<String>,
    vcpu: Option<i64>,
    isa: Option<String>,
    reason: Option<String>,
    reason_code: Option<i64>,
    exits: Option<i64>,
    samples: i64,
    time_ns: i64,
    min_ns: Option<i64>,
    max_ns: Option<i64>,
    mean_ns: Option<f64>,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    p999_ns: Option<i64>,
}

/// Groupings in which every exit is counted in exactly one row.
const GROUPINGS: &[&str] = &["vm", "vcpu", "reason"];
/// The kernel's host name if none was ever set.
const UNNAMED: &str = "(none)";

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let version = version(value)?;
    let document: Document = typed(value)?;
    if let Some(other) = document.by.iter().find(|by| !GROUPINGS.contains(&by.as_str())) {
        let why = format!("rows by {other} are single accesses, not exits; use --by vm,reason");
        return Err(Fault::new("by", why));
    }
    let origins = || document.files.iter().map(|file| &file.origin);
    let mut hosts = origins().filter_map(|origin| origin.host.clone()).filter(|host| host != UNNAMED);
    let host = hosts.next();
    if let (Some(one), Some(other)) = (&host, hosts.find(|other| Some(other) != host.as_ref())) {
        return Err(Fault::new(
            "files",
            format!("they are of {one} and {other}; give one document for each host"),
        ));
    }
    let kernel = origins().find_map(|origin| origin.kernel.as_deref());
    let (start, end) = document.span.as_ref().map_or((0, 0), |span| (span.first_ns, span.last_ns));
    if start < 0 || end < start {
        return Err(Fault::new("span", format!("it goes from {start} to {end}")));
    }
    // An interval without exits has no span, but a length.
    let length = (end - start).max(document.totals.observed_ns) / 1000;
    let clock_ns = document.span.as_ref().map(|span| span.last_ns);
    let mut gathered = Gathered { host, version, clock_ns, ..Gathered::default() };

    let totals = &document.totals;
    gathered.row(
        "intervals",
        json!({
            LENGTH_US: length,
            "kernel": kernel,
            "format": origins().next().map_or("unknown", |origin| &origin.format),
            "observed_ns": totals.observed_ns,
            "exits": totals.exits,
            "samples": totals.samples,
            "handling_ns": totals.time_ns,
            "vms": totals.vms,
            "vcpus": totals.vcpus,
            "lost_events": totals.lost_events,
        }),
    )?;
    for row in document.rows.iter().chain(&document.other) {
        gathered.row(
            "exits",
            json!({
                LENGTH_US: length,
                "kernel": kernel,
                "vm_name": row.vm_name,
                "vm_pid": row.vm,
                "vcpu": row.vcpu,
                "isa": row.isa,
                "reason": row.reason,
                "reason_code": row.reason_code,
                "exits": row.exits.unwrap_or(row.samples),
                "samples": row.samples,
                "handling_ns": row.time_ns,
                "min_ns": row.min_ns,
                "max_ns": row.max_ns,
                "mean_ns": row.mean_ns,
                "p50_ns": row.p50_ns,
                "p99_ns": row.p99_ns,
                "p999_ns": row.p999_ns,
            }),
        )?;
    }
    Ok(gathered)
}
