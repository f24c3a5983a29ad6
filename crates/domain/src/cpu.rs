//! The CPU that the guest sees.

use super::place::Set;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The CPU model for the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuModel {
    /// All features of the host's CPU (`-cpu host`, `host-passthrough`).
    Host,
    /// All features that the accelerator supports (`-cpu max`, `maximum`).
    Maximum,
    /// The named model closest to the host's CPU (`host-model`, libvirt only).
    HostModel,
    /// A model by name (`EPYC-Genoa`, `qemu64`).
    Named(String),
}

/// The state of a CPU feature for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureState {
    /// Enabled (`+x`, `x=on`, `force`, `require`).
    On,
    /// Enabled if the host has it (libvirt `optional`).
    Optional,
    /// Disabled (`-x`, `x=off`, `disable`, `forbid`).
    Off,
}

/// The features without which a guest does not detect KVM: KVM's CPUID leaves, and the bit without which the guest
/// does not look for a hypervisor (Linux `arch/x86/kernel/kvm.c`, `__kvm_cpuid_base`).
pub(crate) const HIDES_KVM: [&str; 2] = ["kvm", "hypervisor"];

/// The enlightenments that another one requires; without them QEMU does not start (`kvm_hyperv_properties` in QEMU's
/// `target/i386/kvm/kvm.c`).
pub(crate) const NEEDS: &[(&str, &[&str])] = &[
    ("synic", &["vpindex"]),
    ("stimer", &["synic", "time"]),
    ("stimer-direct", &["stimer"]),
    ("tlbflush", &["vpindex"]),
    ("tlbflush-ext", &["tlbflush"]),
    ("tlbflush-direct", &["vapic"]),
    ("ipi", &["vpindex"]),
    ("evmcs", &["vapic"]),
];

/// Enlightenments for Windows (QEMU `hv-*`, libvirt `<hyperv>`). `None` if the text does not set it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HyperV {
    /// All enlightenments of the host (`hv-passthrough`, libvirt `mode='passthrough'`).
    pub passthrough: Option<Set<bool>>,
    /// Each by QEMU's name without its prefix and with dashes: `synic`, `stimer`, `stimer-direct`, `vapic`,
    /// `avic`, `vpindex`, `relaxed`, `time`, `spinlocks`...
    pub features: BTreeMap<String, Set<bool>>,
}

/// The CPU that the guest sees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCpu {
    /// Its model.
    pub model: Option<Set<CpuModel>>,
    /// Features by QEMU's name with dashes (`tsc-deadline`, `x2apic`, `svm`, `vmx`, `topoext`, `invtsc`,
    /// `kvm-msi-ext-dest-id`, `kvm-pv-ipi`); Hyper-V's are in `hyperv`.
    pub features: BTreeMap<String, Set<FeatureState>>,
    /// Enlightenments.
    pub hyperv: HyperV,
    /// Other properties of `-cpu` with a value (`host-phys-bits-limit=39`), in order.
    pub properties: Vec<Set<(String, String)>>,
}

impl GuestCpu {
    /// The state of a feature in the text.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<FeatureState> {
        self.features.get(name).map(|set| set.value)
    }
}
