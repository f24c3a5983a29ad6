//! Availability of `/dev/kvm`, and the next step if it cannot be used.

use crate::cpuinfo::Cpu;
use crate::interrupt_virtualization::InterruptVirtualization;
use crate::root::{NO_DEVICE, kind_of};
use crate::{AbsenceKind, Root};
use exits::Isa;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub use crate::modules::{AMD, INTEL, KEPT_BY_KVM};

/// The device file.
pub(crate) const DEVICE: &str = "/dev/kvm";

/// An obstacle, and the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}; {next}")]
pub struct Obstacle {
    /// The obstacle.
    pub why: String,
    /// The next step.
    pub next: String,
}

/// KVM on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kvm {
    /// The device file.
    pub device: PathBuf,
    /// `Ok` if it could be opened for reading and writing.
    pub access: Result<(), Obstacle>,
    /// True if there is no device that could be opened, for lack of its file or of a driver.
    pub is_missing: bool,
    /// The loaded vendor module: [`INTEL`] or [`AMD`].
    pub vendor_module: Option<&'static str>,
    /// APICv or AVIC; `None` if the CPU has no virtualization.
    pub interrupt_virtualization: Option<InterruptVirtualization>,
}

/// The loaded vendor module on the host below `root`: [`INTEL`] or [`AMD`].
#[must_use]
pub fn vendor_module(root: &Path) -> Option<&'static str> {
    let root = &Root::directory(root);
    vendor_module_of(root, &cpu(root))
}

/// The vendor module with a directory in sysfs. One that is built in has it on CPUs of the other vendor too, so the
/// CPU decides, if it is known.
pub(crate) fn vendor_module_of(root: &Root, cpu: &Cpu) -> Option<&'static str> {
    let isa = cpu.isa();
    [INTEL, AMD]
        .into_iter()
        .filter(|module| isa.is_none_or(|isa| module_of(isa) == *module))
        .find(|module| root.exists(&format!("/sys/module/{module}")))
}

fn cpu(root: &Root) -> Cpu {
    let text = root.text("/proc/cpuinfo", "a list of processors").ok();
    text.and_then(|text| Cpu::parse(&text)).unwrap_or_default()
}

/// The instruction set of a host with this vendor module.
#[must_use]
pub fn isa_of(vendor_module: &str) -> Option<Isa> {
    match vendor_module {
        INTEL => Some(Isa::Vmx),
        AMD => Some(Isa::Svm),
        _ => None,
    }
}

/// The vendor module of hosts with this instruction set.
#[must_use]
pub const fn module_of(isa: Isa) -> &'static str {
    match isa {
        Isa::Vmx => INTEL,
        Isa::Svm => AMD,
    }
}

/// Examines the KVM of the host below `root` (`/` for this one). Opens the device, and closes it again.
#[must_use]
pub fn usable(root: &Path) -> Kvm {
    let root = &Root::directory(root);
    let cpu = cpu(root);
    let vendor_module = vendor_module_of(root, &cpu);
    let (device, opened) = (root.place(DEVICE), root.open_device(DEVICE));
    let is_missing = opened.as_ref().is_err_and(is_missing);
    let access = opened.map_err(|error| obstacle(&device, &error, &cpu, vendor_module));
    let interrupt_virtualization = InterruptVirtualization::read(root, &cpu);
    Kvm { device, access, is_missing, vendor_module, interrupt_virtualization }
}

/// Tests whether there is nothing to open. Udev makes the file before the module is loaded, also where the module
/// cannot be loaded; then there is no driver for it.
fn is_missing(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(NO_DEVICE)
}

/// Opens the device and closes it again.
pub(crate) fn access(
    root: &Root,
    cpu: &Cpu,
    vendor_module: Option<&str>,
) -> Result<(), (AbsenceKind, Obstacle)> {
    root.open_device(DEVICE)
        .map_err(|error| (kind_of(&error), obstacle(&root.place(DEVICE), &error, cpu, vendor_module)))
}

/// A boolean parameter of a KVM module; `None` if the module has no such parameter, is not loaded, or the
/// file cannot be read.
#[must_use]
pub fn switch(root: &Path, module: &str, parameter: &str) -> Option<bool> {
    let path = crate::modules::parameter_path(module, parameter);
    let text = Root::directory(root).text(&path, "Y or N").ok()?;
    crate::modules::switch(&text)
}

