//! `exitless vms --json`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, Gathered, typed, version};

#[derive(Deserialize)]
struct Document {
    vms: Vec<Vm>,
}

#[derive(Deserialize)]
struct Vm {
    pid: i64,
    name: String,
    vmm: String,
    #[serde(default)]
    management: Management,
}

#[derive(Deserialize, Default)]
struct Management {
    uuid: Option<String>,
}

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let mut gathered = Gathered { version: version(value)?, ..Gathered::default() };
    for vm in typed::<Document>(value)?.vms {
        let row = json!({ "vm_name": vm.name, "vm_uuid": vm.management.uuid, "pid": vm.pid, "vmm": vm.vmm });
        gathered.row("vms", row)?;
    }
    Ok(gathered)
}
