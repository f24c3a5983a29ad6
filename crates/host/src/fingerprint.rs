//! The facts that must be equal for two measurements to be comparable.

use crate::cpuinfo::{Cpu, processors};
use crate::facts::Facts;
use crate::hypervisor::Hypervisor;
use crate::modules::{self, Parameters};
use crate::{CpuSet, Error, Root, kvm};
use exits::KernelVersion;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules whose parameters affect KVM's delivery of interrupts.
const MODULES: &[&str] = &["kvm", kvm::INTEL, kvm::AMD];

/// The facts of a host that affect virtual interrupts.
///
/// A field that could not be read is `None` (or empty), and `missing` has the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Kernel release, as `uname -r`.
    pub kernel_release: Option<String>,
    /// Kernel build, as `uname -v`.
    pub kernel_version: Option<String>,
    /// Machine architecture, as `uname -m`.
    pub architecture: Option<String>,
    /// The first processor.
    pub cpu: Option<Cpu>,
    /// The number of processors online.
    pub online_cpus: Option<u32>,
    /// Memory the kernel manages (`MemTotal`), in MiB.
    pub memory_mib: Option<u64>,
    /// The loaded modules among `kvm`, `kvm_intel` and `kvm_amd`, with their parameters.
    pub modules: BTreeMap<String, Parameters>,
    /// The kernel's command line.
    pub cmdline: Option<String>,
    /// The lockdown mode in force: `none`, `integrity` or `confidentiality`.
    pub lockdown: Option<String>,
    /// The clocksource in use.
    pub clocksource: Option<String>,
    /// The platform of the machine itself, if CPUID announces a hypervisor: the firmware's vendor and
    /// product.
    pub virtualization: Option<String>,
    /// Xen, if this is its control domain and its facts are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<Hypervisor>,
    /// One line for each fact that could not be read: field, file, cause.
    pub missing: Vec<String>,
}

/// A field in which two fingerprints differ: its dotted name and both values, `None` where unknown.
pub type Difference = (String, Option<String>, Option<String>);

impl Fingerprint {
    /// Reads the host below `root` (`/` for this one).
    ///
    /// # Errors
    /// Only if `root` is not a directory; single facts that cannot be read are listed in `missing`.
    pub fn read(root: &Path) -> Result<Self, Error> {
        Self::of(&Root::directory(root))
    }

