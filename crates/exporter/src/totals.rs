//! Exits since the exporter's start, by VM and reason.

use std::collections::{BTreeMap, BTreeSet};

use exits::{ExitReason, Exits, Profile};

/// The label of VMs and reasons that have no series of their own.
pub const OTHER: &str = "other";
/// The maximum number of VMs with series of their own; further ones are counted together.
pub(crate) const VMS: usize = 1024;
/// The maximum number of reasons with series of their own for each VM. The first ones to occur get them and keep them,
/// because a counter must never decrease.
const REASONS: usize = 32;
/// Upper bounds of the histogram's buckets in nanoseconds: from exits that KVM handles itself to exits that wait for a
/// process.
pub(crate) const BOUNDS_NS: [u64; 11] =
    [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 256_000, 1_000_000, 10_000_000, 100_000_000];

/// The identity of a VM, for as long as the exporter runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VmIdentity {
    /// Its name for the user.
    pub name: String,
    /// The ID of its process; 0 for [`OTHER`].
    pub process: u32,
    /// The start of the process, in clock ticks since boot.
    pub start_ticks: u64,
}

impl VmIdentity {
    /// The identity of a process and the VM's name, shortened.
    #[must_use]
    pub fn new(name: &str, process: u32, start_ticks: u64) -> Self {
        Self { name: shortened(name), process, start_ticks }
    }
}

/// The first 128 characters of a name, for a label. A name may be as long as a command line allows, and is repeated in each
/// sample.
#[must_use]
pub fn shortened(name: &str) -> String {
    name.chars().take(128).collect()
}

/// Exits of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    /// Their total handling time. The idle time of 20,000 vCPUs exceeds 64 bits within two weeks.
    pub(crate) handling_ns: u128,
}

impl Sum {
    fn add(&mut self, exits: &Exits) {
        self.count = self.count.saturating_add(exits.count);
        self.handling_ns = self.handling_ns.saturating_add(exits.handling.total_ns().into());
    }
}

/// Handling times in the buckets of [`BOUNDS_NS`] and one bucket above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) buckets: [u64; BOUNDS_NS.len() + 1],
    pub(crate) count: u64,
    pub(crate) total_ns: u128,
}

impl Times {
    fn add(&mut self, exits: &Exits) {
        for (upper_ns, count) in exits.handling.buckets() {
            let at = BOUNDS_NS.partition_point(|&bound| bound < upper_ns);
            self.buckets[at] = self.buckets[at].saturating_add(count);
        }
        self.count = self.count.saturating_add(exits.handling.count());
        self.total_ns = self.total_ns.saturating_add(exits.handling.total_ns().into());
    }
}

/// The exits of one VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VmTotals {
    pub(crate) reasons: BTreeMap<String, Sum>,
    /// Handling times without exits in which the vCPU sleeps: idle time would hide all others.
    pub(crate) times: Times,
}

impl VmTotals {
    fn add(&mut self, reason: ExitReason, exits: &Exits) {
        let name = reason.to_string();
        let has_room = self.reasons.len() < REASONS || self.reasons.contains_key(&name);
        self.reasons.entry(if has_room { name } else { OTHER.to_owned() }).or_default().add(exits);
        if !reason.is_sleep() {
            self.times.add(exits);
        }
    }
}

/// Exits by VM since the exporter's start, with a limited number of series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub(crate) vms: BTreeMap<VmIdentity, VmTotals>,
    pub(crate) lost: u64,
    /// Exits that were counted without their VM.
    pub(crate) without_vcpu: u64,
    /// Collections that failed.
    pub(crate) failed: u64,
}

impl Totals {
    /// Adds the exits of an interval. `running` are the VMs by process. Exits of other VMs, which ended before they were
    /// identified, count as [`OTHER`].
    pub fn add(&mut self, profile: &Profile, running: &BTreeMap<u32, VmIdentity>) {
        for vcpu in profile.vcpus() {
            let found = vcpu.vcpu.vm.and_then(|process| running.get(&process));
            let has_room = |vm: &&VmIdentity| self.vms.len() < VMS || self.vms.contains_key(*vm);
            let vm = found.filter(has_room).cloned();
            let vm = vm.unwrap_or_else(|| VmIdentity { name: OTHER.to_owned(), ..VmIdentity::default() });
            let totals = self.vms.entry(vm).or_default();
            vcpu.reasons.iter().for_each(|(&reason, exits)| totals.add(reason, exits));
        }
        self.lost = self.lost.saturating_add(profile.losses.lost_exits);
        self.without_vcpu = self.without_vcpu.saturating_add(profile.losses.exits_without_vcpu);
    }

