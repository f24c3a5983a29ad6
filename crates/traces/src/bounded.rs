//! The limits of rows: a guest that accesses all MSRs or addresses must not exhaust the memory of a process that counts for
//! hours, nor a corrupt recording that of a reader.

use exits::{Access, Exits, Profile, Vcpu};
use std::collections::BTreeSet;

/// The most different accesses that are counted separately, for all vCPUs together; a row takes a few hundred bytes.
pub(crate) const MOST_ACCESSES: usize = 16_384;

/// The most rows by vCPU and exit reason that are counted separately: those of 6,000 vCPUs with 20 reasons. A row takes a few
/// kilobytes, and 15 KiB if its times are a nanosecond and centuries.
pub(crate) const MOST_REASONS: usize = 1 << 17;

/// The rows by exit reason that can still be created, for all vCPUs together.
#[derive(Debug)]
pub(crate) struct ReasonRoom(pub(crate) usize);

impl Default for ReasonRoom {
    fn default() -> Self {
        Self(MOST_REASONS)
    }
}

impl ReasonRoom {
    /// Takes one row, if there is any left.
    pub(crate) fn take(&mut self) -> bool {
        take(&mut self.0)
    }
}

fn take(left: &mut usize) -> bool {
    let fits = *left > 0;
    *left -= usize::from(fits);
    fits
}

/// The rows of accesses that can still be created. Without one, an access is counted as [`Access::Other`] of its
/// vCPU.
#[derive(Debug)]
pub(crate) struct AccessRoom(pub(crate) usize);

impl Default for AccessRoom {
    fn default() -> Self {
        Self(MOST_ACCESSES)
    }
}

impl AccessRoom {
    /// Takes one row, if there is any left.
    pub(crate) fn take(&mut self) -> bool {
        take(&mut self.0)
    }

    /// The row in which to count `access`: its own if it has one or can get one.
    pub(crate) fn row(&mut self, access: Access, is_known: bool) -> Access {
        if is_known || access == Access::Other || self.take() { access } else { Access::Other }
    }
}

/// The number of different accesses of all vCPUs, without [`Access::Other`].
pub(crate) fn different_accesses(profile: &Profile) -> usize {
    let each = profile.vcpus().iter().flat_map(|of| of.accesses.keys());
    each.filter(|&&access| access != Access::Other).count()
}

/// Adds `other` to `profile` as [`merge_bounded_accesses`] does. If it would have more rows by vCPU and exit reason than are
/// read from other tools' recordings, 131,072, those of VMs that `other` does not have are added up as of no VM, or else all.
pub fn merge_bounded(profile: &mut Profile, other: &Profile) {
    merge_bounded_accesses(profile, other);
    bound_reasons(profile, other, MOST_REASONS);
}

fn bound_reasons(profile: &mut Profile, other: &Profile, most: usize) {
    let rows = |profile: &Profile| profile.vcpus().iter().map(|of| of.reasons.len()).sum::<usize>();
    if rows(profile) <= most {
        return;
    }
    let latest: BTreeSet<_> = other.vcpus().iter().map(|of| of.vcpu.vm).collect();
    profile.regroup(|vcpu| if latest.contains(&vcpu.vm) { vcpu } else { Vcpu::default() });
    if rows(profile) > most {
        profile.regroup(|_| Vcpu::default());
    }
}

/// Adds `other` to `profile` as [`Profile::merge`] does, but once `profile` has 16,384 different accesses, new ones are
/// counted as [`Access::Other`] of their vCPU.
pub fn merge_bounded_accesses(profile: &mut Profile, other: &Profile) {
    let mut room = AccessRoom(MOST_ACCESSES.saturating_sub(different_accesses(profile)));
    if different_accesses(other) <= room.0 {
        return profile.merge(other);
    }
    let mut bounded = other.clone();
    for theirs in other.vcpus() {
        let ours = profile.vcpus().binary_search_by_key(&theirs.vcpu, |of| of.vcpu);
        let known = ours.ok().map(|at| &profile.vcpus()[at].accesses);
        let mut beyond = Exits::default();
        let accesses = &mut bounded.vcpu(theirs.vcpu).accesses;
        accesses.retain(|access, exits| {
            let fits = room.row(*access, known.is_some_and(|known| known.contains_key(access))) == *access;
            if !fits {
                beyond.merge(exits);
            }
            fits
        });
        if beyond.count > 0 {
            accesses.entry(Access::Other).or_default().merge(&beyond);
        }
    }
    profile.merge(&bounded);
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Direction, ExitReason};

    /// One access to each address from `first` on, by each of two vCPUs.
    fn sweep(first: u64, count: u64) -> Profile {
        let mut profile = Profile::new();
        for number in [0, 1] {
            let vcpu = profile.vcpu(Vcpu { vm: Some(1), number: Some(number), thread: None });
            for address in first..first + count {
                let access = Access::Mmio { address, direction: Direction::Read };
                let exits = vcpu.accesses.entry(access).or_default();
                exits.count += 1;
                exits.handling.add(100);
            }
        }
        profile
    }

    #[test]
    fn rows_beyond_the_limit_are_of_no_vm_and_all_add_up() {
        const MOST: usize = 300;
        let reasons = [ExitReason::vmx(12), ExitReason::vmx(30)];
        let of_vms = |vms: std::ops::Range<u32>| {
            let mut profile = Profile::new();
            for vm in vms {
                let vcpu = Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm) };
                reasons.iter().for_each(|reason| {
                    profile.vcpu(vcpu).reasons.entry(*reason).or_default().count = 1;
                });
            }
            profile
        };
        let add = |sum: &mut Profile, vms: std::ops::Range<u32>| {
            let other = of_vms(vms);
            merge_bounded_accesses(sum, &other);
            bound_reasons(sum, &other, MOST);
            sum.vcpus().iter().map(|of| of.reasons.len()).sum::<usize>()
        };
        let mut sum = Profile::new();
        for round in 0..10 {
            assert!(add(&mut sum, 100 * round..100 * round + 100) <= MOST);
        }
        assert_eq!(sum.total(), 2 * 1000);
        let of_no_vm = sum.vcpus().iter().find(|of| of.vcpu == Vcpu::default()).unwrap();
        assert_eq!(of_no_vm.reasons[&reasons[0]].count, 900, "the latest ones have rows of their own");
        assert_eq!(add(&mut sum, 5000..5200), 2, "too many at once");
        assert_eq!(sum.total(), 2 * 1200);
    }

    #[test]
    fn accesses_beyond_the_limit_are_others_and_all_add_up() {
        const EACH: u64 = 3_000;
        let mut sum = Profile::new();
        let rounds = 5;
        for round in 0..rounds {
            merge_bounded(&mut sum, &sweep(round * EACH, EACH));
        }
        // Known accesses are still counted separately.
        merge_bounded(&mut sum, &sweep(0, EACH));
        assert_eq!(different_accesses(&sum), MOST_ACCESSES);
        let all = sum.accesses();
        assert_eq!(all.values().map(|exits| exits.count).sum::<u64>(), 2 * EACH * (rounds + 1));
        assert_eq!(all.values().map(|exits| exits.handling.count()).sum::<u64>(), 2 * EACH * (rounds + 1));
        assert_eq!(all[&Access::Mmio { address: 0, direction: Direction::Read }].count, 4);
        assert_eq!(all[&Access::Other].count, 2 * EACH * rounds - MOST_ACCESSES as u64);
    }
}
