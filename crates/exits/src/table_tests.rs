use super::*;
use crate::{Access, Dimension, Direction, ExitReason, Vcpu, Whose};
use proptest::prelude::*;

const HLT: ExitReason = ExitReason::vmx(12);
const IO: ExitReason = ExitReason::vmx(30);
const NPF: ExitReason = ExitReason::svm(0x400);
const PORT: Access = Access::Port { port: 0x60, direction: Direction::Read };
const ICR: Access = Access::Msr { number: 0x830, direction: Direction::Write };

fn vcpu(vm: u32, number: u32) -> Vcpu {
    Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + number) }
}

fn profile(exits: &[(Vcpu, ExitReason, &[u64])]) -> Profile {
    let mut profile = Profile::new();
    for &(vcpu, reason, times) in exits {
        let row = profile.vcpu(vcpu).reasons.entry(reason).or_default();
        row.count += times.len() as u64;
        times.iter().for_each(|&ns| row.handling.add(ns));
    }
    profile
}

fn two_vms() -> Profile {
    let mut profile = profile(&[
        (vcpu(10, 0), HLT, &[900, 100]),
        (vcpu(10, 0), IO, &[20, 20, 20]),
        (vcpu(10, 1), HLT, &[500]),
        (vcpu(20, 0), NPF, &[70, 70, 70, 70]),
    ]);
    // An exit without an entry.
    profile.vcpu(vcpu(20, 0)).reasons.entry(HLT).or_default().count += 1;
    for (vcpu, access, count) in [(vcpu(10, 0), PORT, 3), (vcpu(10, 1), ICR, 2), (vcpu(20, 0), ICR, 1)] {
        profile.vcpu(vcpu).accesses.entry(access).or_default().count += count;
    }
    profile.vcpu(vcpu(20, 0)).accesses.entry(Access::Other).or_default().count += 7;
    profile
}

fn grouped(dimensions: &[Dimension]) -> Table {
    Table::new(&two_vms(), Grouping::new(dimensions.iter().copied()).unwrap())
}

fn reasons_by(order: Order) -> Vec<ExitReason> {
    let mut table = grouped(&[Dimension::Reason]);
    table.sort(order);
    table.rows().iter().filter_map(|row| row.key.what.reason()).collect()
}

#[test]
fn every_order_puts_its_own_first() {
    assert_eq!(reasons_by(Order::Samples), [NPF, HLT, IO]);
    // With equal exits, the reason with more samples is first.
    assert_eq!(reasons_by(Order::Exits), [NPF, HLT, IO]);
    assert_eq!(reasons_by(Order::Time), [HLT, NPF, IO]);
    assert_eq!(reasons_by(Order::Min), [HLT, NPF, IO]);
    assert_eq!(reasons_by(Order::Max), [HLT, NPF, IO]);
    assert_eq!(reasons_by(Order::Mean), [HLT, NPF, IO]);
    assert_eq!(reasons_by(Order::P99), [HLT, NPF, IO]);
    assert_eq!(reasons_by(Order::Name), [HLT, IO, NPF]);
    for (order, name) in Order::ALL {
        assert_eq!(name.parse(), Ok(order));
        assert_eq!(order.to_string(), name);
        assert!("".parse::<Order>().unwrap_err().to_string().contains(name));
    }
}

#[test]
fn a_row_without_times_comes_last() {
    let mut sum = profile(&[(vcpu(1, 0), IO, &[3])]);
    sum.vcpu(vcpu(1, 0)).reasons.entry(HLT).or_default().count += 9;
    let mut table = Table::new(&sum, Grouping::by_reason());
    for order in [Order::Samples, Order::Time, Order::Min, Order::Mean, Order::P99] {
        table.sort(order);
        assert_eq!(table.rows()[1].key.what, What::Reason(HLT), "{order}");
    }
}

#[test]
fn vms_and_vcpus_are_told_apart() {
    let by_vm = grouped(&[Dimension::Vm]);
    let counts: Vec<_> = by_vm.rows().iter().map(|row| (row.key.whose.vm(), row.exits.count)).collect();
    assert_eq!(counts, [(Some(10), 6), (Some(20), 5)]);
    assert_eq!(by_vm.rows()[0].key.what, What::Everything);
    // A vCPU's number has no meaning without its VM.
    let by_vcpu = grouped(&[Dimension::Vcpu, Dimension::Reason]);
    assert_eq!(by_vcpu.rows().len(), 5);
    assert_eq!(by_vcpu.rows()[0].key, Key { whose: Whose::Vcpu(vcpu(20, 0)), what: What::Reason(NPF) });
}

#[test]
fn accesses_of_the_chosen_kinds_alone() {
    let msrs = grouped(&[Dimension::Msr]);
    assert_eq!(msrs.rows().len(), 1);
    assert_eq!((msrs.rows()[0].key.what, msrs.total().count), (What::Access(ICR), 3));
    assert_eq!(msrs.unsorted().count, 7);
    assert_eq!(grouped(&[Dimension::Msr, Dimension::Port]).total().count, 6);
    assert_eq!(grouped(&[Dimension::Vm, Dimension::Msr]).rows().len(), 2);
    assert_eq!(grouped(&[Dimension::Reason]).unsorted().count, 0);
    assert!(grouped(&[Dimension::Ipi]).is_empty());
}

#[test]
fn shares_are_of_samples_and_of_time() {
    let table = grouped(&[Dimension::Reason]);
    let hlt = &table.rows().iter().find(|row| row.key.what == What::Reason(HLT)).unwrap().exits;
    assert_eq!(table.samples_percent(hlt), Some(30.0));
    assert_eq!(table.time_percent(hlt), Some(1500.0 / 1840.0 * 100.0));
    assert_eq!(grouped(&[Dimension::Ipi]).samples_percent(hlt), None);
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let times = proptest::collection::vec(any::<u64>(), 0..4);
    let exits = proptest::collection::vec((0..3u32, 0..3u32, 0..40u32, times), 0..30);
    exits.prop_map(|exits| {
        let rows: Vec<_> = exits
            .iter()
            .map(|(vm, number, code, times)| (vcpu(*vm, *number), ExitReason::vmx(*code), &times[..]))
            .collect();
        profile(&rows)
    })
}

proptest! {
    #[test]
    fn nothing_is_lost_by_grouping_or_cutting(profile in any_profile(), top in 0..50usize, order in 0..8usize) {
        for dimensions in [&[Dimension::Reason][..], &[Dimension::Vm], &[Dimension::Vcpu, Dimension::Reason]] {
            let mut table = Table::new(&profile, Grouping::new(dimensions.iter().copied()).unwrap());
            let rows = table.rows().len();
            prop_assert_eq!(table.total().count, profile.total());
            table.sort(Order::ALL[order].0);
            table.keep_top(top);
            let mut sum = table.rest().cloned().unwrap_or_default().exits;
            table.rows().iter().for_each(|row| sum.merge(&row.exits));
            prop_assert_eq!(&sum, table.total());
            prop_assert_eq!(table.rows().len() + table.rest().map_or(0, |rest| rest.rows), rows);
        }
    }
}
