//! The real program in the laboratories: real emulators, a real kernel, a real KVM, real VM exits.
//!
//! The tests build the image if it is not in the cache (about 190 MiB to download). Each boots an emulator.

mod amd_avic;
mod amd_svm;
mod arms;
mod command;
mod devices;
mod doctor;
mod enable;
mod experiment;
mod faults;
mod guests;
mod held;
mod intel_apicv;
mod iocm_guests;
mod iocm_monitor;
mod kernels;
mod levels;
mod nested;
mod prediction;
mod profile;
mod record;
mod repeat;
#[path = "../shared/said.rs"]
mod said;
mod snapshot;
mod speed;
mod stat;
mod still_guest;
#[path = "../shared/systemd.rs"]
mod systemd;
mod top;
mod trace;
mod tune;
mod verify;
mod vm_lint;
mod xen;
mod xen_apicv;
mod xen_hvm;
mod xen_study;
mod xl_config;
