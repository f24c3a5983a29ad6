//! Verdicts from observations.

use std::collections::BTreeMap;
use std::path::Path;

use conclusions::activation::{
    DeviceEvidence, DeviceVerdict, Evidence, ExitSigns, InhibitSeen, IpiEvidence, PostingObstacle, Status,
    VmState, judge,
};
use exits::{InhibitNumbering, InhibitReason, Isa, Profile};
use host::inspection::Arguments;
use host::posting::{self, DeviceInterrupt};
use host::vms::Vm;
use host::{Cpu, Lack, counts_of_both, kvm};
use live::{Changes, VmKey};

use super::{Changed, HostSide, ReasonCures, StateSample, StateSeen, VmVerification};

/// All observations of the VMs and their host.
pub(super) struct Seen<'a> {
    pub(super) host: &'a HostSide,
    pub(super) cpu: &'a Cpu,
    pub(super) root: &'a Path,
    pub(super) numbering: &'a InhibitNumbering,
    pub(super) began_ns: u64,
    pub(super) samples: &'a BTreeMap<VmKey, Vec<VmState>>,
    pub(super) changes: &'a BTreeMap<i32, Changes>,
    pub(super) profile: Option<&'a Profile>,
    pub(super) interrupts: [&'a [DeviceInterrupt]; 2],
}

