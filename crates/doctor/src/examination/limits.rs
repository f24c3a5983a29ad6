//! Limits of hardware and kernel.

use super::iommu::remapping_advice;
use super::kernels::{Has, ROWS};
use super::rule::{Category, Rule, Verdict};
use super::subject::{Subject, vcpus};
use exits::Isa;
use exits::counted;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "limits-guest-apic-ids",
        title: "APIC IDs of guests",
        category: Category::Limits,
        why: "one vCPU with an APIC ID beyond the hardware's table inhibits AVIC for its whole VM",
        source: "Linux arch/x86/include/asm/svm.h, AVIC_MAX_PHYSICAL_ID, X2AVIC_MAX_PHYSICAL_ID and \
                 X2AVIC_4K_MAX_PHYSICAL_ID",
        parent: "",
        check: guest_apic_ids,
    },
    Rule {
        name: "limits-host-apic-ids",
        title: "APIC IDs of the host",
        category: Category::Limits,
        why: "without interrupt remapping no device can interrupt a processor whose APIC ID is above 254",
        source: "Intel SDM volume 3, 11.11.1, message address; Linux arch/x86/kernel/apic/apic.c, try_to_enable_x2apic",
        parent: "",
        check: host_apic_ids,
    },
];

/// The largest APIC IDs of AVIC, of x2AVIC, and of x2AVIC with its extension.
const LARGEST: [u32; 3] = [0xfe, 0x1ff, 0xfff];
/// The largest APIC ID in an MSI without remapping; the next one is the broadcast ID.
const LARGEST_IN_MESSAGE: u32 = 0xfe;

/// The largest APIC ID in a guest for which AVIC works, or may work, on this host, and the name of the limit.
pub(super) fn largest_apic_id(subject: &Subject<'_>) -> Option<(u32, &'static str)> {
    subject.host.processor.svm.get()?;
    Some(match (may_use_x2avic(subject), has_extension(subject)) {
        (true, Ok(false)) => (LARGEST[1], "x2AVIC"),
        (true, _) => (LARGEST[2], "x2AVIC with its extension"),
        _ => (LARGEST[0], "AVIC"),
    })
}

/// Tests whether the CPU has x2AVIC, and the kernel may use it: before Linux 6.0 KVM has only AVIC's table.
fn may_use_x2avic(subject: &Subject<'_>) -> bool {
    let has = subject.host.processor.svm.get().is_some_and(|svm| svm.x2avic);
    has && subject.kernel_has("kernel-x2avic") != Some(false)
}

/// Tests whether CPU and kernel have the extension of x2AVIC; `Err` is the reason why that is not known.
fn has_extension(subject: &Subject<'_>) -> Result<bool, String> {
    let has = subject.host.processor.svm.get().is_some_and(|svm| svm.x2avic_extended);
    if !has || !may_use_x2avic(subject) {
        return Ok(false);
    }
    let row = ROWS.iter().find(|row| row.rule == "kernel-x2avic-4k");
    let (Some(row), Some(release)) = (row, &subject.release) else {
        return Err("the kernel's release is not known".to_owned());
    };
    match row.judge(release) {
        Has::Yes => Ok(true),
        Has::No => Ok(false),
        Has::Unknown => Err(row.doubt(release)),
    }
}

