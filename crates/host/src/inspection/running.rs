//! VMs that run, with where their threads do.

use super::place::Role;
use crate::vms::{LikelyVm, Vm};
use crate::{CpuSet, Fact};
use std::collections::BTreeMap;

/// The VMs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// Those found, by process.
    pub vms: Fact<Vec<RunningVm>>,
    /// Processes that may not be looked into; each may be one more VM.
    pub unreadable: u32,
    /// Those among them that look like VMs.
    pub likely: Vec<LikelyVm>,
    /// libvirt's domains that are defined but have no process here.
    pub defined: Vec<LibvirtDomain>,
}

/// A VM that runs. `vm.arguments` is its definition; `vm.debugfs` are directories as the host names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningVm {
    /// What the process tells.
    pub vm: Vm,
    /// libvirt's domain, where libvirt made it.
    pub libvirt: Option<LibvirtDomain>,
    /// Its threads and vhost's workers, by number.
    pub threads: Vec<ThreadPlace>,
    /// The control group (`/proc/PID/cgroup`): the path of the unified hierarchy, else of the cpuset controller.
    pub cgroup: Fact<String>,
    /// The processors that the group may use (`cpuset.cpus.effective`).
    pub cpuset: Fact<CpuSet>,
    /// KVM's counters of this VM in debugfs (`exits`, `irq_window_exits`, ...), summed over its directories; empty
    /// where debugfs cannot be read.
    pub counters: BTreeMap<String, u64>,
}

/// A domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtDomain {
    /// Its name.
    pub name: String,
    /// Where its definition lies: `/etc/libvirt/qemu/NAME.xml`.
    pub defined: Option<String>,
    /// That file's text.
    pub definition: Fact<String>,
    /// Where the status of the running one lies: `/run/libvirt/qemu/NAME.xml`.
    pub status: Option<String>,
    /// That file's text: `<domstatus>` around a `<domain>`.
    pub running_definition: Fact<String>,
}

/// A thread, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlace {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What it does for the VM.
    pub role: Role,
    /// The processors it may use (`Cpus_allowed_list`).
    pub allowed: Option<CpuSet>,
    /// The processor it ran on last (proc_pid_stat(5), field 39).
    pub last: Option<u32>,
}