impl Seen<'_> {
    /// The verdict on the VM, or one for each VM of the process if KVM's state distinguishes several.
    pub(super) fn verdicts(&self, vm: &Vm) -> Vec<VmVerification> {
        let of_process = self.samples.iter().filter(|(key, _)| i32::try_from(key.process) == Ok(vm.pid));
        let states: Vec<&[VmState]> = of_process.map(|(_, samples)| samples.as_slice()).collect();
        match states.as_slice() {
            [] => vec![self.verdict(vm, &[], None)],
            [one] => vec![self.verdict(vm, one, None)],
            several => {
                several.iter().enumerate().map(|(at, one)| self.verdict(vm, one, Some(at + 1))).collect()
            }
        }
    }

    fn verdict(&self, vm: &Vm, samples: &[VmState], which: Option<usize>) -> VmVerification {
        // Exits and changes are known only per process: with several VMs they cannot be attributed.
        let changes = if which.is_none() { self.changes.get(&vm.pid) } else { None };
        let seen: Vec<InhibitSeen> =
            changes.iter().flat_map(|changes| &changes.inhibits).map(|one| self.seen(one)).collect();
        let signs = self.signs(vm).filter(|_| which.is_none() && vm.vm_fds.len() <= 1);
        let activation = judge(&Evidence {
            isa: self.host.isa,
            enabled: self.host.enabled,
            // With kvm_amd.force_avic, AVIC is used although the CPU does not announce it.
            cpu_denies: self.host.isa == Some(Isa::Svm) && !self.cpu.has("avic"),
            samples,
            changes: &seen,
            signs: signs.as_ref(),
            numbering: self.numbering,
        });
        let last = samples.last();
        let controls = last.and_then(|state| state.vcpus.iter().find_map(|vcpu| vcpu.controls));
        let ipi = IpiEvidence {
            isa: self.host.isa,
            status: activation.status,
            mode: activation.mode,
            parameter: self.host.enable_ipiv,
            cpu: self.cpu.has_vmx("ipi_virt"),
            family: self.cpu.family,
            controls,
        };
        let named = activation.reasons.iter().filter_map(|one| one.reason);
        VmVerification {
            pid: vm.pid,
            name: vm.name.clone(),
            vmm: vm.vmm,
            which,
            cures: named.map(|reason| self.cures(reason, vm)).collect(),
            ipi_virtualization: ipi.judge(),
            devices: self.devices(vm, activation.status, last, changes),
            state: last.map(|last| StateSeen {
                samples: samples.iter().map(StateSample::of).collect(),
                last: last.clone(),
            }),
            changes: changes.map(|_| seen.iter().map(|one| self.changed(one)).collect()),
            exits: signs,
            activation,
        }
    }

    fn seen(&self, change: &live::InhibitChange) -> InhibitSeen {
        InhibitSeen {
            after_ns: change.time_ns.saturating_sub(self.began_ns),
            set: change.set,
            number: change.number,
            mask: change.mask,
        }
    }

    fn changed(&self, seen: &InhibitSeen) -> Changed {
        Changed {
            after_ns: seen.after_ns,
            set: seen.set,
            number: seen.number,
            reason: self.numbering.reason(seen.number),
            mask: seen.mask,
        }
    }

    fn signs(&self, vm: &Vm) -> Option<ExitSigns> {
        let of_vm = self.profile?.only(|vcpu| vcpu.vm.and_then(|vm| i32::try_from(vm).ok()) == Some(vm.pid));
        Some(ExitSigns::of(&of_vm))
    }

    fn cures(&self, reason: InhibitReason, vm: &Vm) -> ReasonCures {
        let lack = self.host.lack().filter(|_| reason == InhibitReason::Disabled);
        // No parameter adds a feature that the CPU lacks.
        if let Some(Lack { why, next }) = lack {
            return ReasonCures {
                reason,
                set_by: why,
                cures: Vec::new(),
                next: Some(next),
                managed: Vec::new(),
            };
        }
        let cures = reason.cures().iter().filter(|cure| cure.place.is_of(self.host.isa));
        let set_by = reason.set_by().to_owned();
        let managed = doctor::managed::of_reason(reason, &vm.name, &vm.management);
        ReasonCures { reason, set_by, cures: cures.copied().collect(), next: None, managed }
    }

    fn devices(
        &self,
        vm: &Vm,
        status: Status,
        last: Option<&VmState>,
        changes: Option<&Changes>,
    ) -> Vec<DeviceVerdict> {
        let devices = posting::devices_of(self.root, vm);
        let iommu_posts = posting::joined(self.host.iommus.iter().map(|one| one.posts), false);
        // Level-triggered interrupts are never posted, and a device of the group may have no driver in the guest.
        let may_post = |device: &str| self.interrupts[1].iter().any(|one| one.device == device && !one.level);
        let may_post: Vec<String> = devices.iter().filter(|device| may_post(device)).cloned().collect();
        let judged = devices.into_iter().map(|device| {
            let [before, after] = self.interrupts.map(|all| all.iter().filter(|one| one.device == device));
            // A source that began anew with the same number counts from 0, as those with new numbers do.
            let more = |one: &DeviceInterrupt| -> u64 {
                let earlier = before.clone().find(|earlier| earlier.number == one.number);
                let both = counts_of_both(earlier.map(|earlier| &earlier.each), &one.each);
                both.map(|(base, count)| count.checked_sub(base).unwrap_or(count)).sum()
            };
            let numbers: Vec<u32> = after.clone().map(|one| one.number).collect();
            let level = !numbers.is_empty() && after.clone().all(|one| one.level);
            let updates = changes.iter().flat_map(|changes| &changes.posting);
            let updates = updates.filter(|update| numbers.contains(&update.host_irq));
            // The last update of each vector.
            let updates: BTreeMap<u32, bool> =
                updates.map(|update| (update.host_irq, update.posted)).collect();
            let posted = updates.values().filter(|&&posted| posted).count();
            let is_of_all = !numbers.is_empty() && updates.len() == numbers.len();
            let mediated = posting::is_mediated(self.root, &device).then_some(PostingObstacle::Mediated);
            let evidence = DeviceEvidence {
                obstacle: mediated
                    .or(DeviceEvidence::obstacle_of(status))
                    .or((iommu_posts == Some(false)).then_some(PostingObstacle::Iommu))
                    .or_else(|| self.told_not_to_post())
                    .or(level.then_some(PostingObstacle::LevelTriggered)),
                iommu_posts,
                host_vectors: numbers.len(),
                host_interrupts: after.clone().map(more).sum(),
                updated_vectors: updates.len(),
                posted_vectors: posted,
                last_update_posts: match posted {
                    0 if is_of_all => Some(false),
                    _ if is_of_all && posted == updates.len() => Some(true),
                    _ => None,
                },
                vm_has_posted: last
                    .and_then(|state| posting::joined(state.vcpus.iter().map(|vcpu| vcpu.posted_to), true)),
                // vDPA's queues are posted too, but their interrupts are not among those of devices.
                only_device: !vm.has_vdpa && may_post.iter().all(|other| *other == device),
            };
            DeviceVerdict { device, delivery: evidence.judge(), evidence }
        });
        judged.collect()
    }

    fn told_not_to_post(&self) -> Option<PostingObstacle> {
        // The parameter exists since Linux 6.16, in kvm or in the vendor module.
        let modules = std::iter::once("kvm").chain(self.host.module.as_deref());
        let mut switches = modules.map(|module| kvm::switch(self.root, module, "enable_device_posted_irqs"));
        if switches.any(|switch| switch == Some(false)) {
            return Some(PostingObstacle::Parameter);
        }
        let line = std::fs::read_to_string(self.root.join("proc/cmdline")).unwrap_or_default();
        obstacle_in(&line, self.host.isa?)
    }
}

