//! `exitless snapshot` on a real KVM host, and its analysis elsewhere.

use std::fs;

use host::inspection::{Inspection, Role};
use host::snapshot;

use crate::command::run;

#[test]
fn a_host_with_a_vm_is_the_same_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let script = "qemu-system-x86_64 -name web,debug-threads=on -accel kvm -cpu host -smp 2 -m 64 -display none \
                  -object secret,id=s0,data=hunter2 -nodefaults </dev/null >/dev/null 2>&1 & vm=$!; sleep 4; \
                  exitless snapshot /tmp/host.tar.zst; status=$?; \
                  exitless collect-script >/tmp/collect.sh; sh /tmp/collect.sh >/tmp/host.tar; echo collected $?; \
                  kill $vm; wait; exit $status";
    let place = folder.path().to_str().unwrap();
    let files = ["--get", "/tmp/host.tar.zst", "--get", "/tmp/host.tar"];
    let lab = [&["lab", "run", "amd-svm"], &files[..], &["--output", place]].concat();
    let said = run(&[&lab[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.err.contains("removed from /proc/"), "{}", said.err);
    assert!(said.out.contains("collected 0"), "{} {}", said.out, said.err);

    let path = folder.path().join("host.tar.zst");
    let opened = snapshot::open(&path).unwrap();
    assert_eq!(opened.warnings, [""; 0]);
    let found = Inspection::read(&opened.root).unwrap();
    let svm = found.processor.svm.get().unwrap();
    assert!(svm.npt && !svm.avic && svm.edx.is_some(), "{svm:?}");
    assert_eq!(found.kvm.vendor_module, Some("kvm_amd"));
    assert!(found.kvm.opened.value.is_ok() && found.log.lines.value.is_ok());
    let vm = &found.running.vms.get().unwrap()[0];
    assert_eq!((vm.vm.name.as_str(), vm.vm.vcpus.len()), ("web", 2));
    let secret = vm.vm.arguments.iter().find(|one| one.starts_with("secret,"));
    assert_eq!(secret.map(String::as_str), Some("secret,id=s0,data=REMOVED"));
    assert!(!vm.vm.debugfs.is_empty());
    for number in [0, 1] {
        let thread = vm.threads.iter().find(|one| one.role == Role::Vcpu(number)).unwrap();
        assert!(thread.last.is_some() && thread.allowed.is_some(), "{thread:?}");
    }

    let collected = folder.path().join("host.tar");
    // The hypervisor's name comes from CPUID, which a script cannot execute.
    let named = findings(&path).into_iter().map(|one| one.replace(" (TCGTCGTCGTCG)", ""));
    assert_eq!(findings(&collected), named.collect::<Vec<_>>());
    let found = Inspection::read(&snapshot::open(&collected).unwrap().root).unwrap();
    let same = &found.running.vms.get().unwrap()[0].vm;
    assert_eq!((&same.vcpus, &same.threads, &same.vm_fds), (&vm.vm.vcpus, &vm.vm.threads, &vm.vm.vm_fds));

    let copy = folder.path().join("copy.tar.zst");
    let said = run(&["snapshot", "--json", "--root", path.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(said.json()["files"], serde_json::to_value(opened.manifest.unwrap().files).unwrap());
    assert!(fs::metadata(&copy).unwrap().len() > 1000);
}

/// The rule and state of each of `doctor`'s findings on an archive.
fn findings(archive: &std::path::Path) -> Vec<String> {
    fn among(found: &mut Vec<String>, value: &serde_json::Value) {
        for one in value.as_array().into_iter().flatten() {
            if one["rule"].is_string() {
                found.push(format!("{} {} {}", one["rule"], one["state"], one["found"]));
            }
            among(found, &one["findings"]);
            among(found, &one["children"]);
        }
    }
    let document = run(&["doctor", "--json", "--root", archive.to_str().unwrap()]).json();
    let mut found = Vec::new();
    among(&mut found, &document["sections"]);
    assert!(found.len() > 10, "{found:?}");
    found
}
