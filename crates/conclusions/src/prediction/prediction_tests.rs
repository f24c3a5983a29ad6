use super::*;
use exits::{Access, ExitReason, Exits, Hypervisor, Vcpu};

/// Adds exits of one vCPU: a count for each reason or access, with 1 µs per exit.
fn vcpu(profile: &mut Profile, vm: u32, number: u32, rows: &[(&str, u64)]) {
    let vcpu = profile.vcpu(Vcpu { vm: Some(vm), number: Some(number), thread: Some(100 * vm + number) });
    for &(name, count) in rows {
        let mut exits = Exits { count, ..Exits::default() };
        (0..count).for_each(|_| exits.handling.add(1000));
        match name.parse::<ExitReason>() {
            Ok(reason) => vcpu.reasons.entry(reason).or_default().merge(&exits),
            Err(_) => vcpu.accesses.entry(name.parse::<Access>().unwrap()).or_default().merge(&exits),
        }
    }
}

fn profile(rows: &[(&str, u64)], events: &[(&str, u64)]) -> Profile {
    let mut profile = Profile::new();
    vcpu(&mut profile, 1, 0, rows);
    profile.events = events.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    profile
}

const SECOND: u64 = 1_000_000_000;

fn without_ticks() -> Assumption {
    Assumption { host_tick_hz: 0, ..Assumption::default() }
}

/// Low, expected and high number of avoided exits of the row with this reason or register.
fn gone(prediction: &Prediction, name: &str) -> (f64, f64, f64) {
    let row = prediction.rows.iter().find(|row| match row.part {
        Part::Access(access) => access.to_string() == name,
        Part::Whole => row.reason.to_string() == name,
        Part::Rest => format!("{} rest", row.reason) == name,
        Part::Nested => format!("{} nested", row.reason) == name,
    });
    let gone = row.unwrap_or_else(|| panic!("no row {name}: {:#?}", prediction.rows)).gone_exits;
    (gone.low, gone.expected, gone.high)
}

/// A sender and a target of 2000 IPIs without interrupt virtualization, as recorded in the lab intel-apicv.
fn two_thousand_ipis() -> Profile {
    let mut profile = Profile::new();
    vcpu(
        &mut profile,
        1,
        0,
        &[("MSR_WRITE", 2002), ("ICR:W", 2000), ("SPIV:W", 2), ("EXTERNAL_INTERRUPT", 20)],
    );
    vcpu(
        &mut profile,
        1,
        1,
        &[
            ("MSR_WRITE", 2002),
            ("EOI:W", 2000),
            ("SPIV:W", 2),
            ("INTERRUPT_WINDOW", 1996),
            ("EXTERNAL_INTERRUPT", 20),
        ],
    );
    profile.events.insert("kvm:kvm_msr".to_owned(), 4004);
    profile
}

#[test]
fn apicv_takes_eois_and_windows_and_leaves_icr_writes() {
    let prediction = predict(&two_thousand_ipis(), SECOND, &Assumption::default());
    assert_eq!(gone(&prediction, "EOI:W"), (0.0, 2000.0, 2000.0));
    assert_eq!(gone(&prediction, "INTERRUPT_WINDOW"), (1996.0, 1996.0, 1996.0));
    assert_eq!(gone(&prediction, "ICR:W"), (0.0, 0.0, 0.0));
    assert_eq!(gone(&prediction, "SPIV:W"), (0.0, 0.0, 0.0));
    // 20 interrupts of each vCPU are the host's own: that is the rate of the vCPU that is not kicked.
    let (low, expected, high) = gone(&prediction, "EXTERNAL_INTERRUPT");
    assert!(low == 0.0 && expected < 0.1 && high == 40.0, "{expected}");
    let totals = prediction.totals;
    assert_eq!((totals.exits, totals.gone_exits.low, totals.gone_exits.high), (6040, 1996.0, 4036.0));
    assert!(prediction.already.is_empty());
    assert_eq!(prediction.record, ["kvm:kvm_ack_irq", "kvm:kvm_apic_accept_irq"]);
}

