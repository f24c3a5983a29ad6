use super::*;
use exits::ExitReason;
use proptest::prelude::*;

fn read(line: &str) -> Option<(Kind, u64, u64)> {
    let (name, text) = line.split_once(": ").unwrap();
    Name::find(name.as_bytes()).unwrap().read(text.trim().as_bytes(), &mut Reasons::new())
}

#[test]
fn exits_of_all_writers() {
    let npf = Event::exit(ExitReason::svm(0x400));
    let lines = [
        // Linux 4.x and 5.x, Linux 6.x, the plug-in, raw fields of trace-cmd and of tracefs.
        ("kvm_exit: reason npf rip 0x8bb4 info 200000006 1000", npf),
        ("kvm_exit: vcpu 0 reason npf rip 0x8bb4 info1 0x0000000200000006 info2 0x0000000000001000", npf),
        ("kvm_exit:             reason EXIT_NPF rip 0x8bb4 info 200000006 1000", npf),
        ("kvm_exit:  exit_reason=1024 guest_rip=0x8bb4 isa=2 info1=0x0000000200000006 vcpu_id=0", npf),
        ("kvm_exit: exit_reason=0x400 (1024) guest_rip=0x8bb4 (35764) isa=0x2 (2) info1=0x2 (2)", npf),
        ("kvm_exit: vcpu 1 reason DE excp rip 0x8bb4 info1 0x0", Event::exit(ExitReason::svm(0x40))),
        ("kvm_exit: reason MSR_WRITE rip 0x8bb4 info 0 0", Event::exit(ExitReason::vmx(32))),
        (
            "kvm_exit: vcpu 1 reason INVALID_STATE FAILED_VMENTRY rip 0x8bb4 info1 0x0",
            Event::exit(ExitReason::vmx(0x8000_0021)),
        ),
    ];
    for (line, reason) in lines {
        assert_eq!(read(line), Some((Kind::Exit, reason, 0x8bb4)), "{line}");
    }
    // Truncated, unknown, of another architecture.
    for line in
        ["reason np", "reason nonsense rip 0x1", "TRAP: DABT_LOW: 0x0024", "exit_reason=1 guest_rip=0x1"]
    {
        assert_eq!(read(&format!("kvm_exit: {line}")), None, "{line}");
    }
}

