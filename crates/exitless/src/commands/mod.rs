//! One file per subcommand.

pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod experiment;
pub(crate) mod iocm;
pub(crate) mod lab;
pub(crate) mod lab_self_test;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod probe;
pub(crate) mod prove;
mod quantity;
pub(crate) mod record;
pub(crate) mod recordings;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod snapshot;
pub(crate) mod stat;
mod table;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod vm;
pub(crate) mod vms;
mod watching;
mod workload;
