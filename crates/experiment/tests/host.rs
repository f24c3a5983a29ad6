//! Sampling and levels on the machine at hand; most of it takes a KVM, which laboratories have.

use std::path::Path;
use std::time::{Duration, Instant};

use experiment::study::Metric;
use experiment::study::factor::{HostLevels, Level, in_force};
use experiment::study::sampling::{SamplePlan, SampledGuest, Sampler, Samples};
use knobs::RunningHost;
use probe::measure::Measure;
use probe::{Config, MicroVm};

fn value(metrics: &[Metric], name: &str) -> Option<f64> {
    metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

#[test]
fn exits_of_a_vm_are_sampled_while_it_runs() {
    let mut vm = match MicroVm::new(&Config::default()) {
        Ok(vm) => vm,
        Err(error) => {
            eprintln!("not tested: {error}");
            return;
        }
    };
    let plan = SamplePlan { interval: "100ms".parse().unwrap(), frequency: false, ..SamplePlan::default() };
    let process = i32::try_from(std::process::id()).unwrap();
    let guest = SampledGuest { name: "micro".to_owned(), process };
    let sampler = Sampler::start(&plan, Path::new("/"), &[guest]).unwrap();
    let end = Instant::now() + Duration::from_millis(600);
    let mut operations = 0;
    while Instant::now() < end {
        operations += vm.run(Measure::Cpuid, 10, 1000, None).unwrap().cycles.len();
    }
    let samples = sampler.finish();
    let metrics = samples.metrics();
    let Some(profile) = samples.profile() else {
        eprintln!("not tested: {}", samples.warnings().join("; "));
        return;
    };
    println!("{operations} operations; {:?}\n{metrics:#?}", samples.warnings());
    if profile.total() == 0 {
        eprintln!("not tested: this KVM runs guests without exits");
        return;
    }
    assert!(profile.total() >= operations as u64, "{} exits", profile.total());
    assert!(value(&metrics, "exits.total").unwrap() > 0.0);
    assert!(value(&metrics, "handling.total").unwrap() > 0.0);
    assert!(value(&metrics, "vcpu.running").unwrap() > 0.0, "the vCPUs' threads are told by KVM");
    assert!(value(&metrics, "sampling.cpu").unwrap() >= value(&metrics, "sampling.programs").unwrap());
    let folder = tempfile::tempdir().unwrap();
    samples.write(folder.path()).unwrap();
    let written = std::fs::read_to_string(folder.path().join("exits.json")).unwrap();
    assert!(written.contains("exitless-profile"));
    assert!(folder.path().join("host.parquet").metadata().unwrap().len() > 1000);
}

#[test]
#[ignore = "loads KVM's module again; for laboratories"]
fn interrupt_virtualization_goes_off_and_on_by_the_module() {
    let root = Path::new("/");
    let (module, parameter) = match host::kvm::vendor_module(root) {
        Some(host::kvm::INTEL) => (host::kvm::INTEL, "enable_apicv"),
        Some(module) => (module, "nested"),
        None => {
            eprintln!("not tested: no module of KVM is loaded");
            return;
        }
    };
    let path = format!("/sys/module/{module}/parameters/{parameter}");
    let read = || std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let before = read();
    let level: Level = toml::from_str(&format!(
        "name = \"off\"\nmodule_parameters = {{ {module} = {{ {parameter} = 0 }} }}\n\
         commands = [{{ before = \"touch /run/level\", after = \"rm -f /run/level\" }}]"
    ))
    .unwrap();
    let mut levels = HostLevels::new(root, RunningHost, vec!["test".to_owned()]);
    levels.apply(&[&level]).unwrap();
    assert!(["N", "0"].contains(&read().as_str()), "{}", read());
    assert!(Path::new("/run/level").exists());
    if parameter == "enable_apicv" {
        let vm = MicroVm::new(&Config::default()).unwrap();
        let this = SampledGuest { name: "micro".into(), process: i32::try_from(std::process::id()).unwrap() };
        let found = in_force(root, &[&level], std::slice::from_ref(&this));
        println!("off: {found:?}");
        assert_eq!(found.contradictions, Vec::<String>::new());
        let on =
            Level { commands: Vec::new(), ..toml::from_str("name = \"on\"\ninhibit = \"none\"").unwrap() };
        let found = in_force(root, &[&on], &[this]);
        println!("asked to be active: {found:?}");
        assert!(found.contradictions[0].contains("inhibited by"), "{found:?}");
        let error = HostLevels::new(root, RunningHost, Vec::new())
            .apply(&[&toml::from_str(
                "name = \"x\"\nmodule_parameters = { kvm_intel = { enable_apicv = 1 } }",
            )
            .unwrap()])
            .unwrap_err()
            .to_string();
        println!("{error}");
        assert!(error.contains("is in use by the VM"), "{error}");
        drop(vm);
    }
    assert_eq!(levels.undo(), Vec::<String>::new());
    assert_eq!(read(), before);
    assert!(!Path::new("/run/level").exists());
}

/// A QEMU whose vCPUs are made and never run.
struct Paused(std::process::Child);

impl Paused {
    fn start(arguments: &[&str]) -> std::io::Result<Self> {
        let mut command = std::process::Command::new("qemu-system-x86_64");
        command.args(["-accel", "kvm", "-S", "-display", "none", "-nodefaults", "-m", "64"]).args(arguments);
        command.stdin(std::process::Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "starts VMs under QEMU; for laboratories"]
fn qemu_sets_the_reasons_that_levels_name() {
    let root = Path::new("/");
    let isa = host::kvm::vendor_module(root).and_then(host::kvm::isa_of).unwrap();
    let machines: [(&str, &[&str]); 3] = [
        ("pit-reinject", &["-machine", "q35,kernel-irqchip=on", "-global", "kvm-pit.lost_tick_policy=delay"]),
        ("userspace-irqchip", &["-machine", "q35,kernel-irqchip=off"]),
        ("none", &["-machine", "q35,kernel-irqchip=on", "-global", "kvm-pit.lost_tick_policy=discard"]),
    ];
    let levels: Vec<Level> = machines
        .iter()
        .map(|(way, _)| toml::from_str(&format!("name = \"x\"\ninhibit = \"{way}\"")).unwrap())
        .collect();
    for (at, (way, arguments)) in machines.iter().enumerate() {
        let qemu = Paused::start(arguments).unwrap();
        let process = i32::try_from(qemu.0.id()).unwrap();
        let guest = SampledGuest { name: "web".to_owned(), process };
        let look = |level: &Level| in_force(root, &[level], std::slice::from_ref(&guest));
        let end = Instant::now() + Duration::from_secs(20);
        while !look(&levels[at]).unverified.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        for (wanted, level) in levels.iter().enumerate() {
            let found = look(level);
            println!("{way}, asked for {}: {found:?}", machines[wanted].0);
            assert_eq!(found.unverified, Vec::<String>::new());
            let possible = level.inhibit.unwrap().works_on(isa);
            assert_eq!(found.contradictions.is_empty(), at == wanted && possible, "{way}: {found:?}");
        }
    }
}
