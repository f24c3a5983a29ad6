use super::*;
use conclusions::activation::{
    Activation, Controls, Doubt, ExitSigns, InForce, IpiVirtualization, Irqchip, Mode, NoIpiVirtualization,
    VcpuState, VmState,
};
use exits::{InhibitReason, Inhibits, Isa};
use host::InterruptVirtualization;
use host::vms::{HeldProcess, LikelyVm, Vmm};
use prove::ArmPair;
use verify::{Missing, ReasonCures, StateSample, StateSeen};

fn host() -> HostSide {
    HostSide {
        kernel: Some("6.12.117".to_owned()),
        cpu: Some("AMD EPYC".to_owned()),
        module: Some("kvm_amd".to_owned()),
        isa: Some(Isa::Svm),
        interrupt_virtualization: Some(InterruptVirtualization {
            name: "AVIC".to_owned(),
            available: Availability::Yes,
            next: None,
            parameter: "/sys/module/kvm_amd/parameters/avic".into(),
            value: Some("Y".to_owned()),
        }),
        enabled: Some(true),
        enable_ipiv: None,
        kvm: None,
        iommus: Vec::new(),
        xen: false,
    }
}

fn inhibited() -> VmVerification {
    let reason = InhibitReason::PitReinject;
    let in_force = InForce { number: Some(9), reason: Some(reason), samples: 11, since_ns: None, changes: 0 };
    let vcpu = VcpuState {
        number: 0,
        active: Some(false),
        in_kernel_apic: Some(true),
        x2apic: Some(false),
        controls: Some(Controls::Svm { int_ctl: 0 }),
        posted_to: None,
    };
    let last = VmState {
        inhibits: Some(Inhibits(0x200)),
        irqchip: Some(Irqchip::Kernel),
        pit_reinjects: Some(true),
        vcpus: vec![vcpu, VcpuState { number: 1, ..vcpu }],
    };
    VmVerification {
        pid: 4711,
        name: "web\u{1b}[31m".to_owned(),
        vmm: Vmm::Qemu,
        which: None,
        activation: Activation {
            status: Status::Inhibited,
            mode: Some(Mode::None),
            reasons: vec![in_force],
            active_vcpus: 0,
            vcpus: 2,
            doubts: vec![Doubt::OnlyWithItSeen(3)],
        },
        cures: vec![ReasonCures {
            reason,
            set_by: reason.set_by().to_owned(),
            cures: reason.cures().to_vec(),
            next: None,
            managed: Vec::new(),
        }],
        ipi_virtualization: IpiVirtualization::Off(NoIpiVirtualization::Inhibited),
        devices: Vec::new(),
        state: Some(StateSeen {
            samples: vec![StateSample { inhibits: last.inhibits, active_vcpus: 0 }; 11],
            last,
        }),
        changes: Some(Vec::new()),
        exits: Some(ExitSigns { exits: 1234, windows: 12, ..ExitSigns::default() }),
    }
}

fn all(vms: Vec<VmVerification>, status: Status) -> Verification {
    Verification {
        format: 1,
        version: String::new(),
        status,
        host: host(),
        watched_ns: 2_000_000_000,
        vms,
        likely: Vec::new(),
        held: Vec::new(),
        provoked: None,
        missing: Vec::new(),
    }
}