#[test]
fn other_events_of_all_writers() {
    let lines = [
        ("kvm_entry: vcpu 12", (Kind::Entry, 12, 0)),
        ("kvm_entry: vcpu 3, rip 0xffffffff81000000", (Kind::Entry, 3, 0)),
        ("kvm_entry:              vcpu 1 rip 0x8bb4", (Kind::Entry, 1, 0)),
        ("kvm_entry: vcpu_id=0x2 (2) rip=0x8bb4 (35764) immediate_exit=(0)", (Kind::Entry, 2, 0)),
        ("kvm_pio: pio_write at 0xf0 size 1 count 1 val 0xff ", (Kind::PortWrite, 0xf0, 0xff)),
        ("kvm_pio: pio_read at 0x3fd size 1 count 8 val 0x60 (...)", (Kind::PortRead, 0x3fd, 0x60)),
        ("kvm_pio:   rw=1 port=0xf0 size=1 count=1 val=0xff", (Kind::PortWrite, 0xf0, 0xff)),
        ("kvm_pio: rw=0x0 (0) port=0xf0 (240) size=0x1 (1)", (Kind::PortRead, 0xf0, 0)),
        ("kvm_mmio: mmio write len 4 gpa 0xfee000f0 val 0x1ff", (Kind::MmioWrite, 0xfee0_00f0, 0x1ff)),
        (
            "kvm_mmio: mmio unsatisfied-read len 4 gpa 0xd0000aa0 val 0x0",
            (Kind::MmioUnsatisfied, 0xd000_0aa0, 0),
        ),
        ("kvm_mmio: mmio read len 4 gpa 0xd0000aa0 val 0x7", (Kind::MmioRead, 0xd000_0aa0, 7)),
        ("kvm_mmio: type=2 len=4 gpa=0xfee000f0 val=0x1ff", (Kind::MmioWrite, 0xfee0_00f0, 0x1ff)),
        ("kvm_fast_mmio: fast mmio at gpa 0xfe003000", (Kind::FastMmio, 0xfe00_3000, 0)),
        ("kvm_fast_mmio: gpa=0xfe003000", (Kind::FastMmio, 0xfe00_3000, 0)),
        ("kvm_msr: msr_read 1b = 0xfee00900", (Kind::MsrRead, 0x1b, 0xfee0_0900)),
        ("kvm_msr: msr_write c0000080 = 0x0 (#GP)", (Kind::MsrWrite, 0xc000_0080, 0)),
        ("kvm_msr: write=0 ecx=1b data=0xfee00900 exception=0", (Kind::MsrRead, 0x1b, 0xfee0_0900)),
        ("kvm_msr: write=0x1 (1) ecx=0x1b (27) data=0x5 (5) exception=(0)", (Kind::MsrWrite, 0x1b, 5)),
        ("kvm_apic: apic_write APIC_EOI = 0x0", (Kind::ApicWrite, 0xb0, 0)),
        ("kvm_apic: apic_read 0x2f0 = 0x10000", (Kind::ApicRead, 0x2f0, 0x1_0000)),
        ("kvm_apic: rw=1 reg=240 val=0x1ff", (Kind::ApicWrite, 0xf0, 0x1ff)),
        (
            "kvm_avic_incomplete_ipi: vcpu=1, icrh:icrl=0x00000001:000008fd, id=1, index=0",
            (Kind::IncompleteIpi, 1, 0x1_0000_08fd),
        ),
        (
            "kvm_avic_unaccelerated_access: vcpu=0, offset=0xb0(APIC_EOI), trap, write, vec=0xffffffff",
            (Kind::UnacceleratedWrite, 0xb0, 0),
        ),
        (
            "kvm_avic_unaccelerated_access: vcpu=0, offset=0x320(APIC_LVTT), fault, read, vec=0x0",
            (Kind::UnacceleratedRead, 0x320, 0),
        ),
        (
            "kvm_avic_unaccelerated_access: vcpu=0 offset=0x320 ft=1 rw=1 vec=0",
            (Kind::UnacceleratedWrite, 0x320, 0),
        ),
        // Nested guests: since Linux 5.13, before, and for L1.
        (
            "kvm_nested_vmexit: vcpu 0 reason msr rip 0x8bb4 info1 0x1 info2 0x0 intr_info 0x0 error_code 0x0",
            (Kind::NestedExit, Event::exit(ExitReason::svm(0x7c)), 0),
        ),
        (
            "kvm_nested_vmexit: rip: 0x0000000000008bb4 reason: EXTERNAL_INTERRUPT info1: 0x0000000000000000",
            (Kind::NestedExit, Event::exit(ExitReason::vmx(1)), 0),
        ),
        (
            "kvm_nested_vmexit_inject: reason: npf ext_inf1: 0x0000000100000006 ext_inf2: 0x0000000000001000",
            (Kind::NestedToL1, Event::exit(ExitReason::svm(0x400)), 0),
        ),
        (
            "kvm_nested_vmexit_inject: exit_code=1 exit_info1=0x0 isa=1",
            (Kind::NestedToL1, Event::exit(ExitReason::vmx(1)), 0),
        ),
    ];
    for (line, event) in lines {
        assert_eq!(read(line), Some(event), "{line}");
    }
    for line in
        ["kvm_msr: 1b = 0x3", "kvm_pio: at 0x3f8", "kvm_mmio: mmio fetch gpa 0x1", "kvm_entry: rip 0x3"]
    {
        assert_eq!(read(line), None, "{line}");
    }
    for name in ["exit", "kvm_exit_more", "kvm_userspace_exit", "kvm_", ""] {
        assert_eq!(Name::find(name.as_bytes()), None, "{name}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(
        text in "((vcpu|reason|rip|at|gpa|mmio|write|msr_read|apic_write|icrh:icrl=|offset=|rw=|isa=|0x)[ =,:(0-9a-f]{0,4}){0,6}"
    ) {
        let mut reasons = Reasons::new();
        let names = [Name::Exit, Name::Entry, Name::Port, Name::Mmio, Name::Msr, Name::Apic, Name::IncompleteIpi, Name::Unaccelerated];
        for name in names {
            let _ = name.read(text.as_bytes(), &mut reasons);
        }
    }
}
