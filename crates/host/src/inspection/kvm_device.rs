//! `/dev/kvm`.

use crate::{AbsenceKind, Cpu, Evidence, Fact, Ownership, Root, kvm};

/// `/dev/kvm`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvmDevice {
    /// Permission bits, owner and group of the device file.
    pub owner: Fact<Ownership>,
    /// The result of opening it for reading and writing; the reason contains the next step.
    pub opened: Fact<()>,
    /// The loaded vendor module: `kvm_intel` or `kvm_amd`.
    pub vendor_module: Option<&'static str>,
}

impl KvmDevice {
    pub(super) fn read(root: &Root, cpu: Option<&Cpu>) -> Self {
        let path = kvm::DEVICE;
        let owner = match root.ownership(path) {
            Ok(owner) => {
                let text = format!("mode {:04o}, user {}, group {}", owner.mode, owner.user, owner.group);
                Fact::known(owner, path, text)
            }
            Err(error) => {
                Fact::absent(crate::root::kind_of(&error), format!("{path} cannot be looked at: {error}"))
            }
        };
        let unknown = Cpu::default();
        let cpu = cpu.unwrap_or(&unknown);
        let vendor_module = kvm::vendor_module_of(root, cpu);
        // The record contains the directory itself, which distinguishes a container without the device from a copy
        // of a host without devices.
        let devices = root.is_directory("/dev");
        if root.is_sosreport() || !(devices || root.is_live()) {
            let opened = Fact::absent(AbsenceKind::NotKept, "a copy of a host has no devices");
            return Self { owner, opened, vendor_module };
        }
        let opened = match kvm::access(root, cpu, vendor_module) {
            Ok(()) => Fact::known((), path, "opened for reading and writing"),
            Err((kind, obstacle)) => Fact {
                value: Err(crate::Absence { kind, why: obstacle.to_string() }),
                evidence: if kind == AbsenceKind::NotThere {
                    Vec::new()
                } else {
                    vec![Evidence::new(path, obstacle.why)]
                },
            },
        };
        Self { owner, opened, vendor_module }
    }
}
