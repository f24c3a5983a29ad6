//! Counters from QEMU's `query-stats` (qapi/stats.json of QEMU, since 7.1).

use super::{Counters, Found};
use crate::qmp::{Monitor, QmpError};
use host::vms::{MonitorUse, Vm};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// The error of asking QEMU.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueryError {
    #[error("The VM does not run in QEMU, and only QEMU has QMP")]
    NotQemu,
    #[error("QEMU was started without a monitor on a socket; add `-qmp unix:PATH,server=on,wait=off`")]
    NoMonitor,
    #[error("{0}")]
    Taken(&'static str),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("QEMU {version} has no `query-stats`, which came with 7.1")]
    TooOld { version: String },
    #[error(
        "QEMU {version} gives no statistics of KVM; they need Linux 5.14 or later, and KVM as the accelerator"
    )]
    NoStatistics { version: String },
    #[error("The answer of QEMU {version} to `{command}` is not as documented")]
    Answer {
        version: String,
        command: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Schema {
    target: String,
    stats: Vec<SchemaValue>,
}

#[derive(Deserialize)]
struct SchemaValue {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    unit: Option<String>,
    #[serde(default)]
    exponent: i16,
}

#[derive(Deserialize)]
struct StatisticsOf {
    #[serde(rename = "qom-path")]
    path: Option<String>,
    stats: Vec<Statistic>,
}

#[derive(Deserialize)]
struct Statistic {
    name: String,
    value: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cpu {
    cpu_index: u32,
    qom_path: String,
    thread_id: i32,
}

/// Asks the first of the VM's monitors that can be used.
pub(super) fn read(root: &Path, vm: &Vm, timeout: Duration) -> Result<Found, QueryError> {
    if vm.vmm != host::vms::Vmm::Qemu {
        return Err(QueryError::NotQemu);
    }
    let open = vm.monitors.iter().filter(|one| one.used == MonitorUse::Open);
    let paths: Vec<&str> = open.filter_map(|one| one.path.as_deref()).collect();
    if paths.is_empty() {
        return Err(unusable(vm));
    }
    let share = timeout / u32::try_from(paths.len()).unwrap_or(u32::MAX);
    let mut failure = QueryError::NoMonitor;
    for path in paths {
        match Monitor::of_process(root, vm.pid, path, share)
            .map_err(QueryError::from)
            .and_then(|one| ask(one, vm))
        {
            Ok(found) => return Ok(found),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn unusable(vm: &Vm) -> QueryError {
    let used = |by| vm.monitors.iter().any(|one| one.used == by);
    if used(MonitorUse::Libvirt) {
        QueryError::Taken(
            "libvirt is connected to QEMU's only monitor; `virsh domstats --vcpu` asks through it, or add a \
             second -qmp socket to the domain",
        )
    } else if used(MonitorUse::Inherited) {
        QueryError::Taken("QEMU's monitor is an open descriptor of who started it; add a second -qmp socket")
    } else if used(MonitorUse::Client) {
        QueryError::Taken("QEMU's monitor is connected to a program of its own; add a second -qmp socket")
    } else {
        QueryError::NoMonitor
    }
}

fn ask(mut monitor: Monitor, vm: &Vm) -> Result<Found, QueryError> {
    let of_kvm = json!([{ "provider": "kvm" }]);
    let schemas: Vec<Schema> =
        answer(&mut monitor, "query-stats-schemas", Some(json!({ "provider": "kvm" })))?;
    if schemas.iter().all(|schema| schema.stats.is_empty()) {
        return Err(QueryError::NoStatistics { version: monitor.version().to_owned() });
    }
    let cpus: Vec<Cpu> = answer(&mut monitor, "query-cpus-fast", None)?;
    let query = |target| Some(json!({ "target": target, "providers": of_kvm }));
    let whole: Vec<StatisticsOf> = answer(&mut monitor, "query-stats", query("vm"))?;
    let single: Vec<StatisticsOf> = answer(&mut monitor, "query-stats", query("vcpu"))?;
    drop(monitor);

    let growing = Growing::new(&schemas);
    let numbers = numbers(&cpus, vm);
    let mut found = Found { units: units(&schemas), ..Found::default() };
    for statistics in &whole {
        found.add(&growing.counters("vm", statistics));
    }
    for statistics in &single {
        let counters = growing.counters("vcpu", statistics);
        found.add(&counters);
        if let Some(number) = statistics.path.as_ref().and_then(|path| numbers.get(path)) {
            found.vcpus.insert(*number, counters);
        }
    }
    Ok(found)
}

fn answer<T: serde::de::DeserializeOwned>(
    monitor: &mut Monitor,
    command: &'static str,
    arguments: Option<serde_json::Value>,
) -> Result<T, QueryError> {
    let version = monitor.version().to_owned();
    let value = monitor.ask(command, arguments).map_err(|error| match error {
        QmpError::Refused { class, version, .. } if class == "CommandNotFound" => {
            QueryError::TooOld { version }
        }
        other => other.into(),
    })?;
    serde_json::from_str(value.get()).map_err(|source| QueryError::Answer { version, command, source })
}

/// The cumulative statistics, by target and name.
struct Growing<'a>(HashSet<(&'a str, &'a str)>);

impl<'a> Growing<'a> {
    fn new(schemas: &'a [Schema]) -> Self {
        let values = schemas.iter().flat_map(|schema| schema.stats.iter().map(move |one| (schema, one)));
        let growing = values.filter(|(_, one)| one.kind == "cumulative");
        Self(growing.map(|(schema, one)| (schema.target.as_str(), one.name.as_str())).collect())
    }

    fn counters(&self, target: &str, statistics: &StatisticsOf) -> Counters {
        let growing = statistics.stats.iter().filter(|one| self.0.contains(&(target, one.name.as_str())));
        growing.filter_map(|one| Some((one.name.clone(), one.value.get().parse().ok()?))).collect()
    }
}

fn units(schemas: &[Schema]) -> BTreeMap<String, String> {
    let values = schemas.iter().flat_map(|schema| &schema.stats).filter(|one| one.kind == "cumulative");
    let unit = |one: &SchemaValue| {
        Some(match (one.unit.as_deref()?, one.exponent) {
            ("seconds", 0) => "s".to_owned(),
            ("seconds", -3) => "ms".to_owned(),
            ("seconds", -6) => "µs".to_owned(),
            ("seconds", -9) => "ns".to_owned(),
            ("bytes", 0) => "B".to_owned(),
            ("bytes", 10) => "KiB".to_owned(),
            (unit, 0) => unit.to_owned(),
            (unit, exponent) => format!("{unit}, exponent {exponent}"),
        })
    };
    values.filter_map(|one| Some((one.name.clone(), unit(one)?))).collect()
}

/// KVM's vCPU numbers by QEMU's paths. QEMU's own index is used only if threads cannot be matched: QEMU runs in
/// another PID namespace, or the threads are another user's and not visible.
fn numbers(cpus: &[Cpu], vm: &Vm) -> HashMap<String, u32> {
    let by_thread =
        |thread: i32| vm.vcpus.iter().find(|one| one.thread == Some(thread)).map(|one| one.number);
    let numbers: Option<Vec<u32>> = cpus.iter().map(|cpu| by_thread(cpu.thread_id)).collect();
    let numbers = numbers.unwrap_or_else(|| cpus.iter().map(|cpu| cpu.cpu_index).collect());
    cpus.iter().zip(numbers).map(|(cpu, number)| (cpu.qom_path.clone(), number)).collect()
}
