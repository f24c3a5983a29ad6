//! Tests of the command line that need no emulator, in one program, because each program has to be linked.

// Aliases for the crates that the fuzz targets use; see `fuzz_targets.rs`.
extern crate self as exitless_fuzz;
extern crate self as libfuzzer_sys;
use fuzz_targets::{consistent, definitions, fuzz_target, read_recording};

mod advise;
mod command;
mod diff;
mod docs;
mod doctor;
#[path = "../../src/examples.rs"]
mod examples;
mod examples_run;
mod experiment_report;
mod experiment_run;
mod exporter;
mod floors;
#[allow(clippy::disallowed_methods, reason = "what the targets write goes to no terminal")]
mod fuzz_targets;
mod golden_files;
mod guest;
mod iocm;
mod iocm_control;
mod iocm_device;
mod iocm_hostile;
mod iocm_libvirt;
mod iocm_monitor;
mod iocm_systemd;
mod lab;
mod one_cause;
mod perf;
mod predict;
mod profile;
mod progress;
mod prove;
mod recordings;
#[path = "../shared/said.rs"]
mod said;
mod scripts;
mod security;
mod self_test;
mod setup;
#[path = "../shared/systemd.rs"]
mod systemd;
mod targets;
mod top;
mod vm_fix;
mod xen;
