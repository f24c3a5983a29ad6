//! Properties of every prediction.

use proptest::prelude::*;

use super::*;
use exits::{Access, ExitReason, Exits, Hypervisor, Vcpu};

const SECOND: u64 = 1_000_000_000;

const NAMES: [&str; 34] = [
    "MSR_WRITE",
    "MSR_READ",
    "MSR_WRITE_IMM",
    "EXTERNAL_INTERRUPT",
    "EXTERNAL_INTERRUPT +0x4000000",
    "INTERRUPT_WINDOW",
    "HLT",
    "APIC_ACCESS",
    "EPT_MISCONFIG",
    "APIC_WRITE",
    "CPUID",
    "vmx:199",
    "msr",
    "interrupt",
    "vintr",
    "hlt",
    "npf",
    "write_cr8",
    "avic_incomplete_ipi",
    "invalid_guest_state",
    "EOI:W",
    "ICR:W",
    "TPR:W",
    "TSC_DEADLINE:W",
    "ID:R",
    "HV_EOI:W",
    "0xfee000b0:W",
    "0xfee00300:W",
    "apic EOI:W",
    "other",
    "L2 msr",
    "L2 msr to L1",
    "L2 interrupt to L1",
    "L2 EXTERNAL_INTERRUPT",
];

fn any_profile(vm: u32) -> impl Strategy<Value = Profile> {
    let row = (0..NAMES.len(), 0..400u64, proptest::collection::vec(0..50_000u64, 0..5));
    proptest::collection::vec((0..3u32, proptest::collection::vec(row, 0..14)), 0..3).prop_map(move |vcpus| {
        let mut profile = Profile::new();
        for (number, rows) in vcpus {
            let vcpu =
                profile.vcpu(Vcpu { vm: Some(vm), number: Some(number), thread: Some(10 * vm + number) });
            for (name, count, times) in rows {
                let mut exits = Exits { count: count.max(times.len() as u64), ..Exits::default() };
                times.into_iter().for_each(|ns| exits.handling.add(ns));
                match NAMES[name].parse::<ExitReason>() {
                    Ok(reason) => vcpu.reasons.entry(reason).or_default().merge(&exits),
                    Err(_) => {
                        vcpu.accesses
                            .entry(NAMES[name].parse::<Access>().unwrap())
                            .or_default()
                            .merge(&exits);
                    }
                }
            }
        }
        profile
    })
}

fn any_assumption() -> impl Strategy<Value = Assumption> {
    let switches = (any::<[bool; 5]>(), any::<[Option<bool>; 2]>());
    switches.prop_map(|([posted_interrupts, ipi_virtualization, x2apic, ticks, xen], kernel)| {
        let [keeps_cr8_intercept, passes_served_msrs] = kernel;
        Assumption {
            hypervisor: if xen { Hypervisor::Xen } else { Hypervisor::Kvm },
            apicv: Apicv { posted_interrupts, ipi_virtualization },
            avic: Avic { x2apic, ipi_virtualization, keeps_cr8_intercept, passes_served_msrs },
            host_tick_hz: if ticks { 250 } else { 0 },
        }
    })
}

fn in_order(range: Range, whole: f64) -> bool {
    let slack = 1e-6 * whole.max(1.0);
    0.0 <= range.low
        && range.low <= range.expected + slack
        && range.expected <= range.high + slack
        && range.high <= whole + slack
}

proptest! {
    #[test]
    fn ranges_are_in_order_and_never_above_what_there_is(
        profile in any_profile(1), assumption in any_assumption(), accepted in proptest::option::of(0..500u64)
    ) {
        let mut profile = profile;
        profile.events.extend(accepted.map(|count| ("kvm:kvm_apic_accept_irq".to_owned(), count)));
        let prediction = predict(&profile, SECOND, &assumption);
        for row in &prediction.rows {
            prop_assert!(in_order(row.gone_exits, row.exits as f64), "{row:?}");
            prop_assert!(in_order(row.gone_time_ns, row.time_ns as f64), "{row:?}");
        }
        prop_assert_eq!(prediction.rows.iter().map(|row| row.exits).sum::<u64>(), profile.total());
        let time: u64 = prediction.rows.iter().map(|row| row.time_ns).sum();
        let whole: u64 = profile.reasons().values().map(|exits| exits.handling.total_ns()).sum();
        prop_assert_eq!(time, whole);
        let Totals { exits, time_ns, idle_ns, gone_exits, gone_time_ns } = prediction.totals;
        prop_assert_eq!((exits, time_ns + idle_ns), (profile.total(), whole));
        prop_assert!(in_order(gone_exits, exits as f64) && in_order(gone_time_ns, time_ns as f64));
    }

    #[test]
    fn vms_are_predicted_alone_and_summed_up(
        one in any_profile(1), other in any_profile(2), assumption in any_assumption()
    ) {
        let mut both = one.clone();
        both.merge(&other);
        let [one, other, both] = [one, other, both].map(|profile| predict(&profile, SECOND, &assumption));
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1.0);
        let sum = |figure: &dyn Fn(&Totals) -> f64| figure(&one.totals) + figure(&other.totals);
        for figure in [
            |totals: &Totals| totals.gone_exits.low,
            |totals: &Totals| totals.gone_exits.expected,
            |totals: &Totals| totals.gone_exits.high,
            |totals: &Totals| totals.gone_time_ns.expected,
            |totals: &Totals| totals.gone_time_ns.high,
            |totals: &Totals| totals.time_ns as f64,
        ] {
            prop_assert!(near(figure(&both.totals), sum(&figure)));
        }
        prop_assert_eq!(both.already.len(), one.already.len() + other.already.len());
    }

    #[test]
    fn a_vcpu_that_only_sleeps_raises_no_expected_kicks(
        profile in any_profile(1), sleeps in proptest::collection::vec(1..SECOND / 4, 0..4)
    ) {
        let kicks = |profile: &Profile| {
            let rows = predict(profile, SECOND, &Assumption::default()).rows;
            rows.iter().filter(|row| row.rule == Rule::Kick).map(|row| row.gone_exits.expected).sum::<f64>()
        };
        let mut both = profile.clone();
        let vcpu = both.vcpu(Vcpu { vm: Some(1), number: Some(9), thread: Some(9) });
        // It sleeps at the beginning, for which there is no exit, and at the end.
        let halts = vcpu.reasons.entry("HLT".parse().unwrap()).or_default();
        halts.count = 1 + sleeps.len() as u64;
        sleeps.iter().for_each(|&ns| halts.handling.add(ns));
        prop_assert!(kicks(&both) <= kicks(&profile) + 1e-6);
    }
}
