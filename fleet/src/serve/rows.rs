//! The rows of queries that the pages show.

use serde::Deserialize;

use crate::views::{past, sleep_reasons};

/// A host in the table of all hosts.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Host {
    pub(super) host: String,
    pub(super) seen: String,
    pub(super) outcome: Option<String>,
    pub(super) mechanism: Option<String>,
    pub(super) capable: Option<bool>,
    pub(super) enabled: Option<bool>,
    pub(super) kernel: Option<String>,
    pub(super) fail: Option<i64>,
    pub(super) warn: Option<i64>,
    pub(super) vms: i64,
    pub(super) inhibited: i64,
    pub(super) per_second: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
}

/// All hosts with an examination or exits. The exits are those of the last observed hour of each. The CPU time for them is
/// null if some of it is of exits without a reason, because that may be sleep.
pub(super) const HOSTS: &str = concat!(
    "SELECT all_hosts.host AS host, last AS seen, outcome, mechanism, capable, enabled, kernel, fail, warn, \
     coalesce(vms, 0) AS vms, coalesce(inhibited, 0) AS inhibited, \
     1e9 * exits / nullif(observed_ns, 0) AS per_second, 100.0 * busy_ns / nullif(observed_ns, 0) AS cpu_percent \
     FROM (SELECT host_name AS host, max(time) AS last FROM (SELECT host_name, time FROM ",
    past!("raw.hosts"),
    " UNION ALL SELECT host_name, time FROM ",
    past!("raw.intervals"),
    ") GROUP BY host_name) all_hosts \
     LEFT JOIN hosts ON hosts.host = all_hosts.host \
     LEFT JOIN (SELECT host AS of_vms, count(*) AS vms, \
       count(*) FILTER (WHERE state IN ('inhibited', 'partly')) AS inhibited FROM vms GROUP BY host) \
       ON of_vms = all_hosts.host \
     LEFT JOIN (SELECT host_name AS of_intervals, sum(exits) AS exits, sum(observed_ns) AS observed_ns FROM ",
    past!("raw.intervals"),
    " JOIN (SELECT host_name AS newest_host, max(interval_end) AS newest FROM ",
    past!("raw.intervals"),
    " GROUP BY host_name) \
       ON host_name = newest_host WHERE interval_end > newest - INTERVAL '1 hour' GROUP BY host_name) \
       ON of_intervals = all_hosts.host \
     LEFT JOIN (SELECT host_name AS of_exits, \
       CASE WHEN coalesce(sum(handling_ns) FILTER (WHERE reason IS NULL), 0) = 0 \
       THEN sum(handling_ns) FILTER (WHERE reason NOT IN ",
    sleep_reasons!(),
    ") END AS busy_ns FROM ",
    past!("raw.exits"),
    " JOIN (SELECT host_name AS newest_host, max(interval_end) AS newest FROM ",
    past!("raw.intervals"),
    " GROUP BY host_name) \
       ON host_name = newest_host WHERE interval_end > newest - INTERVAL '1 hour' GROUP BY host_name) \
       ON of_exits = all_hosts.host \
     WHERE $1 = '' OR contains(lower(all_hosts.host), $1) OR contains(lower(coalesce(kernel, '')), $1) \
       OR contains(lower(coalesce(outcome, '')), $1) ORDER BY all_hosts.host"
);

/// The facts of one host.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Facts {
    pub(super) seen: String,
    pub(super) sentence: Option<String>,
    pub(super) next_step: Option<String>,
    pub(super) fail: Option<i64>,
    pub(super) warn: Option<i64>,
    pub(super) kernel: Option<String>,
    pub(super) cpu_model: Option<String>,
    pub(super) module: Option<String>,
    pub(super) mechanism: Option<String>,
    pub(super) capable: Option<bool>,
    pub(super) enabled: Option<bool>,
    pub(super) online_cpus: Option<i64>,
}

pub(super) const FACTS: &str = "SELECT seen, sentence, next_step, fail, warn, kernel, cpu_model, module, mechanism, \
     capable, enabled, online_cpus FROM hosts WHERE host = $1";

/// A VM.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Vm {
    pub(super) vm: String,
    pub(super) pid: Option<i64>,
    pub(super) vmm: Option<String>,
    pub(super) seen: String,
    pub(super) state: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) inhibit_reasons: Option<Vec<String>>,
    pub(super) fixes: Option<Vec<String>>,
    pub(super) vcpus: Option<i64>,
    pub(super) active_vcpus: Option<i64>,
}

pub(super) const VMS: &str = "SELECT vm, pid, vmm, seen, state, mode, inhibit_reasons, fixes, vcpus, active_vcpus FROM vms \
     WHERE host = $1 ORDER BY vm, pid";

/// A finding of `doctor`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Finding {
    pub(super) section: String,
    pub(super) section_title: String,
    pub(super) rule: String,
    pub(super) title: String,
    pub(super) state: String,
    pub(super) found: String,
    pub(super) why: String,
    pub(super) evidence: Option<Vec<String>>,
    pub(super) fixes: Option<Vec<String>>,
}

