//! Runs `exitless`, and parses its output.

use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) use crate::said::{Said, said};

/// Kernel arguments with which a guest boots the laboratories' kernel in half the time: no self-tests, and
/// none of what only tracing inside the guest needs.
macro_rules! quick_boot {
    () => {
        concat!(
            "no_timer_check cryptomgr.notests initcall_blacklist=",
            guest::needless_initcalls!(),
            ",trace_eval_init"
        )
    };
}
pub(crate) use quick_boot;

pub(crate) fn exitless(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The seconds of real time after which a lab that hangs is ended. nextest ends a test of a lab after 900, and
/// then nobody learns what the lab's command printed.
pub(crate) const LIMIT: &str = "780";

pub(crate) fn run(arguments: &[&str]) -> Said {
    said(&exitless(arguments).output().expect("exitless starts"))
}

/// Runs a shell script in a laboratory without its disk.
pub(crate) fn bare(lab: &str, script: &str) -> Said {
    run(&["lab", "run", lab, "--bare", "--", "sh", "-c", script])
}

/// Runs a shell script on an SVM host whose KVM is forced to use AVIC although CPUID does not report it.
pub(crate) fn forced_avic(script: &str) -> Said {
    let reload = "modprobe -r kvm_amd && modprobe kvm_amd avic=1 force_avic=1 || exit 125";
    run(&["lab", "run", "amd-svm", "--", "sh", "-c", &format!("{reload}\n{script}")])
}

/// The mask of a VM's inhibit reasons in the last sample of `verify`, without IRQWIN (bit 8 in Linux 6.12), which comes and
/// goes.
pub(crate) fn lasting_inhibits(vm: &Value) -> u64 {
    vm["state"]["last"]["inhibits"].as_u64().unwrap_or_else(|| panic!("{vm}")) & !(1 << 8)
}

/// A Xen host for running a shell script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dom0<'a> {
    pub(crate) lab: &'a str,
    /// Further options of `lab run`.
    pub(crate) options: &'a [&'a str],
    /// Files that are copied in.
    pub(crate) put: &'a [&'a str],
}

impl Default for Dom0<'_> {
    fn default() -> Self {
        Self { lab: "xen", options: &[], put: &[] }
    }
}

impl Dom0<'_> {
    /// Runs the script, and copies files out.
    pub(crate) fn run(&self, script: &str, files: &[&str], output: &str) -> Said {
        let mut arguments = vec!["lab", "run", self.lab, "--timeout", LIMIT, "--output", output];
        arguments.extend(self.options);
        if !self.put.is_empty() {
            arguments.push("--put");
            arguments.extend(self.put);
        }
        if !files.is_empty() {
            arguments.push("--get");
            arguments.extend(files);
        }
        arguments.extend(["--", "sh", "-c", script]);
        run(&arguments)
    }
}

/// Takes all measurements with three vCPUs on the KVM of a laboratory, and returns the result and the
/// recording.
pub(crate) fn probe_with(lab: &str, apic: &str, irqchip: &str, blocks: &str) -> Value {
    let said = run(&[
        "lab",
        "run",
        lab,
        "--bare",
        "--",
        "exitless",
        "probe",
        "--json",
        "--vcpus",
        "3",
        "--apic",
        apic,
        "--irqchip",
        irqchip,
        "--samples",
        "50",
        "--warm-up",
        "5",
        "--blocks",
        blocks,
    ]);
    assert_eq!(said.status, 0, "{}", said.err);
    let all = said.json();
    assert_eq!(all["recording"]["failures"], Value::Array(Vec::new()));
    assert_eq!(all["result"]["measures"].as_array().unwrap().len(), 16);
    all
}
