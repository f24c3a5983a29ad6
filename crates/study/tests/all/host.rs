//! Sampling of this machine; most tests need KVM, which laboratories have.

use std::path::Path;
use std::time::{Duration, Instant};

use probe::measure::Measure;
use probe::{Config, MicroVm};
use study::Metric;
use study::sampling::{SamplePlan, SampledGuest, Sampler, Samples};

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
