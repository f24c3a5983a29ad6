//! Benchmarks of an answer to Prometheus, for different numbers of VMs. Each VM has four vCPUs and the maximum number of
//! reasons with series of their own.

use std::collections::BTreeMap;

use divan::Bencher;
use exits::{ExitReason, Profile, Vcpu};
use exporter::{HaltPolling, Host, State, Totals, VmHost, VmIdentity};

const VMS: [u32; 3] = [1, 100, 1000];
const VCPUS: u32 = 4;
const REASONS: u32 = 32;

fn identities(vms: u32) -> BTreeMap<u32, VmIdentity> {
    (1..=vms).map(|vm| (vm, VmIdentity::new(&format!("customer-{vm}-web"), vm, 7))).collect()
}

fn profile(vms: u32) -> Profile {
    let mut profile = Profile::new();
    for (vm, number) in (1..=vms).flat_map(|vm| (0..VCPUS).map(move |number| (vm, number))) {
        let thread = Some(vm * VCPUS + number);
        let vcpu = profile.vcpu(Vcpu { vm: Some(vm), number: Some(number), thread });
        for code in 0..REASONS {
            let exits = vcpu.reasons.entry(ExitReason::vmx(code)).or_default();
            (0..8).for_each(|shift| exits.handling.add(500 << shift));
            exits.count += 8;
        }
    }
    profile
}

fn host(vms: u32) -> Host {
    let identities = identities(vms);
    let mut totals = Totals::default();
    totals.add(&profile(vms), &identities);
    let facts = VmHost {
        vmm: "qemu",
        names: Vec::new(),
        vcpus: VCPUS as usize,
        ran_ns: Some(1 << 40),
        waited_ns: Some(1 << 30),
        halt_polling: Some(HaltPolling::default()),
        state: Some(State { status: conclusions::activation::Status::Active, reasons: Vec::new() }),
    };
    Host {
        totals: totals.into(),
        vms: identities.into_values().map(|vm| (vm, facts.clone())).collect(),
        ..Host::default()
    }
}

/// Adds the exits since the last answer to the totals.
#[divan::bench(args = VMS)]
fn add(bencher: Bencher<'_, '_>, vms: u32) {
    let (profile, identities) = (profile(vms), identities(vms));
    let mut totals = Totals::default();
    bencher.bench_local(|| totals.add(&profile, &identities));
}

/// Writes the text of an answer.
#[divan::bench(args = VMS)]
fn text(bencher: Bencher<'_, '_>, vms: u32) {
    let host = host(vms);
    bencher.with_inputs(|| host.clone()).bench_local_values(exporter::text);
}

fn main() {
    divan::main();
}
