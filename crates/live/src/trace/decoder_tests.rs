use super::*;
use crate::trace::Destination;
use exits::{InhibitReason, Inhibits};
use proptest::prelude::*;

const FORMATS: &str = include_str!("../../../tracepoints/tests/fixtures/all-of-kvm.formats");

fn format(name: &str) -> EventFormat {
    let start = FORMATS.find(&format!("name: {name}\n")).unwrap();
    let text = &FORMATS[start..];
    let end = text[1..].find("\nname: ").map_or(text.len(), |end| end + 2);
    EventFormat::parse(&text[..end]).unwrap()
}

fn decoder(kind: EventKind) -> (Decoder, EventFormat) {
    let format = format(kind.tracepoints()[0]);
    (Decoder::new(kind, &format, None).unwrap(), format)
}

/// A record with these values in the named fields.
fn raw(format: &EventFormat, values: &[(&str, u64)]) -> Vec<u8> {
    let mut raw = vec![0; 80];
    for (name, value) in values {
        let field = format.field(name).unwrap_or_else(|| panic!("{name}"));
        raw[field.offset..][..field.size].copy_from_slice(&value.to_ne_bytes()[..field.size]);
    }
    raw
}

fn event(kind: EventKind, values: &[(&str, u64)]) -> Option<Event> {
    let (decoder, format) = decoder(kind);
    let raw = raw(&format, values);
    decoder.decode(3, &Sample { pid: 7, tid: 8, time_ns: 9, raw: &raw })
}

fn what(kind: EventKind, values: &[(&str, u64)]) -> What {
    let event = event(kind, values).unwrap();
    assert_eq!(event.what.kind(), kind);
    event.what
}

#[test]
fn every_kind_of_this_kernel_has_its_fields() {
    for kind in EventKind::all() {
        let (decoder, format) = decoder(kind);
        assert_eq!((decoder.kind, decoder.id), (kind, format.id));
        assert!(event(kind, &[]).is_some() == (kind != EventKind::IrqWindow), "{kind}");
    }
}

#[test]
fn the_place_and_the_context_are_kept() {
    let of = |flags| event(EventKind::GaLog, &[("common_flags", flags)]).unwrap();
    let event = of(0x01);
    assert_eq!((event.cpu, event.pid, event.tid, event.time_ns), (3, 7, 8, 9));
    assert!(!event.in_interrupt && of(0x08).in_interrupt && of(0x11).in_interrupt && of(0x40).in_interrupt);
}

#[test]
fn only_windows_pass() {
    let (decoder, _) = decoder(EventKind::IrqWindow);
    let filter = "(isa == 1 && exit_reason == 7) || (isa == 2 && exit_reason == 100)";
    assert_eq!(decoder.filter().unwrap(), filter);
    let at = |isa, reason| {
        event(
            EventKind::IrqWindow,
            &[("isa", isa), ("exit_reason", reason), ("vcpu_id", 2), ("guest_rip", 0xffff_ffff_8100_0000)],
        )
    };
    let window = |isa, reason| at(isa, reason).unwrap().what;
    let rip = 0xffff_ffff_8100_0000;
    assert_eq!(window(1, 7), What::IrqWindow { vcpu: Some(2), reason: ExitReason::vmx(7), rip });
    assert_eq!(window(2, 0x64), What::IrqWindow { vcpu: Some(2), reason: ExitReason::svm(0x64), rip });
    assert!([at(1, 0x64), at(2, 7), at(0, 7), at(1, 12)].iter().all(Option::is_none));
}

#[test]
fn inhibit_reasons_have_this_kernels_names() {
    let change = what(EventKind::Inhibit, &[("reason", 9), ("set", 1), ("inhibits", 0x204)]);
    let What::Inhibit(change) = change else { panic!("{change:?}") };
    assert_eq!((change.set, change.reason), (true, Some(InhibitReason::PitReinject)));
    assert_eq!((change.mask, change.thread), (Some(Inhibits(0x204)), 8));
    assert!(decoder(EventKind::Inhibit).0.numbering().unwrap().is_stated());
}

