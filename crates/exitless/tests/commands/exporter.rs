//! `exitless exporter` without KVM.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use crate::command::{command, run};

#[test]
fn no_socket_is_left_by_an_exporter_that_could_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let listen = format!("unix:{}", socket.display());
    let output = run(&["exporter", "-v", "--listen", &listen, "--vm", "of-no-such-name"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Metrics are at") && said.contains("of-no-such-name"), "{said}");
    assert!(!socket.exists(), "{said}");
}

#[test]
fn with_wait_neither_kvm_nor_the_vm_has_to_be_there() {
    if ["kvm_intel", "kvm_amd"].iter().any(|module| Path::new("/sys/module").join(module).exists()) {
        return println!("not tested: KVM is loaded");
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let listen = format!("unix:{}", socket.display());
    let mut command = command(&["exporter", "--wait", "--listen", &listen, "--vm", "of-no-such-name"]);
    let mut exporter = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(exporter.stderr.take().unwrap());
    while !said.contains("Waiting for kvm_intel or kvm_amd") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    UnixStream::connect(&socket).unwrap();
    let id = rustix::process::Pid::from_child(&exporter);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(exporter.wait().unwrap().success(), "{said}");
    assert!(!socket.exists());
}

/// The values of a directive of the systemd unit, in order.
fn values(directive: &str) -> Vec<&'static str> {
    let unit = include_str!("../../../../packaging/systemd/exitless-exporter.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix(directive)?.strip_prefix('='));
    lines.flat_map(str::split_ascii_whitespace).collect()
}

#[test]
fn the_unit_gives_what_the_exporters_options_and_old_kernels_need() {
    // eBPF maps count against RLIMIT_MEMLOCK before Linux 5.11.
    assert_eq!(values("LimitMEMLOCK"), ["infinity"]);
    // CAP_DAC_OVERRIDE is for exitless-iocm's control socket, which has mode 0600 and another owner;
    // CAP_CHOWN is for --socket-group.
    for capability in ["CAP_BPF", "CAP_PERFMON", "CAP_DAC_OVERRIDE", "CAP_CHOWN"] {
        assert!(values("CapabilityBoundingSet").contains(&capability), "{capability}");
    }
    // /dev/kvm is for the micro VM's checks, /dev/kmsg for the kernel's log.
    assert_eq!(values("DeviceAllow"), ["/dev/kvm", "rw", "/dev/kmsg", "r"]);
    let calls = values("SystemCallFilter");
    let at = |name: &str| calls.iter().position(|call| *call == name);
    assert!(at("@chown") > at("~@privileged"), "{calls:?}");
}
