//! The fingerprint of a host, which `probe`, `prove` and studies record.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::doctor::{isa_of, switch};
use super::{Fault, Gathered};

#[derive(Deserialize, Default)]
pub(super) struct Fingerprint {
    pub(super) kernel_release: Option<String>,
    cpu: Option<Cpu>,
    online_cpus: Option<i64>,
    memory_mib: Option<u32>,
    #[serde(default)]
    modules: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Cpu {
    vendor: String,
    name: String,
}

impl Fingerprint {
    /// Adds the rows of the host and its module parameters.
    pub(super) fn gather(&self, gathered: &mut Gathered) -> Result<(), Fault> {
        let module = self.modules.keys().find(|module| isa_of(module).is_some());
        let value =
            |name| module.and_then(|module| self.modules[module].get(name)).and_then(|value| switch(value));
        gathered.row(
            "hosts",
            json!({
                "kernel": self.kernel_release,
                "cpu_vendor": self.cpu.as_ref().map(|cpu| &cpu.vendor),
                "cpu_model": self.cpu.as_ref().map(|cpu| &cpu.name),
                "isa": module.and_then(|module| isa_of(module)),
                "module": module,
                "enabled": value("enable_apicv").or(value("avic")),
                "ipi_virtualization": value("enable_ipiv"),
                "online_cpus": self.online_cpus,
                "memory_bytes": self.memory_mib.map(|mib| i64::from(mib) << 20),
            }),
        )?;
        for (module, parameters) in &self.modules {
            for (parameter, value) in parameters {
                let row = json!({ "module": module, "parameter": parameter, "value": value });
                gathered.row("parameters", row)?;
            }
        }
        Ok(())
    }
}
