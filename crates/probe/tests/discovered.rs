//! The micro VM as others see it: found by its descriptors, with its vCPUs.

use std::path::Path;

use host::vms::{Vmm, Vms};
use probe::{Config, Error, MicroVm};

#[test]
fn the_micro_vm_is_found_among_those_of_the_host() {
    let config = Config { vcpus: 3, ..Config::default() };
    let vm = match MicroVm::new(&config) {
        Ok(vm) => vm,
        Err(error @ (Error::NoKvm { .. } | Error::KvmDenied { .. } | Error::OpenKvm { .. })) => {
            eprintln!("not tested: {error}");
            return;
        }
        Err(error) => panic!("{error}: {error:?}"),
    };
    let own = std::process::id().to_string();
    let found = Vms::discover(Path::new("/")).unwrap();
    let chosen = found.select(std::slice::from_ref(&own)).unwrap();
    let [one] = chosen.as_slice() else { panic!("{chosen:?}") };
    assert_eq!((one.pid.to_string(), one.vmm), (own.clone(), Vmm::Other));
    assert_eq!(one.vm_fds.len(), 1, "{one:?}");
    let numbers: Vec<u32> = one.vcpus.iter().map(|vcpu| vcpu.number).collect();
    // There may be a fourth, parked one.
    assert_eq!(numbers[..3], [0, 1, 2], "{one:?}");
    for vcpu in &one.vcpus[..3] {
        assert!(
            vcpu.fd.is_some() && vcpu.thread.is_some_and(|thread| one.threads.contains(&thread)),
            "{one:?}"
        );
    }

    drop(vm);
    let later = Vms::discover(Path::new("/")).unwrap();
    assert!(later.select(&[own]).is_err(), "{later:?}");
}
