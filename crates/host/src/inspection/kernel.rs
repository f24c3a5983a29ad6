//! The kernel, how it was built, and what it was told.

use crate::{Fact, Parameters};
use std::collections::{BTreeMap, BTreeSet};

/// The kernel. Release, build and lockdown are in the [`Fingerprint`](crate::Fingerprint) too, without evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `/proc/sys/kernel/osrelease`.
    pub release: Fact<String>,
    /// `/proc/sys/kernel/version`.
    pub version: Fact<String>,
    /// Whose kernel and system it is, by `/etc/os-release`.
    pub distribution: Fact<Distribution>,
    /// How it was configured.
    pub config: Fact<KernelConfig>,
    /// What it was told when it booted.
    pub arguments: Fact<Arguments>,
    /// The lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Fact<String>,
    /// `/proc/sys/kernel/tainted`, a set of bits (Documentation/admin-guide/tainted-kernels.rst).
    pub tainted: Fact<u64>,
    /// Modules that are loaded (`/proc/modules`).
    pub loaded: Fact<BTreeSet<String>>,
    /// Modules that are built in (`/lib/modules/RELEASE/modules.builtin`).
    pub built_in: Fact<BuiltIn>,
    /// Parameters of `kvm`, `kvm_amd`, `kvm_intel`, `vfio_iommu_type1`, `vhost` and `irqbypass` where they are there,
    /// loaded or built in, by `/sys/module/NAME/parameters`.
    pub parameters: BTreeMap<String, Parameters>,
    /// Lines of modprobe.d about these modules, in the order in which modprobe reads the files.
    pub modprobe: Vec<ModprobeLine>,
    /// `/sys/devices/system/cpu/vulnerabilities`: what the kernel does about each.
    pub vulnerabilities: BTreeMap<String, String>,
}

/// Whose system it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// `ID`: `debian`, `ol`, `rhel`, `ubuntu`.
    pub id: String,
    /// `ID_LIKE`, its words.
    pub like: Vec<String>,
    /// `VERSION_ID`.
    pub version: Option<String>,
    /// `PRETTY_NAME`, else `NAME`.
    pub name: Option<String>,
}

/// Whether an option is in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionState {
    /// `=y`.
    BuiltIn,
    /// `=m`.
    Module,
    /// `is not set`, or not mentioned at all.
    Off,
    /// Another value: a number or a text.
    Value(String),
}

/// The options that concern virtualization, interrupts, idling and tracing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file (`/proc/config.gz`, `/boot/config-RELEASE`, `/lib/modules/RELEASE/config`).
    pub file: String,
    /// Options with their values, without `CONFIG_`; those that are not set are left out.
    pub options: BTreeMap<String, String>,
}

impl KernelConfig {
    /// The state of an option, with or without `CONFIG_`. Meaningful for options of the areas kept:
    /// KVM, IOMMUs, VFIO, vhost, APIC, Xen, Hyper-V, lockdown, preemption, timers, tracing and debugfs.
    #[must_use]
    pub fn option(&self, name: &str) -> OptionState {
        match self.options.get(name.strip_prefix("CONFIG_").unwrap_or(name)).map(String::as_str) {
            Some("y") => OptionState::BuiltIn,
            Some("m") => OptionState::Module,
            Some(value) => OptionState::Value(value.to_owned()),
            None => OptionState::Off,
        }
    }
}

/// Modules that are part of the kernel's image; only those that concern virtualization are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltIn(pub BTreeSet<String>);

/// One argument of the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its name, as written.
    pub name: String,
    /// What follows the `=`, without quotes.
    pub value: Option<String>,
}

/// The kernel's command line, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<Argument>);

/// A line of modprobe's configuration (modprobe.d(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModprobeLine {
    /// The file.
    pub file: String,
    /// The line's number, from 1.
    pub line: u32,
    /// Its first word: `options`, `blacklist`, `install`, `softdep`, `alias`, `remove`.
    pub command: String,
    /// The module, with `_` for `-`.
    pub module: String,
    /// The rest of the line: of `options` the parameters.
    pub rest: String,
    /// The file of the same name that is read instead, when this one is not.
    pub hidden_by: Option<String>,
}

/// `/dev/kvm`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvmDevice {
    /// Permission bits, owner and group of the device file.
    pub owner: Fact<crate::Ownership>,
    /// Whether this process could open it for reading and writing; the reason holds the next step.
    pub opened: Fact<()>,
    /// The vendor's module that is loaded: `kvm_intel` or `kvm_amd`.
    pub vendor_module: Option<&'static str>,
}
