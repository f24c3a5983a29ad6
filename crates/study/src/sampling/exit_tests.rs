use super::*;
use exits::Vcpu;
use live::statistics::{Counters, Failure, Origin};
use std::time::{Duration, Instant};

fn value(metrics: &[Metric], name: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {metrics:?}")).value
}

#[test]
fn rates_and_shares_of_a_profile() {
    let mut profile = Profile::new();
    for number in 0..2 {
        let vcpu = Vcpu { vm: Some(7), number: Some(number), thread: Some(70 + number) };
        // MSR_WRITE and HLT of VMX.
        for (code, count, ns) in [(32, 300, 1_000_000), (12, 10, 900_000_000)] {
            let exits = profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(code)).or_default();
            exits.count = count;
            exits.handling.add(ns);
        }
    }
    let metrics = metrics(&profile, 2_000_000_000);
    assert_eq!(value(&metrics, "exits.total"), 310.0);
    assert_eq!(value(&metrics, "exits.MSR_WRITE"), 300.0);
    assert!((value(&metrics, "handling.total") - 0.05).abs() < 1e-9, "sleeping is no work: {metrics:?}");
    assert!((value(&metrics, "handling.HLT") - 45.0).abs() < 1e-9);
    assert_eq!(super::metrics(&profile, 0), []);
}

#[test]
fn no_exits_have_a_rate_and_no_share() {
    let metrics = metrics(&Profile::new(), 1_000_000_000);
    assert!(matches!(&metrics[..], [total] if total.name == "exits.total" && total.value == 0.0));
}

#[test]
fn flags_make_one_word() {
    assert_eq!(word(ExitReason::vmx(33 | 1 << 31)), "INVALID_STATE-FAILED_VMENTRY");
    assert_eq!(word(ExitReason::svm(0x72)), "cpuid");
}

fn reading(pid: i32, at: Instant, values: &[(&str, u64)]) -> VmStatistics {
    VmStatistics {
        pid,
        start_ticks: 1,
        name: format!("vm{pid}"),
        origin: Some(Origin::Descriptors),
        failures: Vec::new(),
        total: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Counters>(),
        vcpus: BTreeMap::new(),
        units: BTreeMap::from([("halt_wait_ns".to_owned(), "ns".to_owned())]),
        missing: Vec::new(),
        read_at: at,
    }
}

#[test]
fn statistics_of_kvm_tell_exits_and_what_could_not_be_counted() {
    let now = Instant::now();
    let before = [
        reading(1, now, &[("exits", 0), ("io_exits", 5), ("nmi_injections", 3), ("halt_wait_ns", 0)]),
        reading(2, now, &[("exits", 9)]),
    ];
    let later = now + Duration::from_secs(2);
    let lost = VmStatistics {
        origin: None,
        failures: vec![Failure { origin: Origin::Debugfs, cause: "run as root".to_owned() }],
        ..reading(3, later, &[])
    };
    let after = [
        reading(1, later, &[("exits", 400), ("io_exits", 7), ("nmi_injections", 3), ("halt_wait_ns", 5)]),
        reading(2, later, &[("exits", 109)]),
        lost,
    ];
    let seen = statistics(&before, &after, "no eBPF here");
    assert_eq!(value(&seen.metrics, "exits.total"), 250.0);
    assert_eq!(value(&seen.metrics, "kvm.io_exits"), 1.0);
    assert_eq!(value(&seen.metrics, "kvm.nmi_injections"), 0.0);
    assert_eq!((seen.metrics.len(), seen.seconds), (3, Some(2.0)));
    assert!(seen.warnings[0].contains("no eBPF here"));
    assert!(
        seen.warnings[1].contains("vm3") && seen.warnings[1].contains("run as root"),
        "{:?}",
        seen.warnings
    );
}