fn obstacle(device: &Path, error: &std::io::Error, cpu: &Cpu, module: Option<&str>) -> Obstacle {
    let why = format!("{} cannot be opened: {error}", device.display());
    let next = match error.kind() {
        ErrorKind::PermissionDenied => {
            "join the device's group (often `usermod -aG kvm USER`, then log in again) or run as root"
                .to_owned()
        }
        ErrorKind::NotFound => absent(cpu, module),
        _ => "see the kernel's log (`dmesg | grep -i kvm`)".to_owned(),
    };
    Obstacle { why, next }
}

fn absent(cpu: &Cpu, module: Option<&str>) -> String {
    let vendor = if cpu.has("svm") {
        AMD
    } else if cpu.has("vmx") {
        INTEL
    } else if cpu.hypervisor == Some(true) {
        return "this machine is itself a guest without nested virtualization: give it vmx or svm on its host \
                (QEMU: -cpu host, kvm_intel or kvm_amd with nested=1), or use an emulated host"
            .to_owned();
    } else {
        return "the CPU shows neither vmx nor svm: switch virtualization on in the firmware, or use an \
                emulated host"
            .to_owned();
    };
    match module {
        Some(module) => format!(
            "{module} is loaded, so the device file alone is missing: in a container pass it in \
             (--device /dev/kvm), else `mknod /dev/kvm c 10 232`; if {module} is built into the kernel, it may have \
             found no usable virtualization: see `dmesg | grep -i kvm`"
        ),
        None => format!("run `modprobe {vendor}`; if that fails, see `dmesg | grep -i kvm`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn host(cpuinfo: &str, modules: &[&str], device: bool) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        for module in modules {
            fs::create_dir_all(root.path().join("sys/module").join(module)).unwrap();
        }
        if device {
            fs::write(root.path().join("dev/kvm"), "").unwrap();
        }
        root
    }

    fn next(cpuinfo: &str, modules: &[&str]) -> String {
        usable(host(cpuinfo, modules, false).path()).access.unwrap_err().next
    }

    #[test]
    fn a_device_that_opens() {
        let root = host("processor : 0\nflags : svm avic\n", &["kvm", "kvm_amd"], true);
        let kvm = usable(root.path());
        assert_eq!(kvm.access, Ok(()));
        assert_eq!(kvm.vendor_module, Some(AMD));
        assert_eq!(kvm.interrupt_virtualization.unwrap().name, "AVIC");
    }

    #[test]
    fn of_two_modules_that_are_built_in_the_one_for_the_cpu_is_meant() {
        let found = |cpuinfo: &str, modules: &[&str]| vendor_module(host(cpuinfo, modules, true).path());
        let both = &[INTEL, AMD];
        assert_eq!(found("processor : 0\nflags : svm avic\n", both), Some(AMD));
        assert_eq!(found("processor : 0\nflags : vmx\n", both), Some(INTEL));
        let hidden = "processor : 0\nvendor_id : AuthenticAMD\nflags : fpu\n";
        assert_eq!((found(hidden, both), found(hidden, &[INTEL])), (Some(AMD), None));
        assert_eq!(found("", &[AMD]), Some(AMD), "an unknown CPU");
    }

    #[test]
    fn a_device_that_may_not_be_opened_is_not_missing() {
        assert!(usable(host("", &[], false).path()).is_missing);
        assert!(!usable(host("", &[], true).path()).is_missing);
        assert!(is_missing(&std::io::Error::from_raw_os_error(NO_DEVICE)));
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ResourceBusy] {
            assert!(!is_missing(&kind.into()), "{kind}");
        }
    }

    #[test]
    fn the_next_step_fits_the_cause() {
        assert!(next("processor : 0\nflags : vmx\n", &[]).contains("modprobe kvm_intel"));
        assert!(next("processor : 0\nflags : svm\n", &["kvm_amd"]).contains("mknod"));
        assert!(next("processor : 0\nflags : hypervisor\n", &[]).contains("nested"));
        assert!(next("processor : 0\nflags : fpu\n", &[]).contains("firmware"));
        assert!(next("", &[]).contains("firmware"));
    }
}
