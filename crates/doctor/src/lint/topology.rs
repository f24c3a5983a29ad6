//! The APIC IDs of the vCPUs: each level of the topology has its own bits, so IDs have gaps if the size of a level is
//! not a power of two.

use domain::{Set, Vcpus};

/// The sizes of the levels, each at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// Threads per core.
    pub threads: u32,
    /// Cores per cluster.
    pub cores: u32,
    /// Clusters per die (QEMU's `modules` and `clusters`).
    pub clusters: u32,
    /// Dies per socket.
    pub dies: u32,
}

impl Topology {
    /// The levels of a definition. Missing ones share the remaining vCPUs as in QEMU (`hw/core/machine-smp.c`,
    /// `machine_parse_smp_config`).
    #[must_use]
    pub fn of(vcpus: &Vcpus, maximum: u32, prefers_sockets: bool) -> Self {
        let said = |set: &Option<Set<u32>>| set.as_ref().map(|set| set.value.max(1));
        let threads = said(&vcpus.threads).unwrap_or(1);
        let clusters = said(&vcpus.clusters).unwrap_or(1);
        let dies = said(&vcpus.dies).unwrap_or(1);
        let cores = said(&vcpus.cores).unwrap_or_else(|| {
            let sockets = said(&vcpus.sockets);
            if prefers_sockets && sockets.is_none() {
                return 1;
            }
            let others = [sockets.unwrap_or(1), dies, clusters, threads];
            let others = others.into_iter().fold(1_u32, u32::saturating_mul);
            (maximum / others).max(1)
        });
        Self { threads, cores, clusters, dies }
    }
}

/// The APIC ID of the last of these vCPUs, which is the highest (QEMU `include/hw/i386/topology.h`,
/// `x86_apicid_from_cpu_idx`).
#[must_use]
pub fn highest_apic_id(topology: Topology, vcpus: u32) -> u64 {
    let mut index = u64::from(vcpus.saturating_sub(1));
    let (mut id, mut shift) = (0_u64, 0_u32);
    for size in [topology.threads, topology.cores, topology.clusters, topology.dies] {
        let size = u64::from(size.max(1));
        id |= (index % size).checked_shl(shift).unwrap_or(0);
        index /= size;
        shift += width(size);
    }
    id | index.checked_shl(shift).unwrap_or(0)
}

/// The number of bits to number `size` things.
fn width(size: u64) -> u32 {
    u64::BITS - (size - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topology(dies: u32, clusters: u32, cores: u32, threads: u32) -> Topology {
        Topology { threads, cores, clusters, dies }
    }

    #[test]
    fn levels_that_are_no_powers_of_two_leave_gaps() {
        assert_eq!(highest_apic_id(topology(1, 1, 1, 1), 255), 254);
        assert_eq!(highest_apic_id(topology(1, 1, 128, 2), 256), 255);
        // Two sockets of 96 cores with 2 threads: 7 bits for the core, 1 for the thread.
        assert_eq!(highest_apic_id(topology(1, 1, 96, 2), 384), 256 + 95 * 2 + 1);
        // 12 cores with 3 threads: 2 bits for the thread.
        assert_eq!(highest_apic_id(topology(1, 1, 12, 3), 36), 11 * 4 + 2);
        assert_eq!(highest_apic_id(topology(3, 5, 6, 1), 90), (2 << 6) | (4 << 3) | 5);
    }

    #[test]
    fn what_is_not_said_holds_the_rest() {
        let vcpus = Vcpus { threads: Some(Set::new(2, domain::Place::default())), ..Vcpus::default() };
        assert_eq!(Topology::of(&vcpus, 16, false), topology(1, 1, 8, 2));
        assert_eq!(Topology::of(&vcpus, 16, true), topology(1, 1, 1, 2));
    }

    proptest! {
        #[test]
        fn no_ids_are_lower_than_the_number_of_vcpus(
            dies: u32, clusters: u32, cores: u32, threads: u32, vcpus in 1..100_000_u32
        ) {
            // Absurd sizes must not panic; sensible ones give each vCPU its own ID.
            let _ = highest_apic_id(topology(dies, clusters, cores, threads), vcpus);
            let small = topology(dies % 8 + 1, clusters % 8 + 1, cores % 512 + 1, threads % 8 + 1);
            prop_assert!(highest_apic_id(small, vcpus) >= u64::from(vcpus - 1));
            prop_assert!(highest_apic_id(small, vcpus) < highest_apic_id(small, vcpus + 1));
        }
    }
}