#[test]
fn ipi_virtualization_takes_icr_writes_too() {
    let mut assumption = Assumption::default();
    assumption.apicv.ipi_virtualization = true;
    let prediction = predict(&two_thousand_ipis(), SECOND, &assumption);
    assert_eq!(gone(&prediction, "ICR:W"), (0.0, 2000.0, 2000.0));
    let row = prediction.rows.iter().find(|row| row.rule == Rule::IpiByProcessor).unwrap();
    assert_eq!((row.fate(), row.becomes), (Fate::Partly, Some(ExitReason::vmx(56))));
}

#[test]
fn under_avic_halts_bound_the_ipis_that_stay() {
    let rows = [("msr", 130), ("ICR:W", 50), ("EOI:W", 80), ("hlt", 20), ("vintr", 7), ("cpuid", 3)];
    let profile = profile(&rows, &[("kvm:kvm_msr", 130), ("kvm:kvm_mmio", 1)]);
    let prediction = predict(&profile, SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "ICR:W"), (30.0, 40.0, 50.0));
    assert_eq!(gone(&prediction, "vintr"), (7.0, 7.0, 7.0));
    assert_eq!(gone(&prediction, "hlt"), (0.0, 0.0, 0.0));
    assert_eq!(gone(&prediction, "cpuid"), (0.0, 0.0, 0.0));
    assert_eq!(gone(&prediction, "EOI:W"), (0.0, 80.0, 80.0));

    let mut zen2 = without_ticks();
    zen2.avic.ipi_virtualization = false;
    // IPIs to oneself go even so.
    assert_eq!(gone(&predict(&profile, SECOND, &zen2), "ICR:W"), (0.0, 0.0, 50.0));
}

#[test]
fn a_count_of_acknowledgements_bounds_the_eois_that_stay_of_a_vm_alone_with_a_whole_irqchip() {
    let rows = [("MSR_WRITE", 80), ("EOI:W", 80)];
    let of = |exits, acknowledged| {
        let events = [("kvm:kvm_msr", 80), ("kvm:kvm_exit", exits), ("kvm:kvm_ack_irq", acknowledged)];
        gone(&predict(&profile(&rows, &events), SECOND, &without_ticks()), "EOI:W")
    };
    assert_eq!(of(80, 5), (75.0, 80.0, 80.0));
    // A split irqchip acknowledges none, and another VM's may be the one that does.
    assert_eq!(of(80, 0), (0.0, 80.0, 80.0));
    assert_eq!(of(90, 5), (0.0, 80.0, 80.0));
    let unknown = predict(&profile(&rows, &[("kvm_msr", 80)]), SECOND, &without_ticks());
    assert_eq!(gone(&unknown, "EOI:W"), (0.0, 80.0, 80.0));
    assert_eq!(unknown.record, ["kvm:kvm_ack_irq"]);
}

#[test]
fn timers_that_are_armed_are_no_proof_of_eois_that_go() {
    // Of 6000 EOIs 5000 are of a device that interrupts by INTx: a timer of which most are armed again early.
    let rows = [("MSR_WRITE", 11_500), ("EOI:W", 6000), ("TSC_DEADLINE:W", 5500), ("PREEMPTION_TIMER", 1000)];
    let (least, expected, _) = gone(&predict(&profile(&rows, &[]), SECOND, &without_ticks()), "EOI:W");
    assert!(least <= 1000.0 && expected == 6000.0, "{least}");
}

