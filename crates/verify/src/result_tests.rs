use super::*;
use conclusions::activation::Mode;

fn vm(status: Status) -> VmVerification {
    VmVerification {
        pid: 1,
        name: "web".to_owned(),
        vmm: Vmm::Qemu,
        which: None,
        activation: Activation {
            status,
            mode: Some(Mode::None),
            reasons: Vec::new(),
            active_vcpus: 0,
            vcpus: 0,
            doubts: Vec::new(),
        },
        cures: Vec::new(),
        ipi_virtualization: IpiVirtualization::Unknown,
        devices: Vec::new(),
        state: None,
        changes: None,
        exits: None,
    }
}

fn all(statuses: &[Status], enabled: Option<bool>, likely: bool) -> Verification {
    Verification {
        format: FORMAT,
        version: String::new(),
        status: Status::Unknown,
        host: HostSide {
            kernel: None,
            cpu: None,
            module: None,
            isa: None,
            interrupt_virtualization: None,
            enabled,
            enable_ipiv: None,
            kvm: None,
            iommus: Vec::new(),
            xen: false,
        },
        watched_ns: 0,
        vms: statuses.iter().copied().map(vm).collect(),
        likely: likely
            .then(|| LikelyVm { pid: 2, command: "qemu".to_owned(), vcpu_threads: 1 })
            .into_iter()
            .collect(),
        held: Vec::new(),
        provoked: None,
        missing: Vec::new(),
    }
}

#[test]
fn one_inhibited_vm_decides_then_one_that_cannot_be_told() {
    use Status::{Active, Inhibited, Partly, Unknown};
    let table: [(&[Status], Option<bool>, bool, Status); 9] = [
        (&[Active, Active], Some(true), false, Active),
        (&[Active, Inhibited, Unknown], Some(true), false, Inhibited),
        (&[Active, Partly], Some(true), false, Inhibited),
        (&[Active, Unknown], Some(true), false, Unknown),
        (&[Active], Some(true), true, Unknown),
        (&[Inhibited], Some(true), true, Inhibited),
        (&[], Some(true), false, Unknown),
        (&[], Some(false), false, Inhibited),
        (&[], None, false, Unknown),
    ];
    for (statuses, enabled, likely, expected) in table {
        assert_eq!(all(statuses, enabled, likely).overall(), expected, "{statuses:?} {enabled:?} {likely}");
        let held = vec![HeldProcess { pid: 2, command: "qemu".to_owned() }];
        let blocked = Verification { held, ..all(statuses, enabled, likely) };
        assert_eq!(blocked.overall(), all(statuses, enabled, true).overall(), "{statuses:?} {enabled:?}");
    }
}

#[test]
fn a_micro_vm_speaks_for_new_vms_only() {
    let provoked = |status| Provoked {
        status,
        why: None,
        exits_per_eoi: ArmPair { off: None, on: None },
        exits_per_ipi: ArmPair { off: None, on: None },
        checks: Vec::new(),
    };
    let quiet = all(&[], Some(true), false);
    assert_eq!(quiet.clone().with(provoked(Status::Active)).status, Status::Active);
    assert_eq!(quiet.with(provoked(Status::Inhibited)).status, Status::Inhibited);
    let running = all(&[Status::Inhibited], Some(true), false);
    assert_eq!(running.with(provoked(Status::Active)).status, Status::Inhibited);
}
