use super::*;
use crate::record::{records, written};
use exits::{InhibitReason, Inhibits};
use proptest::prelude::*;

const EXIT: &str = include_str!("../../tracepoints/tests/fixtures/kvm_exit.format");
const ENTRY: &str = include_str!("../../tracepoints/tests/fixtures/kvm_entry.format");
const INHIBIT: &str = include_str!("../../tracepoints/tests/fixtures/kvm_apicv_inhibit_changed.format");

const NPF: ExitReason = ExitReason::svm(0x400);
const MSR: ExitReason = ExitReason::svm(0x7c);

fn decoder() -> Decoder {
    let [exit, entry, inhibit] = [EXIT, ENTRY, INHIBIT].map(|text| EventFormat::parse(text).unwrap());
    Decoder::new(&exit, &entry, Some(InhibitFields::new(&inhibit, None).unwrap())).unwrap()
}

/// A record of the format with these values in the named fields; all other fields are zero.
fn raw(format: &str, values: &[(&str, u64)]) -> Vec<u8> {
    let format = EventFormat::parse(format).unwrap();
    let end = format.fields.iter().map(|field| field.offset + field.size).max().unwrap();
    let mut bytes = vec![0; end];
    let id = ("common_type", u64::from(format.id));
    for &(name, value) in values.iter().chain([&id]) {
        let field = format.field(name).unwrap();
        bytes[field.offset..field.offset + field.size].copy_from_slice(&value.to_ne_bytes()[..field.size]);
    }
    bytes
}

fn exit(time_ns: u64, reason: ExitReason) -> Vec<u8> {
    let isa = if reason.isa == Isa::Vmx { 1 } else { 2 };
    written::sample(1, time_ns, &raw(EXIT, &[("exit_reason", reason.code.into()), ("isa", isa)]))
}

fn entry(time_ns: u64) -> Vec<u8> {
    written::sample(1, time_ns, &raw(ENTRY, &[]))
}

fn decode(stretches: &[Vec<u8>], exits: u64) -> ThreadExits {
    decoder().decode(1, records(&stretches.concat()), exits, &mut Carried::default())
}

#[test]
fn exits_pair_with_the_next_entry() {
    let found =
        decode(&[entry(5), exit(100, NPF), entry(350), exit(400, MSR), entry(410), exit(500, MSR)], 3);
    assert_eq!(found.counts.get(NPF), 1);
    assert_eq!(found.counts.get(MSR), 2);
    assert_eq!(found.counts.lost, 0);
    assert_eq!(found.handling[&NPF].total_ns(), 250);
    assert_eq!(found.handling[&MSR].count(), 1);
    assert_eq!(found.unpaired, 0);
}

#[test]
fn no_pair_across_a_loss_and_losses_are_exact() {
    let found = decode(&[exit(100, NPF), written::lost(3), entry(900)], 3);
    assert!(found.handling.is_empty());
    assert_eq!((found.unpaired, found.lost_records, found.counts.lost), (1, 3, 2));
}

#[test]
fn losses_at_the_end_leave_no_record_but_are_counted() {
    let mut carried = Carried::default();
    let decoder = decoder();
    let first = decoder.decode(1, records(&exit(100, NPF)), 10, &mut carried);
    assert_eq!(first.counts.lost, 9);
    let second = decoder.decode(1, records(&entry(130)), 10, &mut carried);
    assert_eq!(second.counts.lost, 0);
    assert_eq!(second.handling[&NPF].total_ns(), 30);
    carried.interrupt();
}

#[test]
fn samples_that_outrun_the_total_are_no_loss() {
    let mut carried = Carried::default();
    let bytes = [exit(1, NPF), exit(2, NPF)].concat();
    assert_eq!(decoder().decode(1, records(&bytes), 1, &mut carried).counts.lost, 0);
    assert_eq!(decoder().decode(1, records(&[]), 5, &mut carried).counts.lost, 3);
}

#[test]
fn two_exits_in_a_row_and_a_clock_that_runs_back() {
    let found = decode(&[exit(100, NPF), exit(200, MSR), entry(150)], 2);
    assert_eq!(found.unpaired, 2);
    assert!(found.handling.is_empty());
}

#[test]
fn vmx_flags_and_unknown_instruction_sets() {
    let odd = written::sample(1, 1, &raw(EXIT, &[("isa", 9)]));
    let found = decode(&[exit(1, ExitReason::vmx(0x8000_0021)), odd], 2);
    assert_eq!(found.counts.get(ExitReason::vmx(0x8000_0021)), 1);
    assert_eq!((found.undecoded, found.counts.lost), (1, 0));
}

#[test]
fn inhibit_changes_have_names() {
    let change = raw(INHIBIT, &[("reason", 9), ("set", 1), ("inhibits", 1 << 9)]);
    let found = decode(&[written::sample(33, 70, &change)], 0);
    let change = found.inhibits[0];
    assert_eq!((change.thread, change.time_ns, change.set, change.number), (33, 70, true, 9));
    assert_eq!(change.reason, Some(InhibitReason::PitReinject));
    assert_eq!(change.mask, Some(Inhibits(1 << 9)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), exits: u64) {
        let _ = decoder().decode(1, records(&bytes), exits, &mut Carried::default());
    }

    #[test]
    fn every_exit_is_recorded_or_lost(kept in proptest::collection::vec(any::<bool>(), 0..60)) {
        let stream: Vec<_> = kept
            .iter()
            .enumerate()
            .map(|(at, &keep)| if keep { exit(at as u64, NPF) } else { written::lost(1) })
            .collect();
        let found = decode(&stream, kept.len() as u64);
        prop_assert_eq!(found.counts.total() + found.counts.lost, kept.len() as u64);
    }
}