#[test]
fn avics_events() {
    let ga_log = what(EventKind::GaLog, &[("vmid", 0x1000), ("vcpuid", 5)]);
    assert_eq!(ga_log, What::GaLog { avic_vm: 0x1000, tag_vcpu: 5 });
    assert_eq!(ga_log.vcpu(), None, "an ID or an index");
    let ipi = [("vcpu", 1), ("icrh", 0x0200_0000), ("icrl", 0x8fd), ("id", 1), ("index", 2)];
    let What::IncompleteIpi { vcpu, ipi, cause, index } = what(EventKind::IncompleteIpi, &ipi) else {
        panic!("no IPI");
    };
    assert_eq!((vcpu, cause, index), (1, 1, 2));
    assert_eq!((ipi.destination, ipi.vector), (Destination::Logical(2), 0xfd));
    let access = [("vcpu", 1), ("offset", 0xb0), ("ft", 1), ("rw", 1), ("vec", 0x51)];
    let direction = Direction::Write;
    assert_eq!(
        what(EventKind::Unaccelerated, &access),
        What::Unaccelerated { vcpu: 1, register: 0xb0, direction, trap: true, vector: 0x51 }
    );
    let What::Kick { ipi, index } = what(EventKind::Kick, &[("icrh", 7), ("icrl", 0xfd), ("index", 7)])
    else {
        panic!("no kick");
    };
    assert_eq!((ipi.destination, index), (Destination::Physical(7), 7));
}

#[test]
fn interrupts_and_their_ends() {
    let irq = [("apicid", 3), ("dm", 0x100), ("tm", 1), ("vec", 0x41)];
    let mode = DeliveryMode::LowestPriority;
    assert_eq!(
        what(EventKind::AcceptIrq, &irq),
        What::AcceptIrq { vcpu: 3, mode, level: true, vector: 0x41 }
    );
    let eoi = what(EventKind::PvEoi, &[("apicid", 3), ("vector", u64::MAX)]);
    assert_eq!(eoi, What::PvEoi { apic_id: 3, vector: -1 });
}

#[test]
fn posted_interrupts_of_several_kernels() {
    let values = [
        ("host_irq", 45),
        ("vcpu_id", 1),
        ("gsi", 24),
        ("gvec", 0x31),
        ("pi_desc_addr", 0x1_0000_0040),
        ("set", 1),
    ];
    let update = IrteUpdate {
        posted: true,
        host_irq: 45,
        vcpu: Some(1),
        gsi: 24,
        vector: 0x31,
        descriptor: Some(0x1_0000_0040),
    };
    assert_eq!(what(EventKind::PostedInterrupt, &values), What::PostedInterrupt(update));

    // Linux 6.17 dropped the address, and reports -1 if there is no vCPU.
    let mut format = format("kvm_pi_irte_update");
    format.fields.retain(|field| field.name != "pi_desc_addr");
    let decoder = Decoder::new(EventKind::PostedInterrupt, &format, None).unwrap();
    let raw = raw(&format, &[("host_irq", 45), ("vcpu_id", u64::MAX), ("gsi", 24)]);
    let event = decoder.decode(0, &Sample { pid: 0, tid: 0, time_ns: 0, raw: &raw }).unwrap();
    let gone = IrteUpdate { posted: false, vcpu: None, vector: 0, descriptor: None, ..update };
    assert_eq!(event.what, What::PostedInterrupt(gone));
}

#[test]
fn a_field_that_is_not_there_is_named() {
    let mut format = format("kvm_avic_ga_log");
    format.fields.retain(|field| field.name != "vmid");
    let error = Decoder::new(EventKind::GaLog, &format, None).unwrap_err();
    assert!(error.to_string().contains("`vmid`"), "{error}");
}

proptest! {
    #[test]
    fn no_record_panics(raw in proptest::collection::vec(any::<u8>(), 0..80)) {
        for kind in EventKind::all() {
            let (decoder, _) = decoder(kind);
            let _ = decoder.decode(0, &Sample { pid: 1, tid: 1, time_ns: 1, raw: &raw });
        }
    }
}