pub(super) const FINDINGS: &str = "SELECT section, section_title, rule, title, state, found, why, evidence, fixes \
     FROM findings WHERE host = $1 ORDER BY CASE state WHEN 'fail' THEN 0 WHEN 'warn' THEN 1 WHEN 'skip' THEN 2 ELSE 3 END, \
     section, rule";

/// A finding that several hosts share.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Common {
    pub(super) rule: String,
    pub(super) title: String,
    pub(super) state: String,
    pub(super) hosts: Vec<String>,
    pub(super) why: String,
    pub(super) fixes: Option<Vec<String>>,
}

/// Checks that failed or warned, most frequent first.
pub(super) const COMMON: &str = "SELECT rule, title, state, fixes, min(why) AS why, array_agg(DISTINCT host ORDER BY host) AS hosts \
     FROM findings WHERE state IN ('fail', 'warn') GROUP BY rule, title, state, fixes \
     ORDER BY state, count(DISTINCT host) DESC, title, rule";

/// The exits of one reason in one column of a chart.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Exits {
    pub(super) bin: i64,
    pub(super) reason: Option<String>,
    pub(super) exits: i64,
    /// The exits with a known handling time.
    pub(super) samples: i64,
    pub(super) handling_ns: i64,
    pub(super) max_ns: Option<i64>,
}

/// The observed time in one column of a chart.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Observed {
    pub(super) bin: i64,
    pub(super) observed_ns: i64,
}

/// The first and last time at which a host was observed, in microseconds.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Ends {
    pub(super) first: Option<i64>,
    pub(super) last: Option<i64>,
}

pub(super) const ENDS: &str = concat!(
    "SELECT CAST(min(interval_start) AS BIGINT) AS first, CAST(max(interval_end) AS BIGINT) AS last FROM ",
    past!("raw.intervals"),
    " WHERE host_name = $1"
);

/// The query for a host's exits by column. `from` is the start of the first column, `width` the width of
/// each, in microseconds.
pub(super) fn exits(from: i64, width: i64, of_vm: bool) -> String {
    let vm = if of_vm { " AND vm_name = $2" } else { "" };
    format!(
        "SELECT {} AS bin, reason, sum(exits) AS exits, coalesce(sum(samples), 0) AS samples, \
         sum(handling_ns) AS handling_ns, max(max_ns) AS max_ns \
         FROM raw.exits WHERE host_name = $1{vm} AND CAST(interval_end AS BIGINT) > {from} GROUP BY 1, 2",
        bin(from, width)
    )
}

pub(super) fn observed(from: i64, width: i64) -> String {
    format!(
        "SELECT {} AS bin, sum(observed_ns) AS observed_ns FROM raw.intervals \
         WHERE host_name = $1 AND CAST(interval_end AS BIGINT) > {from} GROUP BY 1 ORDER BY 1",
        bin(from, width)
    )
}

/// The column of an interval: the one in which it ends.
fn bin(from: i64, width: i64) -> String {
    format!("(CAST(interval_end AS BIGINT) - {from} - 1) / {width}")
}

/// A figure of a study.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Figure {
    pub(super) host: String,
    pub(super) started: String,
    pub(super) study: String,
    pub(super) target: String,
    pub(super) emulated: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) workload: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) better: String,
    pub(super) guests: i64,
    pub(super) arm: String,
    pub(super) is_baseline: bool,
    pub(super) runs: i64,
    pub(super) mean: f64,
    pub(super) change: Option<f64>,
    pub(super) change_low: Option<f64>,
    pub(super) change_high: Option<f64>,
    pub(super) change_scale: Option<String>,
    pub(super) finding: Option<String>,
}

pub(super) const EXPERIMENTS: &str = "SELECT host, started, study, target, emulated, kernel, workload, metric, unit, better, guests, \
     arm, is_baseline, runs, mean, change, change_low, change_high, change_scale, finding FROM experiments \
     ORDER BY started DESC, host, study, workload, metric, guests, is_baseline DESC, arm";

/// The cost of an operation with interrupt virtualization on or off.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Cost {
    pub(super) host: String,
    pub(super) seen: String,
    pub(super) measure: String,
    pub(super) arm: String,
    pub(super) emulated: Option<String>,
    pub(super) median_cycles: f64,
    pub(super) median_ns: Option<f64>,
    pub(super) exits_per_operation: Option<f64>,
    pub(super) change_percent: Option<f64>,
    pub(super) change_low: Option<f64>,
    pub(super) change_high: Option<f64>,
    pub(super) effect: Option<String>,
}

pub(super) const COSTS: &str = "SELECT host_name AS host, time AS seen, measure, arm, emulated, median_cycles, \
     CASE WHEN emulated IS NULL THEN median_cycles * 1e6 / tsc_khz END AS median_ns, exits_per_operation, change_percent, \
     change_low, change_high, effect FROM raw.costs ORDER BY host_name, time DESC, measure, arm";