    /// Counts an interval whose exits could not be read.
    pub fn add_failed(&mut self) {
        self.failed += 1;
    }

    /// Removes the series of VMs that have ended.
    pub fn keep(&mut self, running: &BTreeMap<u32, VmIdentity>) {
        let running: BTreeSet<&VmIdentity> = running.values().collect();
        self.vms.retain(|vm, _| vm.process == 0 || running.contains(vm));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::Vcpu;
    use proptest::prelude::*;

    fn profile(exits: &[(u32, u32, u64)]) -> Profile {
        let mut profile = Profile::new();
        for &(vm, code, ns) in exits {
            let vcpu = Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm) };
            let exits = profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(code)).or_default();
            exits.count += 1;
            exits.handling.add(ns);
        }
        profile
    }

    fn vms(numbers: impl Iterator<Item = u32>) -> BTreeMap<u32, VmIdentity> {
        numbers
            .map(|process| (process, VmIdentity { name: format!("vm{process}"), process, start_ticks: 7 }))
            .collect()
    }

    #[test]
    fn a_vm_that_ended_has_no_series_and_one_with_its_number_starts_anew() {
        let mut totals = Totals::default();
        let first = vms(1..2);
        totals.add(&profile(&[(1, 10, 5), (1, 10, 5)]), &first);
        let mut second = first.clone();
        second.get_mut(&1).unwrap().start_ticks = 8;
        totals.keep(&second);
        assert!(totals.vms.is_empty());
        totals.add(&profile(&[(1, 10, 5)]), &second);
        assert_eq!(totals.vms[&second[&1]].reasons["CPUID"].count, 1);
    }

    #[test]
    fn reasons_and_vms_beyond_the_bounds_are_counted_together() {
        let mut totals = Totals::default();
        let all: Vec<_> = (0..60).map(|code| (1, code, 5)).collect();
        totals.add(&profile(&all), &vms(1..2));
        let reasons = &totals.vms.values().next().unwrap().reasons;
        assert_eq!((reasons.len(), reasons[OTHER].count), (REASONS + 1, 60 - REASONS as u64));
        let many: Vec<_> = (1..2000).map(|vm| (vm, 10, 5)).collect();
        totals.add(&profile(&many), &vms(1..2000));
        assert_eq!(totals.vms.len(), VMS + 1);
    }

    #[test]
    fn idle_time_is_no_handling_time_of_the_histogram() {
        let mut totals = Totals::default();
        // MWAIT is not idle time: KVM goes on at once.
        totals.add(&profile(&[(1, 12, 1_000_000_000), (1, 10, 1_500), (1, 36, 1_600)]), &vms(1..2));
        let vm = totals.vms.values().next().unwrap();
        assert_eq!((vm.times.count, vm.times.buckets[1], vm.times.total_ns), (2, 2, 3_100));
        assert_eq!(vm.reasons["HLT"], Sum { count: 1, handling_ns: 1_000_000_000 });
    }

    #[test]
    fn times_do_not_stand_still_when_they_exceed_64_bits() {
        const LONG: u64 = u64::MAX / 2;
        let mut totals = Totals::default();
        (0..3).for_each(|_| totals.add(&profile(&[(1, 12, LONG), (1, 10, LONG)]), &vms(1..2)));
        let vm = totals.vms.values().next().unwrap();
        let times = [vm.reasons["HLT"].handling_ns, vm.reasons["CPUID"].handling_ns, vm.times.total_ns];
        assert_eq!(times, [3 * u128::from(LONG); 3]);
    }

    proptest! {
        #[test]
        fn every_exit_is_in_one_series_whatever_the_bounds(
            intervals in prop::collection::vec(prop::collection::vec((1u32..4, 0u32..70, 0u64..1 << 40), 0..60), 1..5)
        ) {
            let mut totals = Totals::default();
            for interval in &intervals {
                totals.add(&profile(interval), &vms(1..3));
            }
            let counts = totals.vms.values().flat_map(|vm| vm.reasons.values());
            let exits = intervals.iter().map(Vec::len).sum::<usize>() as u64;
            prop_assert_eq!(counts.map(|sum| sum.count).sum::<u64>(), exits);
            for vm in totals.vms.values() {
                prop_assert_eq!(vm.times.buckets.iter().sum::<u64>(), vm.times.count);
            }
        }
    }
}