/// The text without its line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_inhibited_vm_is_told_its_reason_its_cure_and_the_evidence() {
    let text = terminal(&all(vec![inhibited()], Status::Inhibited), 80, false);
    for wanted in [
        "inhibited by PIT_REINJ",
        "set in 11 of 11 samples; since before it was watched",
        "QEMU: -machine kernel-irqchip=split",
        "inhibit mask 0x200",
        "AVIC enable in the VMCB of 0",
        "PIT reinjects",
        "no change of inhibit reasons in 2.00 s",
        "12 interrupt windows",
        "AVIC is not active for the VM.",
    ] {
        assert!(flat(&text).contains(wanted), "{wanted}\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn another_vmm_is_not_told_qemus_settings() {
    let vm = VmVerification { vmm: Vmm::Other, ..inhibited() };
    let text = flat(&terminal(&all(vec![vm], Status::Inhibited), 80, false));
    assert!(text.contains("fix any VMM: KVM_REINJECT_CONTROL"), "{text}");
    for wrong in ["QEMU:", "libvirt:"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
}

#[test]
fn a_quiet_host_is_told_what_to_do_and_a_micro_vm_is_kept_apart() {
    let quiet = all(Vec::new(), Status::Unknown);
    let text = terminal(&quiet, 80, false);
    assert!(flat(&text).ends_with("--provoke shows what a new one would get."), "{text}");
    let provoked = Provoked {
        status: Status::Active,
        why: None,
        exits_per_eoi: ArmPair { off: Some(2.0), on: Some(0.01) },
        exits_per_ipi: ArmPair { off: None, on: None },
        checks: Vec::new(),
    };
    let text = terminal(&quiet.with(provoked), 80, true);
    assert!(text.contains("not one of the VMs above"), "{text}");
    assert!(text.contains("a new one gets AVIC"), "{text}");
    assert!(text.contains("\u{1b}[1;32m"), "{text}");
}

#[test]
fn a_control_domain_of_xen_is_not_said_to_run_vms_without_hardware() {
    let mut seen = all(Vec::new(), Status::Unknown);
    seen.host = HostSide {
        module: None,
        interrupt_virtualization: None,
        kvm: Some("is not there".to_owned()),
        xen: true,
        ..host()
    };
    let text = flat(&terminal(&seen, 100, false));
    assert!(text.contains("Xen this is its control domain"), "{text}");
    for wrong in ["no VM here", "neither vmx nor svm", "/dev/kvm", "--provoke"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    assert!(text.ends_with("what it leaves: `exitless stat --by vm,reason`."), "{text}");
}

#[test]
fn a_vm_on_a_cpu_without_avic_is_not_told_to_load_the_module_with_it() {
    let mut vm = inhibited();
    let reason = InhibitReason::Disabled;
    vm.activation.reasons = vec![InForce { reason: Some(reason), ..vm.activation.reasons[0].clone() }];
    let (why, next) = ("the CPU or its firmware offers no AVIC", "look for AVIC in the firmware's setup");
    vm.cures = vec![ReasonCures {
        reason,
        set_by: why.to_owned(),
        cures: Vec::new(),
        next: Some(next.to_owned()),
        managed: Vec::new(),
    }];
    let mut seen = all(vec![vm], Status::Inhibited);
    seen.host.interrupt_virtualization.as_mut().unwrap().available = Availability::No(why.to_owned());
    seen.host.interrupt_virtualization.as_mut().unwrap().next = Some(next.to_owned());
    let text = flat(&terminal(&seen, 80, false));
    assert!(text.contains(&format!("set by {why}")) && text.contains(&format!("fix {next}")), "{text}");
    assert!(!text.contains("options kvm_amd"), "{text}");
    let text = flat(&terminal(&Verification { vms: Vec::new(), ..seen }, 80, false));
    assert!(text.contains(next) && !text.contains("the module has it off"), "{text}");
}

#[test]
fn one_exit_is_not_many_and_writes_of_cr8_name_their_fault() {
    let mut vm = inhibited();
    vm.activation.doubts = vec![Doubt::Cr8WritesSeen(1)];
    let signs = ExitSigns { exits: 9, windows: 1, cr8_writes: 1, handed_back: 1, ..ExitSigns::default() };
    vm.exits = Some(signs);
    let text = flat(&terminal(&all(vec![vm], Status::Active), 80, false));
    for wanted in [
        "removes: 1 interrupt window, 1 CR8 write;",
        "1 register access handed back",
        "1 CR8 write although AVIC is active",
        "6.12.78",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn what_is_active_for_a_part_of_the_time_is_told_so() {
    let mut vm = inhibited();
    vm.activation = Activation {
        status: Status::Partly,
        mode: Some(Mode::X2avic),
        reasons: Vec::new(),
        active_vcpus: 0,
        vcpus: 2,
        doubts: vec![
            Doubt::SometimesInactive { vcpus: vec![0, 1], samples: 10 },
            Doubt::RegisterWritesSeen(4000),
        ],
    };
    let text = flat(&terminal(&all(vec![vm], Status::Inhibited), 80, false));
    for wanted in [
        "x2AVIC active part of the time",
        "Not active for vCPU 0, 1 in up to 10 of 11 samples",
        "emulated writes of EOI or TPR, which the CPU handles itself",
        "AVIC is active for only some vCPUs of the VM, or part of the time.",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let mut seen = all(vec![inhibited()], Status::Inhibited);
    seen.missing.push(Missing { what: "exits", pid: Some(7), why: "run as root".to_owned() });
    assert!(terminal(&seen, 80, false).contains("exits of process 7: run as root"));
    seen.likely.push(LikelyVm { pid: 8, command: "kvm".to_owned(), vcpu_threads: 2 });
    let told = flat(&terminal(&seen, 80, false));
    assert!(
        told.contains(&format!("Process 8 (kvm) looks like a VM and cannot be inspected; {AS_ROOT}")),
        "{told}"
    );
    seen.vms[0].activation.status = Status::Active;
    seen.likely.clear();
    seen.held.push(HeldProcess { pid: 9, command: "kvm".to_owned() });
    let told = flat(&terminal(&seen, 80, false));
    assert!(told.ends_with("It is not known whether AVIC is active for 1 VM."), "{told}");
}
