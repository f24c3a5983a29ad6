//! The command line without an emulator: one program for all tests, because each has to be linked.

mod advise;
mod command;
mod diff;
mod doctor;
mod experiment_report;
mod experiment_run;
mod floors;
mod guest;
mod iocm;
mod iocm_control;
mod iocm_hostile;
mod iocm_monitor;
mod perf;
mod predict;
mod profile;
mod prove;
mod recordings;
mod security;
mod top;
mod xen;