/// The obstacle in the kernel's command line.
fn obstacle_in(line: &str, isa: Isa) -> Option<PostingObstacle> {
    Arguments::parse(line).against_posting(isa).map(|_| PostingObstacle::KernelArgument)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conclusions::activation::VcpuState;
    use exits::KernelVersion;
    use host::vms::AssignedDevice;

    const DEVICE: &str = "0000:01:00.0";

    fn interrupt(number: u32, device: &str, level: bool, count: u64) -> DeviceInterrupt {
        DeviceInterrupt { number, device: device.to_owned(), level, each: [(0, count)].into() }
    }

    /// A host below `root`, with IOMMUs of which this is known.
    struct Host<'a> {
        root: &'a Path,
        iommus: &'a [Option<bool>],
        interrupts: [&'a [DeviceInterrupt]; 2],
    }

    impl Host<'_> {
        /// The evidence on the one device of a VM whose interrupt virtualization is active.
        fn evidence(&self, last: Option<&VmState>) -> DeviceEvidence {
            self.verdicts(&with(&[DEVICE]), last, None).remove(0).evidence
        }

        /// The verdicts on the devices of a VM whose interrupt virtualization is active.
        fn verdicts(&self, vm: &Vm, last: Option<&VmState>, changes: Option<&Changes>) -> Vec<DeviceVerdict> {
            let iommu = |&posts| posting::Iommu { name: "ivhd0".to_owned(), posts, register: None };
            let host = HostSide {
                kernel: None,
                cpu: None,
                module: Some("kvm_amd".to_owned()),
                isa: Some(Isa::Svm),
                interrupt_virtualization: None,
                enabled: Some(true),
                enable_ipiv: None,
                kvm: None,
                iommus: self.iommus.iter().map(iommu).collect(),
                xen: false,
            };
            let numbering = InhibitNumbering::of_kernel(KernelVersion::new(6, 12));
            let seen = Seen {
                host: &host,
                cpu: &Cpu::default(),
                root: self.root,
                numbering: &numbering,
                began_ns: 0,
                samples: &BTreeMap::new(),
                changes: &BTreeMap::new(),
                profile: None,
                interrupts: self.interrupts,
            };
            seen.devices(vm, Status::Active, last, changes)
        }
    }

    /// A VM with these devices.
    fn with(devices: &[&str]) -> Vm {
        let devices = devices.iter().map(|device| AssignedDevice::Pci((*device).to_owned())).collect();
        Vm { devices, ..crate::collect::tests::vm() }
    }

    /// The state of a VM for whose vCPU KVM has posted interrupts.
    fn posted() -> VmState {
        let vcpu = VcpuState {
            number: 0,
            active: None,
            in_kernel_apic: None,
            x2apic: None,
            controls: None,
            posted_to: Some(true),
        };
        VmState { inhibits: None, irqchip: None, pit_reinjects: None, vcpus: [vcpu].into() }
    }

    #[test]
    fn a_device_without_interrupts_does_not_hide_that_another_ones_are_posted() {
        let root = Path::new("/dev/null/no-host");
        let (other, line) = ("0000:01:00.1", interrupt(18, "0000:01:00.1", true, 5));
        let delivery = |interrupts: &[DeviceInterrupt], vm: &Vm| {
            let host = Host { root, iommus: &[], interrupts: [interrupts; 2] };
            let verdicts = host.verdicts(vm, Some(&posted()), None);
            verdicts.into_iter().map(|one| one.delivery).collect::<Vec<_>>()
        };
        use conclusions::activation::DeviceDelivery::{ByHost, None as NotSetUp, Posted, Unknown};
        let (card, both) = (interrupt(40, DEVICE, false, 5), with(&[DEVICE, other]));
        assert_eq!(delivery(std::slice::from_ref(&card), &both), [Posted, NotSetUp]);
        assert_eq!(delivery(&[card.clone(), line], &both), [Posted, ByHost]);
        assert_eq!(delivery(&[card.clone(), interrupt(41, other, false, 5)], &both), [Unknown; 2]);
        // The posted one may be of vDPA.
        let beside_vdpa = Vm { has_vdpa: true, ..with(&[DEVICE]) };
        assert_eq!(delivery(&[card], &beside_vdpa), [Unknown]);
    }

    #[test]
    fn what_was_written_for_one_vector_is_not_the_verdict_on_all() {
        let root = Path::new("/dev/null/no-host");
        let interrupts = [interrupt(40, DEVICE, false, 5), interrupt(41, DEVICE, false, 5)];
        let host = Host { root, iommus: &[], interrupts: [&interrupts; 2] };
        let found = |written: &[(u32, bool)]| {
            let change = |&(host_irq, posted): &(u32, bool)| live::PostingChange { host_irq, posted };
            let changes = Changes { posting: written.iter().map(change).collect(), ..Changes::default() };
            let DeviceVerdict { delivery, evidence, .. } =
                host.verdicts(&with(&[DEVICE]), None, Some(&changes)).remove(0);
            let counts = (evidence.posted_vectors, evidence.updated_vectors);
            (delivery, evidence.last_update_posts, counts)
        };
        use conclusions::activation::DeviceDelivery::{ByHost, Posted, Unknown};
        assert_eq!(found(&[(40, true), (41, true)]), (Posted, Some(true), (2, 2)));
        assert_eq!(found(&[(40, false), (41, true), (41, false)]), (ByHost, Some(false), (0, 2)));
        assert_eq!(found(&[(40, true), (41, true), (41, false)]), (Unknown, None, (1, 2)));
        assert_eq!(found(&[(41, false), (9, true)]), (Unknown, None, (0, 1)));
        assert_eq!(found(&[(41, true)]), (Unknown, None, (1, 1)));
    }

    #[test]
    fn the_first_obstacle_to_posting_is_told() {
        let root = tempfile::tempdir().unwrap();
        let at = |module: &str| root.path().join("sys/module").join(module).join("parameters");
        ["kvm", "kvm_amd"].iter().for_each(|module| std::fs::create_dir_all(at(module)).unwrap());
        let told = |iommus: &[Option<bool>], [kvm, kvm_amd]: [&str; 2], levels: &[bool]| {
            for (module, value) in [("kvm", kvm), ("kvm_amd", kvm_amd)] {
                std::fs::write(at(module).join("enable_device_posted_irqs"), value).unwrap();
            }
            let others = interrupt(9, "0000:02:00.0", false, 7);
            let interrupts =
                levels.iter().zip(40..).map(|(level, number)| interrupt(number, DEVICE, *level, 5));
            let interrupts: Vec<DeviceInterrupt> = interrupts.chain([others]).collect();
            let host = Host { root: root.path(), iommus, interrupts: [&interrupts; 2] };
            let evidence = host.evidence(None);
            assert_eq!(evidence.host_vectors, levels.len());
            (evidence.obstacle, evidence.iommu_posts)
        };
        use PostingObstacle::{Iommu, LevelTriggered, Parameter};
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(told(&[yes, yes], ["Y", "Y"], &[false]), (None, yes));
        assert_eq!(told(&[yes, no], ["N", "Y"], &[true]), (Some(Iommu), no));
        assert_eq!(told(&[yes], ["N", "Y"], &[true]), (Some(Parameter), yes));
        assert_eq!(told(&[yes, None], ["Y", "N"], &[true]), (Some(Parameter), None));
        assert_eq!(
            [[no, None], [None, no]].map(|both| told(&both, ["Y", "Y"], &[false])),
            [(Some(Iommu), no); 2]
        );
        assert_eq!(told(&[], ["Y", "Y"], &[true, true]), (Some(LevelTriggered), None));
        assert_eq!(told(&[yes], ["Y", "Y"], &[true, false]), (None, yes));
        assert_eq!(told(&[yes], ["Y", "Y"], &[]), (None, yes), "it has no interrupts");
    }

    #[test]
    fn interrupts_of_the_device_are_counted_and_one_vcpu_is_enough_for_posting() {
        let before = [interrupt(40, DEVICE, false, 5), interrupt(9, "0000:02:00.0", false, 7)];
        let after = [interrupt(40, DEVICE, false, 8), interrupt(9, "0000:02:00.0", false, 90)];
        let root = Path::new("/dev/null/no-host");
        let host = Host { root, iommus: &[], interrupts: [&before, &after] };
        let posted = |to: [Option<bool>; 2]| {
            let vcpu = |posted_to| VcpuState {
                number: 0,
                active: None,
                in_kernel_apic: None,
                x2apic: None,
                controls: None,
                posted_to,
            };
            let vcpus = to.map(vcpu).into();
            let last = VmState { inhibits: None, irqchip: None, pit_reinjects: None, vcpus };
            let evidence = host.evidence(Some(&last));
            assert_eq!((evidence.host_interrupts, evidence.only_device), (3, true));
            evidence.vm_has_posted
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!([[no, yes], [no, no], [no, None]].map(posted), [yes, no, None]);
        assert_eq!([[yes, None], [None, yes]].map(posted), [yes; 2]);
        assert_eq!(host.evidence(None).vm_has_posted, None);
    }

    #[test]
    fn only_what_the_host_handled_meanwhile_is_counted() {
        let root = Path::new("/dev/null/no-host");
        let of = |number, each: &[(u32, u64)]| DeviceInterrupt {
            each: each.iter().copied().collect(),
            ..interrupt(number, DEVICE, false, 0)
        };
        let struck = |before: &[DeviceInterrupt], after: &[DeviceInterrupt]| {
            Host { root, iommus: &[], interrupts: [before, after] }.evidence(None).host_interrupts
        };
        let first = of(40, &[(0, 5)]);
        let both = of(40, &[(0, 5), (9, 40_000)]);
        assert_eq!(struck(std::slice::from_ref(&first), std::slice::from_ref(&both)), 0, "a CPU came online");
        assert_eq!(struck(&[both], &[of(40, &[(0, 8)])]), 3, "a CPU went offline");
        assert_eq!(struck(&[of(133, &[(0, 1000)])], &[of(140, &[(0, 7)])]), 7, "a number is new");
        assert_eq!(struck(&[first], &[of(40, &[(0, 2)])]), 2, "it was set up again");
    }

    #[test]
    fn the_kernels_argument_in_force_is_an_obstacle() {
        for (line, amd, intel) in [
            ("ro quiet", false, false),
            ("amd_iommu_intr=legacy", true, false),
            ("amd_iommu_intr=legacy amd_iommu_intr=vapic", false, false),
            ("intremap=nosid,nopost", true, true),
            ("intremap=nopost intremap=on", false, false),
            ("ro -- intremap=nopost", false, false),
        ] {
            let expected = |there: bool| there.then_some(PostingObstacle::KernelArgument);
            let told = [Isa::Svm, Isa::Vmx].map(|isa| obstacle_in(line, isa));
            assert_eq!(told, [amd, intel].map(expected), "{line}");
        }
    }
}
