//! `exitless verify --json`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::doctor::{parameter, switch};
use super::{Fault, Gathered, typed, version};

#[derive(Deserialize)]
struct Document {
    host: Host,
    watched_ns: i64,
    vms: Vec<Vm>,
}

#[derive(Deserialize)]
struct Host {
    kernel: Option<String>,
    cpu: Option<String>,
    module: Option<String>,
    isa: Option<String>,
    interrupt_virtualization: Option<InterruptVirtualization>,
    enabled: Option<bool>,
    enable_ipiv: Option<bool>,
}

#[derive(Deserialize)]
struct InterruptVirtualization {
    name: String,
    available: Availability,
    parameter: String,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Availability {
    Yes,
    No(#[expect(dead_code, reason = "the fact is enough")] String),
}

#[derive(Deserialize)]
struct Vm {
    pid: i64,
    name: String,
    vmm: String,
    which: Option<i64>,
    activation: Activation,
    #[serde(default)]
    cures: Vec<Cures>,
    ipi_virtualization: Ipi,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Activation {
    status: Status,
    mode: Option<String>,
    reasons: Vec<Reason>,
    active_vcpus: i64,
    vcpus: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Active,
    Partly,
    Inhibited,
    Unknown,
}

#[derive(Deserialize)]
struct Reason {
    number: Option<i64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Cures {
    #[serde(default)]
    cures: Vec<Value>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Ipi {
    state: String,
    why: Option<String>,
}

#[derive(Deserialize)]
struct Device {
    delivery: String,
}

/// A fix in one line: its place, and the change.
fn fix(fix: &Value) -> String {
    match (fix["place"].as_str(), fix["change"].as_str()) {
        (Some(place), Some(change)) => format!("{place}: {change}"),
        _ => fix.to_string(),
    }
}

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let version = version(value)?;
    let document: Document = typed(value)?;
    let mut gathered = Gathered { version, ..Gathered::default() };
    let host = &document.host;
    let found = host.interrupt_virtualization.as_ref();
    gathered.row(
        "hosts",
        json!({
            "kernel": host.kernel,
            "cpu_model": host.cpu,
            "isa": host.isa,
            "module": host.module,
            "mechanism": found.map(|found| &found.name),
            "capable": found.map(|found| matches!(found.available, Availability::Yes)),
            "enabled": host.enabled,
            "ipi_virtualization": host.enable_ipiv,
        }),
    )?;
    if let Some((found, value)) = found.and_then(|found| Some((found, found.value.as_ref()?)))
        && let Some((module, name)) = parameter(&found.parameter)
        && switch(value).is_some()
    {
        gathered.row("parameters", json!({ "module": module, "parameter": name, "value": value }))?;
    }
    for vm in &document.vms {
        let reasons = vm.activation.reasons.iter().map(|reason| match (&reason.reason, reason.number) {
            (Some(name), _) => name.clone(),
            (None, Some(number)) => number.to_string(),
            (None, None) => "unknown".to_owned(),
        });
        let fixes = vm.cures.iter().flat_map(|cures| cures.cures.iter().map(fix).chain(cures.next.clone()));
        let posted = vm.devices.iter().filter(|device| device.delivery == "posted").count();
        gathered.row(
            "vms",
            json!({
                "vm_name": vm.name,
                "pid": vm.pid,
                "which": vm.which,
                "vmm": vm.vmm,
                "state": match vm.activation.status {
                    Status::Active => "active",
                    Status::Partly => "partly",
                    Status::Inhibited => "inhibited",
                    Status::Unknown => "unknown",
                },
                "mode": vm.activation.mode,
                "inhibit_reasons": reasons.collect::<Vec<_>>(),
                "fixes": fixes.collect::<Vec<_>>(),
                "vcpus": vm.activation.vcpus,
                "active_vcpus": vm.activation.active_vcpus,
                "ipi_state": vm.ipi_virtualization.state,
                "ipi_why": vm.ipi_virtualization.why,
                "devices": vm.devices.len(),
                "devices_posted": posted,
                "watched_ns": document.watched_ns,
            }),
        )?;
    }
    Ok(gathered)
}