#[test]
fn timers_of_a_guest_that_halts_without_exits_may_be_posted() {
    let of = |rows: &[(&str, u64)], assumption| {
        let prediction = predict(&profile(rows, &[]), SECOND, &assumption);
        gone(&prediction, "PREEMPTION_TIMER")
    };
    let timers =
        [("PREEMPTION_TIMER", 500), ("MSR_WRITE", 500), ("TSC_DEADLINE:W", 500), ("INTERRUPT_WINDOW", 9)];
    assert_eq!(of(&timers, without_ticks()), (0.0, 0.0, 500.0));
    assert_eq!(of(&[&timers[..], &[("HLT", 3)]].concat(), without_ticks()), (0.0, 0.0, 0.0));
    assert_eq!(of(&timers, on_xen()), (0.0, 0.0, 0.0));
    // Without EOIs and windows APICv is active already, and these exits occur with it.
    assert_eq!(of(&timers[..3], without_ticks()), (0.0, 0.0, 0.0));
}

#[test]
fn writes_without_registers_have_the_widest_range_and_a_hint() {
    let rows = [("MSR_WRITE", 100), ("MSR_READ", 10)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_exit", 110)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "MSR_WRITE"), (0.0, 50.0, 100.0));
    assert_eq!(gone(&prediction, "MSR_READ"), (0.0, 0.0, 10.0));
    assert_eq!(prediction.record, ["kvm:kvm_msr"]);
    let counted = predict(&profile(&rows, &[("kvm:kvm_eoi", 40)]), SECOND, &without_ticks());
    assert_eq!(gone(&counted, "MSR_WRITE"), (0.0, 40.0, 40.0));
}

#[test]
fn the_emulated_apic_stands_in_for_missing_registers() {
    let rows = [("MSR_WRITE", 100), ("apic EOI:W", 60), ("apic ICR:W", 40)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_apic", 100)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "EOI:W").1, 60.0);
    let rows = [("APIC_ACCESS", 100), ("apic EOI:W", 50), ("apic ICR2:W", 25), ("apic ICR:W", 25)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_apic", 100)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "apic EOI:W").1, 50.0);
    assert_eq!(gone(&prediction, "apic ICR2:W"), (25.0, 25.0, 25.0));
    assert_eq!(gone(&prediction, "apic ICR:W"), (0.0, 0.0, 25.0));
}

#[test]
fn the_page_of_the_xapic_is_told_apart_from_other_memory() {
    let rows = [("npf", 100), ("0xfee000b0:W", 40), ("0xfee00380:W", 10), ("0xd0000000:W", 50)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_mmio", 100)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "apic EOI:W").2, 40.0);
    assert_eq!(gone(&prediction, "apic TMICT:W"), (0.0, 0.0, 0.0));
    assert_eq!(gone(&prediction, "npf rest"), (0.0, 0.0, 0.0));
    let unknown = predict(&profile(&[("npf", 100)], &[]), SECOND, &without_ticks());
    assert_eq!(gone(&unknown, "npf"), (0.0, 0.0, 100.0));
    assert_eq!(unknown.record, ["kvm:kvm_mmio"]);
    let none = predict(&profile(&[("npf", 100)], &[("kvm:kvm_mmio", 0)]), SECOND, &without_ticks());
    assert_eq!(gone(&none, "npf"), (0.0, 0.0, 0.0));
}

#[test]
fn ends_of_interrupts_at_the_page_have_no_event_of_their_own() {
    let rows = [("APIC_ACCESS", 100), ("0xfee00300:W", 30), ("0xfee00310:W", 30)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_mmio", 60)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "APIC_ACCESS rest"), (0.0, 40.0, 40.0));
    assert!(prediction.already.is_empty());
    let rows = [&rows[..], &[("apic ICR:W", 30), ("apic ICR2:W", 30), ("apic EOI:W", 40)]].concat();
    let prediction = predict(&profile(&rows, &[("kvm:kvm_apic", 100)]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "apic EOI:W").2, 40.0);
}

#[test]
fn kicks_are_what_ticks_and_timers_leave() {
    let rows = [("MSR_WRITE", 900), ("EOI:W", 500), ("ICR:W", 400), ("EXTERNAL_INTERRUPT", 600)];
    let kicks = |events: &[(&str, u64)], tick| {
        let assumption = Assumption { host_tick_hz: tick, ..Assumption::default() };
        gone(&predict(&profile(&rows, events), SECOND, &assumption), "EXTERNAL_INTERRUPT")
    };
    // The guest time is 1 s minus 1500 exits of 1 µs: 249.6 ticks.
    assert_eq!(kicks(&[], 250), (0.0, 600.0 - 250.0 * 0.9985, 600.0));
    assert_eq!(kicks(&[], 0), (0.0, 500.0, 600.0));
    assert_eq!(kicks(&[], 10_000), (0.0, 0.0, 600.0));
    assert_eq!(kicks(&[("kvm:kvm_apic_accept_irq", 300)], 0), (0.0, 300.0, 300.0));

    // A vCPU without IPIs shows the rate of the host's own interrupts.
    let mut both = profile(&rows, &[]);
    vcpu(&mut both, 1, 1, &[("MSR_WRITE", 400), ("ICR:W", 400), ("EXTERNAL_INTERRUPT", 100)]);
    let (_, expected, high) = gone(&predict(&both, SECOND, &Assumption::default()), "EXTERNAL_INTERRUPT");
    assert!((expected - 500.0).abs() < 1.0 && high == 700.0, "{expected}");

    let mut unposted = without_ticks();
    unposted.apicv.posted_interrupts = false;
    let prediction = predict(&profile(&rows, &[]), SECOND, &unposted);
    assert_eq!(gone(&prediction, "EXTERNAL_INTERRUPT"), (0.0, 0.0, 0.0));
}

#[test]
fn a_vcpu_that_sleeps_does_not_show_the_rate_of_the_hosts_interrupts() {
    let observed = 10 * SECOND;
    let busy = profile(&[("EXTERNAL_INTERRUPT", 2500)], &[]);
    let expected =
        |profile: &Profile| gone(&predict(profile, observed, &Assumption::default()), "EXTERNAL_INTERRUPT").1;
    let alone = expected(&busy);
    assert!(alone < 10.0, "{alone}");
    // The sleep of 4 s at the beginning has no exit, and that of 3 s at the end has no handling time.
    let sleeper = |count, sleeps: &[u64]| {
        let mut both = busy.clone();
        let exits = both.vcpu(Vcpu { vm: Some(1), number: Some(1), thread: Some(101) });
        let halts = exits.reasons.entry("HLT".parse().unwrap()).or_default();
        halts.count = count;
        sleeps.iter().for_each(|&ns| halts.handling.add(ns));
        both
    };
    assert_eq!(expected(&sleeper(3, &[SECOND, 2 * SECOND])), alone);
    // Awake at the end.
    assert_eq!(expected(&sleeper(2, &[3 * SECOND, 3 * SECOND])), alone);
    // With short sleeps only, the time counts as guest time, in which there are no ticks here.
    assert!(expected(&sleeper(2, &[1000, 2000])) > 2400.0);
}

#[test]
fn what_is_active_already_is_recognised_and_promises_nothing() {
    let rows = [("MSR_WRITE", 58), ("ICR:W", 36), ("TMICT:W", 22), ("EXTERNAL_INTERRUPT", 13), ("HLT", 22)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_msr", 58)]), SECOND, &without_ticks());
    assert_eq!(prediction.already, [Already { vm: Some(1), by_hardware: 0, eois: 0 }]);
    assert_eq!(prediction.totals.gone_exits, Range::NONE);

    let partly = [("msr", 10), ("EOI:W", 10), ("avic_incomplete_ipi", 3)];
    let prediction = predict(&profile(&partly, &[]), SECOND, &without_ticks());
    assert_eq!(prediction.already, [Already { vm: Some(1), by_hardware: 3, eois: 10 }]);
    assert_eq!(gone(&prediction, "EOI:W").1, 10.0);
    assert_eq!(gone(&prediction, "avic_incomplete_ipi").2, 0.0);
}

#[test]
fn writes_of_cr8_go_for_certain_only_with_a_kernel_that_lets_them() {
    let of = |rows: &[(&str, u64)], keeps_cr8_intercept| {
        let mut assumption = without_ticks();
        assumption.avic.keeps_cr8_intercept = keeps_cr8_intercept;
        gone(&predict(&profile(rows, &[("kvm:kvm_mmio", 1)]), SECOND, &assumption), "write_cr8")
    };
    let before = [("write_cr8", 40), ("vintr", 9)];
    assert_eq!(of(&before, Some(false)), (40.0, 40.0, 40.0));
    assert_eq!(of(&before, None), (0.0, 40.0, 40.0));
    assert_eq!(of(&before, Some(true)), (0.0, 0.0, 40.0));
    // With AVIC active they are caused by the bug, even if the kernel is said not to have it.
    let with_it = [("write_cr8", 40), ("avic_incomplete_ipi", 3)];
    for known in [None, Some(true), Some(false)] {
        assert_eq!(of(&with_it, known), (0.0, 0.0, 0.0), "{known:?}");
    }
    // AVIC was active part of the time, and it is unknown whether they occurred in it.
    let mixed = [("write_cr8", 40), ("avic_incomplete_ipi", 3), ("vintr", 9)];
    assert_eq!(of(&mixed, None), (0.0, 0.0, 40.0));
    let read = predict(&profile(&[("read_cr8", 5)], &[]), SECOND, &Assumption::default());
    assert_eq!(gone(&read, "read_cr8"), (5.0, 5.0, 5.0));
}

#[test]
fn a_kernel_before_the_fix_intercepts_self_ipis_with_x2avic() {
    let of = |passes_served_msrs, reason, access| {
        let mut assumption = without_ticks();
        assumption.avic.passes_served_msrs = passes_served_msrs;
        gone(&predict(&profile(&[(reason, 40), (access, 40)], &[]), SECOND, &assumption), access)
    };
    assert_eq!(of(Some(false), "msr", "SELF_IPI:W"), (0.0, 0.0, 0.0));
    assert_eq!(of(None, "msr", "SELF_IPI:W"), (0.0, 40.0, 40.0));
    assert_eq!(of(Some(true), "msr", "SELF_IPI:W"), (40.0, 40.0, 40.0));
    assert_eq!(of(Some(false), "msr", "ISR3:R"), (0.0, 0.0, 0.0));
    assert_eq!(of(Some(false), "MSR_WRITE", "SELF_IPI:W"), (40.0, 40.0, 40.0));
}

#[test]
fn an_nmi_ends_with_an_exit_whatever_is_on() {
    for reason in ["iret", "NMI_WINDOW"] {
        let prediction = predict(&profile(&[(reason, 5)], &[]), SECOND, &without_ticks());
        assert_eq!((gone(&prediction, reason), prediction.rows[0].rule), ((0.0, 0.0, 0.0), Rule::NmiWindow));
    }
}

#[test]
fn silence_is_no_sign_where_the_guest_ends_interrupts_without_exits() {
    let rows = [("MSR_WRITE", 58), ("ICR:W", 36), ("TSC_DEADLINE:W", 22)];
    let prediction = predict(&profile(&rows, &[("kvm:kvm_pv_eoi", 40)]), SECOND, &without_ticks());
    assert!(prediction.already.is_empty());
}

#[test]
fn sleeping_is_no_cost() {
    let prediction = predict(&profile(&[("HLT", 5), ("CPUID", 2)], &[]), SECOND, &without_ticks());
    assert_eq!((prediction.totals.idle_ns, prediction.totals.time_ns), (5000, 2000));
}

#[test]
fn nothing_is_predicted_of_nothing() {
    let prediction = predict(&Profile::new(), 0, &Assumption::default());
    assert!(prediction.rows.is_empty() && prediction.totals == Totals::default());
}

#[test]
fn exits_of_nested_guests_are_not_avoided_and_have_rows_of_their_own() {
    let own = [("msr", 100), ("interrupt", 50), ("hlt", 10), ("EOI:W", 40)];
    let nested = [
        ("L2 msr", 60),
        ("L2 msr to L1", 60),
        ("L2 interrupt", 50),
        ("L2 interrupt to L1", 45),
        ("L2 hlt", 10),
        ("L2 hlt to L1", 10),
    ];
    let mut both = profile(&own, &[]);
    let vcpu = both.vcpu(Vcpu { vm: Some(1), number: Some(0), thread: Some(100) });
    for (name, count) in nested {
        let access = name.parse::<Access>().unwrap();
        let mut exits = Exits { count, ..Exits::default() };
        // Exits for which L1 was entered have their own times; the times of the others are with the reason.
        let timed = if name.ends_with("L1") {
            count
        } else {
            count.saturating_sub(if name.contains("interrupt") { 45 } else { count })
        };
        (0..timed).for_each(|_| exits.handling.add(1000));
        vcpu.accesses.insert(access, exits);
    }
    let prediction = predict(&both, SECOND, &without_ticks());
    for name in ["msr nested", "interrupt nested", "hlt nested"] {
        assert_eq!(gone(&prediction, name), (0.0, 0.0, 0.0), "{name}");
    }
    // The guest's own exits are predicted as if there were no nested ones.
    let alone = predict(&profile(&[("msr", 40), ("EOI:W", 40)], &[]), SECOND, &without_ticks());
    assert_eq!(gone(&prediction, "EOI:W"), gone(&alone, "EOI:W"));
    assert_eq!(prediction.totals.gone_exits, alone.totals.gone_exits);
    // All halts are L2's, for which the vCPU enters L1 instead of sleeping.
    assert_eq!(
        (prediction.totals.exits, prediction.totals.time_ns, prediction.totals.idle_ns),
        (160, 160_000, 0)
    );
}

#[test]
fn the_hosts_interrupts_of_nested_guests_are_not_looked_for_among_the_guests_own() {
    // For nine of ten seconds the host's timer, with 250 Hz, interrupts a nested guest.
    let rows = [("EXTERNAL_INTERRUPT", 3500), ("L2 EXTERNAL_INTERRUPT", 2250)];
    let prediction = predict(&profile(&rows, &[]), 10 * SECOND, &Assumption::default());
    let (_, expected, high) = gone(&prediction, "EXTERNAL_INTERRUPT");
    assert!((expected - 1000.0).abs() < 2.0 && high == 1250.0, "{expected} of {high}");
}

#[test]
fn what_nested_guests_exit_for_is_no_sign_that_it_is_active_already() {
    let mut vm = profile(&[("APIC_WRITE", 50), ("EXTERNAL_INTERRUPT", 100), ("MSR_WRITE", 40)], &[]);
    let vcpu = vm.vcpu(Vcpu { vm: Some(1), number: Some(0), thread: Some(100) });
    vcpu.accesses.insert("L2 APIC_WRITE".parse().unwrap(), Exits { count: 50, ..Exits::default() });
    let prediction = predict(&vm, SECOND, &without_ticks());
    assert!(prediction.already.is_empty(), "{:?}", prediction.already);
    let row = prediction.rows.iter().find(|row| row.reason == ExitReason::vmx(1)).unwrap();
    assert_eq!((row.rule, row.gone_exits.expected), (Rule::Kick, 100.0));
}

#[test]
fn ends_of_interrupts_are_expected_in_proportion_to_the_writes_that_are_looked_at() {
    // 1,000 of the 2,000 writes in the whole source were EOIs.
    let events = [("kvm:kvm_eoi", 1000), ("kvm:kvm_exit", 2000)];
    let mut two = profile(&[("MSR_WRITE", 500)], &events);
    vcpu(&mut two, 2, 0, &[("MSR_WRITE", 1500)]);
    assert_eq!(gone(&predict(&two, SECOND, &without_ticks()), "MSR_WRITE"), (0.0, 1000.0, 1500.0));
    let tenth = profile(&[("MSR_WRITE", 200)], &events);
    assert_eq!(gone(&predict(&tenth, SECOND, &without_ticks()), "MSR_WRITE"), (0.0, 100.0, 200.0));
}

#[test]
fn nothing_goes_of_a_vm_with_encrypted_memory() {
    let rows = [
        ("vmgexit", 60),
        ("EOI:W", 30),
        ("ICR:W", 20),
        ("interrupt", 9),
        ("vintr", 5),
        ("hlt", 7),
        ("rdtsc", 3),
    ];
    let mut two = profile(&rows, &[]);
    let prediction = predict(&two, SECOND, &without_ticks());
    assert_eq!(prediction.totals.gone_exits, Range::NONE);
    assert_eq!((prediction.record.len(), prediction.already.len()), (0, 0));
    for row in &prediction.rows {
        let related = !row.is_idle() && row.reason.to_string() != "rdtsc";
        assert_eq!(row.rule == Rule::InhibitedBySev, related, "{row:?}");
    }
    // Timers and IPIs without EOIs are no sign of AVIC there.
    let silent = profile(&[("vmgexit", 40), ("ICR:W", 20), ("TSC_DEADLINE:W", 20)], &[]);
    assert!(predict(&silent, SECOND, &without_ticks()).already.is_empty());
    // Another VM is not affected.
    vcpu(&mut two, 2, 0, &[("vintr", 11)]);
    assert_eq!(predict(&two, SECOND, &without_ticks()).totals.gone_exits, Range::exactly(11.0));
}

fn on_xen() -> Assumption {
    Assumption { hypervisor: Hypervisor::Xen, ..Assumption::default() }
}

#[test]
fn xen_has_no_avic() {
    let rows =
        [("msr", 60), ("EOI:W", 30), ("ICR:W", 20), ("interrupt", 9), ("vintr", 5), ("hlt", 7), ("cpuid", 3)];
    let prediction = predict(&profile(&rows, &[]), SECOND, &on_xen());
    assert_eq!(prediction.totals.gone_exits, Range::NONE);
    assert_eq!((prediction.record.len(), prediction.already.len()), (0, 0));
    for row in &prediction.rows {
        let related = !row.is_idle() && row.reason.to_string() != "cpuid";
        assert_eq!(row.rule == Rule::NoAvicInXen, related, "{row:?}");
        assert_eq!((row.fate(), row.becomes), (Fate::Stays, None));
    }
    // Timers and IPIs without EOIs are no sign of interrupt virtualization there.
    let silent = [("msr", 20), ("ICR:W", 20)];
    assert!(predict(&profile(&silent, &[]), SECOND, &on_xen()).already.is_empty());
}

#[test]
fn xen_asks_for_the_ends_of_emulated_timers_and_keeps_some_windows() {
    let rows = [
        ("MSR_WRITE", 180),
        ("EOI:W", 100),
        ("TSC_DEADLINE:W", 60),
        ("ICR:W", 20),
        ("INTERRUPT_WINDOW", 8),
        ("EXTERNAL_INTERRUPT", 400),
    ];
    let of = |assumption| predict(&profile(&rows, &[]), SECOND, &assumption);
    let xen = of(on_xen());
    assert_eq!(gone(&xen, "EOI:W"), (0.0, 40.0, 100.0));
    let eoi = xen.rows.iter().find(|row| row.rule == Rule::Eoi).unwrap();
    assert_eq!(eoi.becomes, Some(ExitReason::vmx(45)));
    assert_eq!(gone(&of(without_ticks()), "EOI:W").1, 100.0);
    assert_eq!(gone(&xen, "INTERRUPT_WINDOW"), (0.0, 8.0, 8.0));
    // Xen has no tick, even if one is assumed.
    assert_eq!(gone(&xen, "EXTERNAL_INTERRUPT"), gone(&of(without_ticks()), "EXTERNAL_INTERRUPT"));
    assert!(xen.record.is_empty());
    // Timers that are armed again before they expire need no EOI.
    let early =
        [("MSR_WRITE", 180), ("EOI:W", 100), ("TSC_DEADLINE:W", 60), ("EXTERNAL_INTERRUPT", 9), ("HLT", 3)];
    assert_eq!(gone(&predict(&profile(&early, &[]), SECOND, &on_xen()), "EOI:W").1, 88.0);
    let mut with = on_xen();
    with.apicv.ipi_virtualization = true;
    assert_eq!(gone(&of(with), "ICR:W"), (0.0, 0.0, 0.0));
}

#[test]
fn windows_on_xen_uses_its_apic_once_there_is_apicv() {
    let rows = [
        ("MSR_WRITE", 230),
        ("HV_EOI:W", 100),
        ("HV_TPR:W", 50),
        ("HV_ICR:W", 20),
        ("TSC_DEADLINE:W", 60),
        ("EXTERNAL_INTERRUPT", 400),
    ];
    let xen = predict(&profile(&rows, &[]), SECOND, &on_xen());
    assert_eq!(gone(&xen, "HV_EOI:W"), (0.0, 40.0, 100.0));
    assert_eq!(gone(&xen, "HV_TPR:W"), (0.0, 50.0, 50.0));
    assert_eq!(gone(&xen, "HV_ICR:W"), (0.0, 0.0, 20.0));
    let eoi = xen.rows.iter().find(|row| row.exits == 100).unwrap();
    assert_eq!((eoi.rule, eoi.becomes), (Rule::HyperVRegister, Some(ExitReason::vmx(45))));
    // The timers have ends, by Hyper-V's register, so nothing shows that APICv is active.
    assert!(xen.already.is_empty());
    let kvm = predict(&profile(&rows, &[]), SECOND, &without_ticks());
    assert!(kvm.already.is_empty());
    for register in ["HV_EOI:W", "HV_TPR:W", "HV_ICR:W"] {
        assert_eq!(gone(&kvm, register), (0.0, 0.0, 0.0), "{register}");
    }
    // With APICv they are of a domain that keeps to them.
    let rows = [("MSR_WRITE", 100), ("HV_EOI:W", 100), ("APIC_WRITE", 9)];
    assert_eq!(gone(&predict(&profile(&rows, &[]), SECOND, &on_xen()), "HV_EOI:W"), (0.0, 0.0, 0.0));
}

#[test]
fn xens_events_tell_accesses_to_the_page_too() {
    let rows = [("APIC_ACCESS", 100), ("0xfee00300:W", 60)];
    let prediction = predict(&profile(&rows, &[("hvm_iomem_write", 60)]), SECOND, &on_xen());
    assert_eq!(gone(&prediction, "APIC_ACCESS rest"), (0.0, 40.0, 40.0));
}

#[test]
fn what_is_said_of_xen_names_no_source_of_another_hypervisor() {
    let rules = [
        Rule::Eoi,
        Rule::TaskPriority,
        Rule::SelfIpi,
        Rule::IpiBySoftware,
        Rule::IpiUnlessToOneself,
        Rule::RegisterRead,
        Rule::IcrHigh,
        Rule::RegisterOfTheHost,
        Rule::TimerArm,
        Rule::HyperVRegister,
        Rule::NotSplit,
        Rule::OtherRegister,
        Rule::InterruptWindow,
        Rule::Kick,
        Rule::HostInterrupt,
        Rule::NotTheApicPage,
        Rule::Idle,
        Rule::TimerFires,
        Rule::LeftByHardware,
        Rule::NoAvicInXen,
        Rule::NmiWindow,
        Rule::Unrelated,
    ];
    for rule in rules {
        let said = format!("{} ({})", rule.why(Hypervisor::Xen), rule.source(Hypervisor::Xen));
        assert!(!said.to_lowercase().contains("kvm"), "{said}");
    }
}