fn guest_apic_ids(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) || subject.is_enabled() != Some(true) {
        return None;
    }
    let doubt = has_extension(subject).err();
    let (largest, by) = match doubt {
        Some(_) => (LARGEST[1], "x2AVIC"),
        None => largest_apic_id(subject)?,
    };
    // The number of vCPUs is a lower bound: IDs have gaps if the topology is not a power of two.
    let beyond = |count: usize| u32::try_from(count).unwrap_or(u32::MAX) > largest + 1;
    let over: Vec<_> = subject.running().iter().filter(|vm| beyond(vcpus(vm))).collect();
    let verdict = match (over.as_slice(), doubt) {
        ([], _) => Verdict::pass(format!("{by} takes APIC IDs up to {largest}")),
        (_, Some(why)) => {
            Verdict::skip(format!("APIC IDs above {largest} need the extension of x2AVIC: {why}"))
        }
        (some, None) => Verdict::fail(format!(
            "APIC IDs above {largest}, the limit of {by}, in {}",
            counted(some.len() as u64, "VM")
        ))
        .advice("fewer vCPUs, and topologies whose cores and threads are powers of two"),
    };
    let verdict = verdict.resting_on(&subject.host.processor.svm);
    Some(over.iter().fold(verdict, |verdict, vm| {
        verdict.seen(
            format!("process {}", vm.vm.pid),
            format!("{} has {}", vm.vm.name, counted(vcpus(vm) as u64, "vCPU")),
        )
    }))
}

fn host_apic_ids(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let fact = &subject.host.processor.largest_apic_id;
    let Some(&largest) = fact.get() else { return Some(Verdict::unknown(fact)) };
    let remapped = &subject.host.iommus.remapped;
    let is_beyond = largest > LARGEST_IN_MESSAGE && remapped.get() == Some(&false);
    // In a guest Linux brings no CPU online that messages cannot address: x2apic_set_max_apicid in try_to_enable_x2apic,
    // since 5.11 with 32767 if the hypervisor takes 15 bits of an ID in them. ID 255 is the only exception.
    if is_beyond && largest > 255 && subject.is_guest() {
        let found = format!(
            "the largest is {largest}, and the underlying hypervisor takes 15 bits of it in messages"
        );
        return Some(Verdict::pass(found).resting_on(fact));
    }
    Some(if is_beyond {
        Verdict::warn(format!("processors have APIC IDs up to {largest}, and interrupts are not remapped"))
            .resting_on(fact)
            .resting_on(remapped)
            .advice(remapping_advice(subject))
    } else {
        Verdict::pass(format!("the largest is {largest}")).resting_on(fact)
    })
}

#[cfg(test)]
mod tests {
    use host::Fact;

    use super::*;
    use crate::State;
    use crate::examination::cases::{NO_IR, below_kvm, on, set_vcpus, with};

    #[test]
    fn a_guest_with_many_cpus_reaches_them_without_remapping() {
        let judged = |below: bool| {
            let mut host = with("zen4", NO_IR).inspect();
            host.processor.largest_apic_id = Fact::known(383, "/proc/cpuinfo", "apicid: 383");
            if below {
                below_kvm(&mut host);
            }
            host_apic_ids(&Subject::new(&host)).unwrap().state
        };
        assert_eq!((judged(true), judged(false)), (State::Pass, State::Warn));
    }

    #[test]
    fn a_vm_beyond_x2avic_fails_only_if_the_kernel_lacks_the_extension() {
        let judged = |release: &str| {
            let mut host = on("zen4").inspect();
            set_vcpus(&mut host, 600);
            host.processor.svm.value.as_mut().unwrap().x2avic_extended = true;
            let release = release.to_owned();
            host.kernel.release = Fact::known(release.clone(), "/proc/sys/kernel/osrelease", release);
            host.kernel.version = Fact::default();
            let subject = Subject::new(&host);
            (guest_apic_ids(&subject).unwrap().state, largest_apic_id(&subject).unwrap().0)
        };
        assert_eq!(judged("6.12.100"), (State::Fail, 511));
        assert_eq!(judged("6.19.0"), (State::Pass, 4095));
        assert_eq!(judged("5.15.180"), (State::Fail, 254));
        let (state, largest) = judged("6.12.0-55.9.1.el10_0.x86_64");
        let State::Skip(why) = state else { panic!("{state:?}") };
        assert!(why.starts_with("APIC IDs above 511 need the extension of x2AVIC: "), "{why}");
        // Rules over definitions do not hold against a VM what is not known.
        assert_eq!(largest, 4095);
    }
}
