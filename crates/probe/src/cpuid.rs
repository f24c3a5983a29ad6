//! The answer of CPUID in the guest.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

use crate::run::ApicMode;

/// Leaf 1 ECX: x2APIC (SDM vol. 2, CPUID).
const X2APIC: u32 = 1 << 21;
/// Leaf 1 ECX: the APIC timer has TSC-deadline mode.
const TSC_DEADLINE: u32 = 1 << 24;

/// Derives the CPUID of vCPU `vcpu` from the features that KVM supports (KVM_GET_SUPPORTED_CPUID). Without the
/// x2APIC and TSC-deadline bits KVM refuses accesses to the corresponding MSRs.
pub(crate) fn for_vcpu(supported: &CpuId, vcpu: u16, apic: ApicMode, tsc_deadline: bool) -> CpuId {
    let mut cpuid = supported.clone();
    for entry in cpuid.as_mut_slice() {
        edit(entry, vcpu, apic, tsc_deadline);
    }
    cpuid
}

fn edit(entry: &mut kvm_cpuid_entry2, vcpu: u16, apic: ApicMode, tsc_deadline: bool) {
    let id = u32::from(vcpu);
    match entry.function {
        0x1 => {
            // The initial APIC ID, 8 bits wide.
            entry.ebx = (entry.ebx & 0x00ff_ffff) | (id << 24);
            // Without x2AVIC, kvm_amd inhibits AVIC as soon as the guest could use x2APIC (Linux < 6.0).
            match apic {
                ApicMode::X2apic => entry.ecx |= X2APIC,
                ApicMode::Xapic => entry.ecx &= !X2APIC,
            }
            entry.ecx = if tsc_deadline { entry.ecx | TSC_DEADLINE } else { entry.ecx & !TSC_DEADLINE };
        }
        // Extended topology: EDX is the x2APIC id at every level.
        0xb | 0x1f => entry.edx = id,
        // AMD's extended APIC ID, and each vCPU a core of its own.
        0x8000_001e => {
            entry.eax = id;
            entry.ebx = (entry.ebx & !0xff) | (id & 0xff);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(function: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            eax: 0x1111_1111,
            ebx: 0x2222_2222,
            ecx: 0x0333_3333,
            edx: 0x4444_4444,
            ..Default::default()
        }
    }

    fn shown(function: u32, vcpu: u16, apic: ApicMode, tsc_deadline: bool) -> kvm_cpuid_entry2 {
        let supported = CpuId::from_entries(&[leaf(0), leaf(function)]).unwrap();
        for_vcpu(&supported, vcpu, apic, tsc_deadline).as_slice()[1]
    }

    #[test]
    fn leaf_1_has_the_apic_id_and_the_permissions() {
        let entry = shown(1, 63, ApicMode::X2apic, true);
        assert_eq!(entry.ebx, 0x3f22_2222);
        assert_eq!(entry.ecx & (X2APIC | TSC_DEADLINE), X2APIC | TSC_DEADLINE);
        let entry = shown(1, 2, ApicMode::Xapic, false);
        assert_eq!(entry.ecx & (X2APIC | TSC_DEADLINE), 0);
        assert_eq!(entry.edx, 0x4444_4444);
    }

    #[test]
    fn topology_leaves_have_the_apic_id() {
        assert_eq!(shown(0xb, 7, ApicMode::X2apic, true).edx, 7);
        assert_eq!(shown(0x1f, 7, ApicMode::X2apic, true).edx, 7);
        let entry = shown(0x8000_001e, 7, ApicMode::X2apic, true);
        assert_eq!((entry.eax, entry.ebx), (7, 0x2222_2207));
    }

    #[test]
    fn other_leaves_stay() {
        assert_eq!(shown(0xd, 7, ApicMode::X2apic, true), leaf(0xd));
    }
}
