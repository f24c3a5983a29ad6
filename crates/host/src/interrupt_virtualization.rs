//! Hardware delivery of guest interrupts: the CPU's feature, and the module's parameter.

use crate::cpuinfo::Cpu;
use crate::lack::{APICV_PARTS, Lack};
use crate::{Below, Root, modules};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Availability of the CPU's feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// Available.
    Yes,
    /// Not available, or unknown; with the reason.
    No(String),
}

/// APICv or AVIC on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptVirtualization {
    /// `APICv` (Intel), `AVIC` or `x2AVIC` (AMD; the latter also supports x2APIC guests).
    pub name: String,
    /// Availability, from the flags that the kernel prints.
    pub available: Availability,
    /// The step to take if the CPU lacks it; `None` if the CPU has it, or if that is unknown.
    #[serde(default)]
    pub next: Option<String>,
    /// The module parameter that switches it, below the root that was read.
    pub parameter: PathBuf,
    /// The parameter's value; `None` if the module is not loaded or the file cannot be read.
    pub value: Option<String>,
}

impl InterruptVirtualization {
    /// Reads flags and parameter; `None` for a CPU that has neither VMX nor SVM.
    pub(crate) fn read(root: &Root, cpu: &Cpu) -> Option<Self> {
        let below = (cpu.hypervisor == Some(true)).then(|| Below::of(&root.hypervisor().unwrap_or_default()));
        let (name, lack, module, file) = if cpu.has("svm") {
            let name = if cpu.has("x2avic") { "x2AVIC" } else { "AVIC" };
            (name, Ok(avic(cpu, below)), modules::AMD, "avic")
        } else if cpu.has("vmx") {
            ("APICv", apicv(cpu, below), modules::INTEL, "enable_apicv")
        } else {
            return None;
        };
        let (available, next) = match lack {
            Ok(None) => (Availability::Yes, None),
            Ok(Some(Lack { why, next })) => (Availability::No(why), Some(next)),
            Err(untold) => (Availability::No(untold), None),
        };
        let parameter = modules::parameter_path(module, file);
        let value = root.text(&parameter, "Y or N").ok();
        Some(Self { name: name.to_owned(), available, next, parameter: root.place(&parameter), value })
    }

    /// The missing feature of the CPU, if that is certain.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        match (&self.available, &self.next) {
            (Availability::No(why), Some(next)) => Some(Lack { why: why.clone(), next: next.clone() }),
            _ => None,
        }
    }

    /// Tests whether the module uses it; `None` if its parameter is unknown or undecided.
    ///
    /// Read back after loading, `Y` and `1` mean that the module found the CPU capable: it clears the
    /// parameter otherwise. `avic=auto` (Linux 6.18 and later) becomes one of them while the module loads.
    #[must_use]
    pub fn enabled(&self) -> Option<bool> {
        modules::switch(self.value.as_deref()?)
    }
}

fn avic(cpu: &Cpu, below: Option<Below>) -> Option<Lack> {
    (!cpu.has("avic")).then(|| Lack::of_avic(below))
}

/// The missing parts of APICv, if any; `Err` if the flags do not show them.
fn apicv(cpu: &Cpu, below: Option<Below>) -> Result<Option<Lack>, String> {
    match cpu.has_vmx("apicv") {
        Some(true) => Ok(None),
        Some(false) => {
            let lacking = APICV_PARTS.iter().filter(|(word, _)| cpu.has_vmx(word) != Some(true));
            let lacking: Vec<_> = lacking.map(|&(_, meaning)| meaning).collect();
            Ok(Some(Lack::of_apicv(&lacking, below)))
        }
        None => Err("/proc/cpuinfo has no `vmx flags` line (Linux before 5.6)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cpu(flags: &str, vmx_flags: Option<&str>) -> Cpu {
        let vmx = vmx_flags.map_or(String::new(), |line| format!("vmx flags : {line}\n"));
        Cpu::parse(&format!("processor : 0\nflags : {flags}\n{vmx}")).unwrap()
    }

    #[test]
    fn apicv_says_what_is_lacking() {
        let root = tempfile::tempdir().unwrap();
        let cpu = cpu("vmx", Some("vtpr vapic_reg vid"));
        let found = InterruptVirtualization::read(&Root::directory(root.path()), &cpu).unwrap();
        assert_eq!(found.available, Availability::No("the CPU lacks posted interrupts".to_owned()));
        assert_eq!(found.enabled(), None);
    }

    #[test]
    fn x2avic_and_its_parameter() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("sys/module/kvm_amd/parameters");
        fs::create_dir_all(&home).unwrap();
        let values = [
            ("Y\n", Some(true)),
            ("N\n", Some(false)),
            ("1\n", Some(true)),
            ("0\n", Some(false)),
            ("auto\n", None),
        ];
        for (value, enabled) in values {
            fs::write(home.join("avic"), value).unwrap();
            let cpu = cpu("svm avic x2avic", None);
            let found = InterruptVirtualization::read(&Root::directory(root.path()), &cpu).unwrap();
            assert_eq!(found.name, "x2AVIC");
            assert_eq!(found.available, Availability::Yes);
            assert_eq!(found.enabled(), enabled, "{value:?}");
        }
    }

    #[test]
    fn a_cpu_without_virtualization_has_none() {
        assert_eq!(InterruptVirtualization::read(&Root::live(), &cpu("fpu", None)), None);
    }
}
