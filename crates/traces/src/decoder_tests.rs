use super::*;
use proptest::prelude::*;

/// Every event of KVM in Linux 6.12: concatenated `format` files.
const ALL: &str = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");

fn formats() -> Vec<EventFormat> {
    let texts = ALL.split("name: ").skip(1).map(|text| format!("name: {text}"));
    texts.map(|text| EventFormat::parse(&text).unwrap()).collect()
}

fn decoder() -> Decoder {
    let mut decoder = Decoder::new();
    formats().iter().for_each(|format| decoder.add("kvm", format));
    decoder
}

/// A record of this event with these values in the named fields.
fn record(name: &str, fields: &[(&str, u64)]) -> Vec<u8> {
    let formats = formats();
    let format = formats.iter().find(|format| format.name == name).unwrap();
    let size = format.fields.iter().map(|field| field.offset + field.size).max().unwrap();
    let mut raw = vec![0; size];
    raw[..2].copy_from_slice(&format.id.to_le_bytes());
    for (name, value) in fields {
        let field = format.field(name).unwrap();
        raw[field.offset..field.offset + field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
    }
    raw
}

fn blank() -> Event {
    Event { time_ns: 1, value: 0, extra: 0, thread: 2, cpu: 3, kind: Kind::Exit }
}

fn decoded(name: &str, fields: &[(&str, u64)]) -> (Kind, u64, u64) {
    let (mut event, mut counts) = (blank(), Counts::new());
    assert_eq!(decoder().decode(&record(name, fields), &mut event, &mut counts), Decoded::Event);
    assert_eq!(counts.iter().sum::<u64>(), 1);
    (event.kind, event.value, event.extra)
}

#[test]
fn every_event_of_interest() {
    let exit = decoded("kvm_exit", &[("exit_reason", 0x8000_0021), ("isa", 1), ("guest_rip", 0xffff_8000)]);
    assert_eq!(exit, (Kind::Exit, Event::exit(ExitReason::vmx(0x8000_0021)), 0xffff_8000));
    assert_eq!(decoded("kvm_entry", &[("vcpu_id", 3)]), (Kind::Entry, 3, 0));
    let pio = decoded("kvm_pio", &[("rw", 1), ("port", 0x3f8), ("val", 65)]);
    assert_eq!(pio, (Kind::PortWrite, 0x3f8, 65));
    let mmio = [("gpa", 0xfee0_00b0), ("val", 7)];
    for (number, kind) in [(0, Kind::MmioUnsatisfied), (1, Kind::MmioRead), (2, Kind::MmioWrite)] {
        let fields = [&mmio[..], &[("type", number)]].concat();
        assert_eq!(decoded("kvm_mmio", &fields), (kind, 0xfee0_00b0, 7));
    }
    let notification = decoded("kvm_fast_mmio", &[("gpa", 0xfe00_3000)]);
    assert_eq!(notification, (Kind::FastMmio, 0xfe00_3000, 0));
    assert_eq!(decoded("kvm_msr", &[("ecx", 0x830), ("data", 9)]), (Kind::MsrRead, 0x830, 9));
    assert_eq!(decoded("kvm_apic", &[("rw", 1), ("reg", 0xb0)]), (Kind::ApicWrite, 0xb0, 0));
    let ipi = decoded("kvm_avic_incomplete_ipi", &[("id", 1), ("icrh", 2), ("icrl", 0xfd)]);
    assert_eq!(ipi, (Kind::IncompleteIpi, 1, 0x2_0000_00fd));
    let access = decoded("kvm_avic_unaccelerated_access", &[("offset", 0x380), ("rw", 1)]);
    assert_eq!(access, (Kind::UnacceleratedWrite, 0x380, 0));
}

#[test]
fn others_are_counted_by_name() {
    let (decoder, mut counts) = (decoder(), Counts::new());
    let record = record("kvm_inj_virq", &[]);
    assert_eq!(decoder.decode(&record, &mut blank(), &mut counts), Decoded::Other);
    let counted: Vec<_> = decoder.names().zip(&counts).filter(|(_, count)| **count > 0).collect();
    assert_eq!(counted, [("kvm:kvm_inj_virq", &1)]);
}

#[test]
fn what_cannot_be_is_not_guessed() {
    let (decoder, mut counts) = (decoder(), Counts::new());
    let mut decode = |raw: &[u8]| decoder.decode(raw, &mut blank(), &mut counts);
    let exit = record("kvm_exit", &[("isa", 1)]);
    assert_eq!(decode(&exit), Decoded::Event);
    assert_eq!(decode(&exit[..10]), Decoded::Undecoded);
    assert_eq!(decode(&record("kvm_exit", &[("isa", 3)])), Decoded::Undecoded);
    assert_eq!(decode(&record("kvm_mmio", &[("type", 3)])), Decoded::Undecoded);
    assert_eq!(decode(&u16::MAX.to_le_bytes()), Decoded::Other);
    assert_eq!(decode(&[]), Decoded::Other);
}

#[test]
fn exits_of_another_architecture_are_none() {
    let text = "name: kvm_exit\nID: 40\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                \tfield:int ret;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
    let mut decoder = Decoder::new();
    decoder.add("kvm", &EventFormat::parse(text).unwrap());
    assert!(!decoder.has_exits());
    assert!(super::tests::decoder().has_exits());
}

proptest! {
    #[test]
    fn no_bytes_panic(id in 1560..1660u16, mut raw in proptest::collection::vec(any::<u8>(), 2..80)) {
        raw[..2].copy_from_slice(&id.to_le_bytes());
        let _ = decoder().decode(&raw, &mut blank(), &mut Counts::new());
    }
}

#[test]
fn exits_of_nested_guests_are_decoded_by_the_formats_of_a_real_kernel() {
    let formats = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");
    let mut decoder = Decoder::new();
    let mut ids = Vec::new();
    for name in ["kvm_nested_vmexit", "kvm_nested_vmexit_inject"] {
        let start = formats.find(&format!("name: {name}\n")).unwrap();
        let text = &formats[start..];
        let end = text[5..].find("name: ").map_or(text.len(), |at| at + 5);
        let format = EventFormat::parse(&text[..end]).unwrap();
        ids.push(format.id);
        decoder.add("kvm", &format);
    }
    for (id, isa_at, kind) in [(ids[0], 24, Kind::NestedExit), (ids[1], 40, Kind::NestedToL1)] {
        let mut raw = vec![0; 64];
        raw[..2].copy_from_slice(&id.to_le_bytes());
        raw[8..12].copy_from_slice(&0x7cu32.to_le_bytes());
        raw[isa_at] = 2;
        let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
        let mut counts = vec![0; decoder.slots()];
        assert_eq!(decoder.decode(&raw, &mut event, &mut counts), Decoded::Event);
        assert_eq!((event.kind, event.reason()), (kind, ExitReason::svm(0x7c)));
    }
}
