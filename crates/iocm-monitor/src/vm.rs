//! The figures of a host and of its VMs over one period, including VM exits if they are counted.

use super::view::{View, total};
use exits::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host over the time since the last look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// The policy's input.
    pub view: View,
    /// The VMs that are left alone, with the reason: one sentence each, the same in each period while it holds.
    pub notes: Vec<String>,
    /// Share of all CPUs' time that was not idle, 0 to 1; `None` if the kernel does not report it.
    pub host_busy: Option<f64>,
    /// The VMs, for recordings and displays.
    pub vms: Vec<VmSeen>,
    /// The reason why their exits are not counted, if that was attempted.
    pub exits_missing: Option<String>,
}

/// The figures of one VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VmSeen {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// CPUs' worth of time that its vCPUs ran.
    pub computing: f64,
    /// CPUs' worth of time that they waited for a CPU.
    pub waiting: f64,
    /// The numbers of its queues in the view.
    pub queues: Vec<u32>,
    /// Its VM exits, if they are counted. The monitor adds them; actuators leave this empty.
    pub exits: Option<VmExits>,
}

/// VM exits of one VM over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct VmExits {
    /// Exits per second.
    pub per_second: f64,
    /// Exits per second for accesses to devices: [`exits::ExitReason::reaches_device`].
    pub io_per_second: f64,
    /// CPUs' worth of time that the host spent on handling the latter.
    pub io_handling: f64,
}

/// The exits of each VM, by PID, or the reason why they are not counted.
pub type ExitsSeen = Result<BTreeMap<i32, VmExits>, String>;

impl VmExits {
    /// The exits of each VM, by PID. Empty if the profile has no time span, and so no rates.
    #[must_use]
    pub fn of(profile: &Profile) -> BTreeMap<i32, Self> {
        let mut all: BTreeMap<i32, Self> = BTreeMap::new();
        let seconds = profile.span.map_or(0.0, |span| span.length_ns() as f64 / 1e9);
        if seconds <= 0.0 {
            return all;
        }
        for vcpu in profile.vcpus() {
            let Some(pid) = vcpu.vcpu.vm.and_then(|vm| i32::try_from(vm).ok()) else { continue };
            let vm = all.entry(pid).or_default();
            for (reason, exits) in &vcpu.reasons {
                vm.per_second += exits.count as f64 / seconds;
                if reason.reaches_device() {
                    vm.io_per_second += exits.count as f64 / seconds;
                    vm.io_handling += exits.handling.total_ns() as f64 / 1e9 / seconds;
                }
            }
        }
        all
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            per_second: self.per_second + other.per_second,
            io_per_second: self.io_per_second + other.io_per_second,
            io_handling: self.io_handling + other.io_handling,
        }
    }
}

/// A VM over the last period, as the state file shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmFigures {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// CPUs' worth of time that its vCPUs ran.
    pub computing: f64,
    /// CPUs' worth of time that they waited for a CPU.
    pub waiting: f64,
    /// CPUs' worth of time that was spent on its requests.
    pub useful: f64,
    /// Its queues.
    pub queues: usize,
    /// Its VM exits per second; `None` if they are not counted.
    pub exits: Option<VmExits>,
}

impl VmFigures {
    /// All VMs.
    pub(super) fn of(seen: &Seen) -> Vec<Self> {
        let useful: BTreeMap<u32, f64> =
            seen.view.queues.iter().map(|queue| (queue.number, queue.useful)).collect();
        let figures = |vm: &VmSeen| Self {
            name: vm.name.clone(),
            pid: vm.pid,
            computing: vm.computing,
            waiting: vm.waiting,
            useful: total(vm.queues.iter().filter_map(|queue| useful.get(queue).copied())),
            queues: vm.queues.len(),
            exits: vm.exits,
        };
        seen.vms.iter().map(figures).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, Span, Vcpu};

    #[test]
    fn vcpus_of_a_vm_are_one_and_each_exit_has_its_part() {
        let mut profile = Profile::new();
        profile.span = Some(Span { first_ns: 0, last_ns: 2_000_000_000 });
        let [kick, port, timer] =
            ["EPT_MISCONFIG", "IO_INSTRUCTION", "MSR_WRITE"].map(|name| name.parse::<ExitReason>().unwrap());
        for (vm, number, reason, count, ns) in [
            (Some(7), 0, kick, 100, 5_000),
            (Some(7), 1, port, 20, 50_000),
            (Some(7), 1, timer, 300, 1_000),
            (Some(8), 0, timer, 2, 1_000),
            (None, 0, timer, 9, 1_000),
        ] {
            let vcpu = Vcpu { vm, number: Some(number), thread: None };
            let exits = profile.vcpu(vcpu).reasons.entry(reason).or_default();
            exits.count += count;
            (0..count).for_each(|_| exits.handling.add(ns));
        }
        let all = VmExits::of(&profile);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [7, 8]);
        let seven = all[&7];
        assert_eq!((seven.per_second, seven.io_per_second), (210.0, 60.0));
        assert!((seven.io_handling - 0.000_75).abs() < 1e-9, "{seven:?}");
        assert_eq!(all[&8], VmExits { per_second: 1.0, ..VmExits::default() });
        assert_eq!(VmExits::of(&Profile::new()), BTreeMap::new());
    }
}
