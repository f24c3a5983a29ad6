//! Xen, where it is below.

use crate::Fact;
use std::collections::BTreeMap;

/// Xen as its guest sees it, and as its control domain does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xen {
    /// Whether this is the control domain: `/proc/xen/capabilities` says `control_d`.
    pub control: Fact<bool>,
    /// `/sys/hypervisor/guest_type`: `PV`, `PVH`, `HVM`.
    pub guest_type: Fact<String>,
    /// `/sys/hypervisor/version/{major,minor,extra}`, joined: `4.17.5`.
    pub version: Fact<String>,
    /// `xl info`.
    pub info: Fact<XenInfo>,
    /// `xl dmesg`.
    pub log: Fact<XenLog>,
    /// `xl list -v`.
    pub domains: Fact<Vec<XenDomain>>,
}

/// What `xl info` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenInfo {
    /// All of it, name to value: `xen_version`, `virt_caps`, `xen_commandline`, `xen_scheduler`, `nr_cpus`, ...
    pub fields: BTreeMap<String, String>,
}

/// What Xen's own log says of virtualization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenLog {
    /// What Xen lists under "VMX: Supported advanced features" or "SVM: Supported advanced features", without the dash
    /// (`xen/arch/x86/hvm/vmx/vmcs.c`, `vmx_display_features`; `xen/arch/x86/hvm/svm/svm.c`, `start_svm`).
    pub features: Vec<String>,
    /// Lines of the log that concern HVM, IOMMUs, APICs and interrupts, oldest first.
    pub lines: Vec<String>,
    /// "Intel VT-d Posted Interrupt supported" or "enabled" and its like: the word after it.
    pub posted_interrupts: Option<String>,
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenDomain {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// State letters (`r-----`).
    pub state: String,
}
