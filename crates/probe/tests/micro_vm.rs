//! Every measure on this machine's `/dev/kvm`, whatever kind of KVM answers there. Without a usable KVM the
//! tests print the reason and return; the emulated hosts of the lab run the same measures.

use std::path::Path;
use std::time::Duration;

use probe::measure::Measure;
use probe::run::{ApicMode, Arm, Irqchip, Run};
use probe::{Agreement, Arms, Config, Error, MicroVm};

const SAMPLES: u32 = 20;
const WARM_UP: u32 = 3;

/// A micro VM, or `None` with the reason printed.
fn micro_vm(config: Config) -> Option<MicroVm> {
    match MicroVm::new(&config) {
        Ok(vm) => Some(vm),
        Err(error @ (Error::NoKvm { .. } | Error::KvmDenied { .. } | Error::OpenKvm { .. })) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn config() -> Config {
    Config { patience: Duration::from_secs(10), ..Config::default() }
}

/// The run, or `None`, with the reason printed, if this host cannot perform the measure.
fn run(vm: &mut MicroVm, measure: Measure, target: Option<u16>) -> Option<Run> {
    match vm.run(measure, WARM_UP, SAMPLES, target) {
        Ok(run) => Some(run),
        Err(error @ (Error::Unsupported { .. } | Error::TooFewCpus { .. })) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Tests whether KVM uses the processor's virtualization: another KVM may emulate instructions that would
/// exit.
fn hardware() -> bool {
    ["kvm_intel", "kvm_amd"].iter().any(|module| Path::new("/sys/module").join(module).exists())
}

fn counted(run: &Run) -> String {
    let counted = run.statistics.iter().filter(|(_, count)| **count != 0);
    counted.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn median(run: &Run) -> u64 {
    let mut cycles = run.cycles.clone();
    cycles.sort_unstable();
    cycles[cycles.len() / 2]
}

/// The smallest sample, which other work of the host did not disturb.
fn least(run: &Run) -> u64 {
    run.cycles.iter().copied().min().unwrap()
}

fn every_measure(apic: ApicMode, irqchip: Irqchip) {
    let Some(mut vm) = micro_vm(Config { apic, irqchip, ..config() }) else { return };
    let floor = least(&run(&mut vm, Measure::Floor, None).unwrap());
    for measure in Measure::ALL {
        let Some(run) = run(&mut vm, measure, None) else { continue };
        assert_eq!(run.cycles.len(), SAMPLES as usize, "{measure}");
        assert_eq!((run.measure, run.warm_up), (measure, WARM_UP));
        assert_eq!(run.target, measure.needs_target().then_some(1));
        println!("{apic:?} {irqchip:?} {measure}: median {}; {}", median(&run), counted(&run));
        // These leave the guest on every processor, interrupts virtualized or not. On a KVM that emulates every
        // instruction even the floor is expensive; there only exits to user space are surely slower.
        let exits = match measure {
            Measure::PioUser | Measure::MmioUser => true,
            Measure::IpiHalted
            | Measure::Cpuid
            | Measure::Hlt
            | Measure::PioKernel
            | Measure::MmioEventfd
            | Measure::MsrRead
            | Measure::MsrWrite => hardware(),
            _ => false,
        };
        if exits {
            assert!(least(&run) > floor, "{measure}: {} is not above the floor, {floor}", least(&run));
            if let Some(exits) = run.statistics.get("exits").filter(|_| hardware()) {
                assert!(*exits >= u64::from(SAMPLES + WARM_UP), "{measure}: only {exits} exits");
            }
        }
    }
}

#[test]
fn every_measure_in_x2apic_mode() {
    every_measure(ApicMode::X2apic, Irqchip::Split);
}

#[test]
fn every_measure_in_xapic_mode() {
    every_measure(ApicMode::Xapic, Irqchip::Split);
}

#[test]
fn every_measure_with_all_controllers_in_the_kernel() {
    every_measure(ApicMode::X2apic, Irqchip::Kernel);
}

#[test]
fn two_three_and_sixty_four_vcpus() {
    for vcpus in [2, 3, 64] {
        let Some(mut vm) = micro_vm(Config { vcpus, ..config() }) else { return };
        let mut threads = vm.vcpu_threads().to_vec();
        assert_eq!(threads.len(), usize::from(vcpus));
        threads.push(vm.control_thread());
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(
            threads.len(),
            usize::from(vcpus) + 1,
            "every vCPU has its own thread, the parked one too"
        );
        for target in [1, vcpus - 1] {
            let Some(run) = run(&mut vm, Measure::IpiRunning, Some(target)) else { return };
            assert_eq!((run.target, run.cycles.len()), (Some(target), SAMPLES as usize));
        }
    }
}

#[test]
fn an_idle_vm_leaves_the_host_alone() {
    let Some(mut vm) = micro_vm(Config { vcpus: 8, ..config() }) else { return };
    run(&mut vm, Measure::Eoi, None).unwrap();
    let ticks = |tid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // utime and stime, fields 14 and 15 of proc(5); the state is field 3.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before: u64 = vm.vcpu_threads().iter().map(ticks).sum();
    std::thread::sleep(Duration::from_millis(300));
    let after: u64 = vm.vcpu_threads().iter().map(ticks).sum();
    assert_eq!(before, after, "vCPU threads ran while there was nothing to do");
}

#[test]
fn the_arms_are_those_of_the_host() {
    let Some(mut vm) = micro_vm(config()) else { return };
    let evidence = vm.verify_arm().unwrap();
    println!("{:?}; {evidence:?}; TSC {:?} kHz; pinned to {:?}", vm.arms(), vm.tsc_khz(), vm.pinning());
    assert_eq!(vm.evidence(), Some(&evidence));
    match vm.arms().clone() {
        Arms::Both { .. } => {
            for arm in [Arm::Off, Arm::On, Arm::Off] {
                vm.switch(arm).unwrap();
                assert_eq!(vm.run(Measure::Floor, 0, 1, None).unwrap().arm, arm);
            }
        }
        Arms::OnlyOff { why } => {
            assert!(why.contains("/sys/module"), "{why}");
            vm.switch(Arm::Off).unwrap();
            assert!(matches!(vm.switch(Arm::On), Err(Error::ArmUnavailable { arm: Arm::On, .. })));
            assert_eq!(vm.arm(), Arm::Off);
        }
        Arms::OnlyOn { why } => {
            assert!(!why.is_empty());
            assert!(matches!(vm.switch(Arm::Off), Err(Error::ArmUnavailable { arm: Arm::Off, .. })));
        }
    }
}

/// The module's parameter claims interrupt virtualization, whether the host has it or not.
#[test]
fn a_claim_is_put_to_the_test() {
    let root = tempfile::tempdir().unwrap();
    let parameters = root.path().join("sys/module/kvm_intel/parameters");
    std::fs::create_dir_all(&parameters).unwrap();
    std::fs::write(parameters.join("enable_apicv"), "Y\n").unwrap();
    let Some(mut vm) = micro_vm(Config { sysfs: root.path().to_owned(), ..config() }) else { return };
    let Arms::Both { mechanism } = *vm.arms() else {
        eprintln!("not tested: {:?}", vm.arms());
        return;
    };
    assert_eq!(vm.arm(), Arm::On);
    for arm in [Arm::Off, Arm::On, Arm::Off] {
        vm.switch(arm).unwrap();
        assert_eq!(vm.evidence(), None, "evidence does not outlive a switch");
        let evidence = vm.verify_arm().unwrap();
        println!("{mechanism:?}: {evidence:?}");
        let expected = match arm {
            Arm::Off => Agreement::Confirmed,
            Arm::On if hardware() => continue,
            Arm::On => Agreement::Contradicted,
        };
        if vm.statistics_available().is_none() {
            assert_eq!(evidence.verdict, expected, "{evidence:?}");
        }
    }
}

#[test]
fn what_can_not_be_is_refused_by_name() {
    let Some(mut vm) = micro_vm(config()) else { return };
    assert!(matches!(vm.run(Measure::Floor, 0, 0, None), Err(Error::SampleCount { asked: 0 })));
    let asked = probe::MAX_SAMPLES + 1;
    assert!(matches!(vm.run(Measure::Floor, 0, asked, None), Err(Error::SampleCount { .. })));
    for target in [0, 2] {
        let error = vm.run(Measure::IpiRunning, 0, 1, Some(target)).unwrap_err();
        assert!(matches!(error, Error::Target { last: 1, .. }), "{error}");
    }
    // None of these errors has stopped the VM.
    assert_eq!(vm.run(Measure::Floor, 0, 1, Some(9)).unwrap().target, None);
    for vcpus in [0, 1, 65] {
        let error = MicroVm::new(&Config { vcpus, ..config() }).unwrap_err();
        assert!(matches!(error, Error::VcpuCount { asked, .. } if asked == vcpus), "{error}");
    }
}

#[test]
fn a_missing_device_is_told_with_the_way_out() {
    let error = MicroVm::new(&Config { kvm: "/nowhere/kvm".into(), ..config() }).unwrap_err();
    assert!(matches!(&error, Error::NoKvm { path } if path.ends_with("kvm")), "{error}");
}