    /// Reads the host of a root, which can be another machine.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn of(root: &Root) -> Result<Self, Error> {
        let fingerprint = Self::with(root, None)?;
        Ok(Self { hypervisor: Hypervisor::below(root), ..fingerprint })
    }

    /// Reads the host without the hypervisor, with `/proc/cpuinfo` if it was read already.
    pub(crate) fn with(root: &Root, cpuinfo: Option<&str>) -> Result<Self, Error> {
        if !root.is_there() {
            return Err(Error::Root { path: root.place("") });
        }
        let mut facts = Facts::new(root);
        let cpuinfo = match cpuinfo {
            Some(text) => Ok(text.to_owned()),
            None => facts.text("/proc/cpuinfo", "a list of processors"),
        };
        let processors = cpuinfo.as_deref().ok().map(processors);
        let cpu = cpuinfo.map(|text| Cpu::parse(&text));
        let cpu = facts.keep("cpu", cpu).flatten();

        let online = facts.parsed("/sys/devices/system/cpu/online", "a list such as 0-3,6", count_cpus);
        let online_cpus = match (online, processors) {
            (Ok(count), _) => Some(count),
            (Err(_), Some(count)) if count > 0 => Some(count),
            (Err(error), _) => facts.keep("online_cpus", Err(error)),
        };

        let line = |facts: &mut Facts, field, path, expected| {
            let text = facts.text(path, expected);
            facts.keep(field, text)
        };
        let architecture = facts.text("/proc/sys/kernel/arch", "an architecture such as x86_64");
        // The file exists only since Linux 6.1; otherwise the flags identify x86.
        let architecture = match (architecture, &cpu) {
            (Ok(name), _) => Some(name),
            (Err(_), Some(cpu)) if cpu.hypervisor.is_some() => Some("x86_64".to_owned()),
            (Err(error), _) => facts.keep("architecture", Err(error)),
        };
        let memory = facts.parsed("/proc/meminfo", "a line MemTotal in kB", mem_total_mib);
        let lockdown = facts.parsed("/sys/kernel/security/lockdown", "modes with one in brackets", bracketed);

        let fingerprint = Self {
            kernel_release: line(&mut facts, "kernel_release", "/proc/sys/kernel/osrelease", "a release"),
            kernel_version: line(&mut facts, "kernel_version", "/proc/sys/kernel/version", "a build"),
            architecture,
            online_cpus,
            memory_mib: facts.keep("memory_mib", memory),
            modules: MODULES
                .iter()
                .filter_map(|&name| Some((name.to_owned(), modules::parameters(root, name)?)))
                .collect(),
            cmdline: line(&mut facts, "cmdline", "/proc/cmdline", "the kernel's arguments"),
            lockdown: facts.keep("lockdown", lockdown),
            clocksource: line(
                &mut facts,
                "clocksource",
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                "a clocksource",
            ),
            virtualization: virtualization(&mut facts, cpu.as_ref()),
            cpu,
            hypervisor: None,
            missing: Vec::new(),
        };
        if fingerprint.modules.is_empty() {
            facts.note("modules", "neither kvm, kvm_intel nor kvm_amd is in /sys/module");
        }
        let unread: Vec<String> = fingerprint
            .modules
            .iter()
            .flat_map(|(module, parameters)| parameters.iter().map(move |entry| (module, entry)))
            .filter(|(_, (_, value))| value.is_none())
            .map(|(module, (name, _))| format!("{} may not be read", modules::parameter_path(module, name)))
            .collect();
        for cause in unread {
            facts.note("modules", &cause);
        }
        Ok(Self { missing: facts.into_missing(), ..fingerprint })
    }

    /// The major and minor version from the kernel's release.
    #[must_use]
    pub fn kernel(&self) -> Option<KernelVersion> {
        self.kernel_release.as_deref()?.parse().ok()
    }

    /// A module's parameter, if the module is loaded and the value could be read.
    #[must_use]
    pub fn parameter(&self, module: &str, name: &str) -> Option<&str> {
        self.modules.get(module)?.get(name)?.as_deref()
    }

    /// All fields that differ, sorted by their dotted names. The notes in `missing` are not compared.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        between(&self.leaves(), &other.leaves())
    }

    fn leaves(&self) -> BTreeMap<String, String> {
        let mut leaves = BTreeMap::new();
        let mut compared = Self { missing: Vec::new(), ..self.clone() };
        // The name of the TSC's clocksource until the kernel has refined its frequency, about a second after
        // boot (arch/x86/kernel/tsc.c).
        if compared.clocksource.as_deref() == Some("tsc-early") {
            compared.clocksource = Some("tsc".to_owned());
        }
        // Strings, numbers and maps with string keys always serialize.
        collect(String::new(), &serde_json::to_value(compared).unwrap_or_default(), &mut leaves);
        leaves
    }
}

/// The entries that differ, sorted by their names.
#[must_use]
pub fn between(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<Difference> {
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), ours.get(name).cloned(), theirs.get(name).cloned()))
        .filter(|(_, ours, theirs)| ours != theirs)
        .collect()
}

fn collect(name: String, value: &serde_json::Value, leaves: &mut BTreeMap<String, String>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                collect(format!("{name}{dot}{key}"), value, leaves);
            }
        }
        Value::Array(items) => {
            let words: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            if !words.is_empty() {
                leaves.insert(name, words.join(" "));
            }
        }
        Value::Null => {}
        Value::String(text) => {
            leaves.insert(name, text.clone());
        }
        other => {
            leaves.insert(name, other.to_string());
        }
    }
}

fn virtualization(facts: &mut Facts, cpu: Option<&Cpu>) -> Option<String> {
    if cpu.and_then(|cpu| cpu.hypervisor) != Some(true) {
        return None;
    }
    // Xen identifies itself here even without a firmware table.
    if let Ok(kind) = facts.text("/sys/hypervisor/type", "a hypervisor's name") {
        return Some(kind);
    }
    let vendor = facts.text("/sys/class/dmi/id/sys_vendor", "a vendor");
    let product = facts.text("/sys/class/dmi/id/product_name", "a product").ok();
    let vendor = facts.keep("virtualization", vendor)?;
    Some(product.map_or_else(|| vendor.clone(), |product| format!("{vendor} {product}")))
}

/// The number of processors in a list of the kernel; there is at least one.
fn count_cpus(list: &str) -> Option<u32> {
    let cpus = CpuSet::parse(list).filter(|cpus| !cpus.is_empty())?;
    u32::try_from(cpus.count()).ok()
}

fn mem_total_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1024)
}

/// The choice in brackets: `none [integrity] confidentiality`.
pub(crate) fn bracketed(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
