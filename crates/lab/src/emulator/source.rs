//! The emulators' sources: a Debian source package, patches, and a configuration for each.

use std::path::PathBuf;

use crate::definition::Emulator;
use crate::recipe::key;

/// Incremented when the steps of compiling change.
const STEPS: u32 = 1;
/// The file name of the program in a finished emulator's folder.
pub(super) const PROGRAM: &str = "emulator";

/// The Python of the host's packages, which `configure` of QEMU is told to use: another one that is first on PATH
/// need not have the same modules.
pub(super) const PYTHON_PROGRAM: &str = "/usr/bin/python3";

/// An emulator's source and the way to compile it.
#[derive(Debug)]
pub(super) struct Source {
    /// The name of the source package, also used in names of cache folders.
    pub(super) name: &'static str,
    /// The upstream version that the laboratories were tested with.
    pub(super) version: &'static str,
    /// SHA-256 of Debian's tarball of that version.
    pub(super) sha256: &'static str,
    /// The environment variable for a tarball to use instead of Debian's.
    pub(super) variable: &'static str,
    /// The names and texts of the patches, in the order of applying them.
    pub(super) patches: &'static [(&'static str, &'static str)],
    /// Files added to the source.
    pub(super) added: &'static [(&'static str, &'static str)],
    /// Packages with Python modules that `configure` needs, from the laboratories' Debian release, because
    /// older releases lack them.
    pub(super) python: &'static [&'static str],
    /// Arguments of `configure`, one per line; `#` starts a comment.
    pub(super) configure: &'static str,
    /// The command for compiling, without the number of jobs.
    pub(super) make: &'static [&'static str],
    /// The program's path in the build folder.
    pub(super) program: &'static str,
    /// Programs and libraries that compiling needs, each with its Debian package.
    pub(super) needs: &'static [Need],
    /// The number of files to compile, for the progress display.
    pub(super) units: u64,
}

/// A build requirement.
#[derive(Debug)]
pub(super) enum Need {
    /// A program on PATH.
    Program(&'static str, &'static str),
    /// A module of pkg-config.
    Library(&'static str, &'static str),
    /// Modules of [`PYTHON_PROGRAM`], separated by commas.
    PythonModules(&'static str, &'static str),
}

macro_rules! patches {
    ($emulator:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../patches/", $emulator, "/", $name, ".patch")))),*]
    };
}

impl Source {
    pub(super) fn of(emulator: Emulator) -> &'static Self {
        match emulator {
            Emulator::Bochs => &BOCHS,
            Emulator::Qemu => &QEMU,
        }
    }

    /// The tarball that the user's environment names.
    pub(super) fn given(&self) -> Option<PathBuf> {
        std::env::var_os(self.variable).map(PathBuf::from)
    }

    /// Identifies the recipe; independent of the version of the source.
    pub(super) fn key(&self) -> String {
        let steps = STEPS.to_string();
        let fixed = [self.name, self.sha256, self.configure, &steps];
        let pairs = self.patches.iter().chain(self.added).flat_map(|(name, text)| [*name, *text]);
        key(fixed.into_iter().chain(pairs).chain(self.make.iter().copied()).collect::<Vec<_>>().iter())
    }

    /// The arguments of `configure`.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.configure.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        lines.filter(|line| !line.is_empty())
    }
}

static BOCHS: Source = Source {
    name: "bochs",
    version: "3.0",
    sha256: "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b",
    variable: "EXITLESS_BOCHS_SOURCE",
    patches: patches!("bochs":
        "01-vmx-posted-interrupt-descriptor-alignment",
        "02-vmx-posted-interrupt-without-request",
        "03-vmx-masked-virtual-interrupt",
        "04-vmx-virtual-interrupt-vectoring-information",
        "05-smp-commit-after-exception",
        "06-vmx-external-interrupts-after-entry",
        "07-vmx-interrupts-in-halt",
        "08-monitor-wakes-nobody",
        "09-smp-clock-for-each-cpu",
        "10-vmx-switch-ticks",
        "11-port-e9-input",
        "12-save-restore-overlapping-strcpy",
        "13-save-restore-map-memory",
        "14-save-before-first-input",
        "15-rdrand-seed",
        "16-status-bar-by-emulated-time",
        "17-build-compile-the-headers-of-the-cpu-once",
        "18-cache-more-traces",
        "19-paging-read-entries-from-ram",
        "20-compare-no-disabled-breakpoints",
    ),
    added: &[],
    python: &[],
    configure: include_str!("../../patches/bochs/configure"),
    make: &["make"],
    program: "bochs",
    needs: &[Need::Program("g++", "g++"), Need::Program("make", "make"), Need::Program("patch", "patch")],
    units: 330,
};

static QEMU: Source = Source {
    name: "qemu",
    version: "10.0.13",
    sha256: "6a0888e806c2ffc0c5f0733e974f9aea55491950d3c47c98669c8b236dde59ae",
    variable: "EXITLESS_QEMU_SOURCE",
    patches: patches!("qemu":
        "01-build-from-a-tree-without-firmware",
        "02-svm-deliver-an-injected-interrupt-once",
        "03-pause-leaves-the-loop-only-for-a-cpu-that-has-work",
        "04-svm-change-interrupt_request-with-the-lock-held",
        "05-take-the-next-pending-interrupt-at-once",
        "06-svm-tell-interrupts-from-exceptions-in-EXITINTINFO",
        "07-give-a-vmexit-a-cost",
        "08-icount-give-each-cpu-a-clock",
        "09-icount-stop-the-clock-while-a-disk-is-busy",
        "10-svm-keep-translations-across-VMRUN-and-VMEXIT",
        "11-svm-emulate-AVIC",
        "12-svm-emulate-x2AVIC",
        "13-svm-migrate-a-guest-with-AVIC",
        "14-amd_iommu-test-bits-of-a-register",
        "15-amd_iommu-let-software-clear-status-bits",
        "16-amd_iommu-keep-the-event-log-as-a-ring",
        "17-amd_iommu-find-a-device-by-its-bus",
        "18-amd_iommu-post-interrupts-into-guests",
        "19-amd_iommu-cache-interrupt-remapping-entries",
        "20-apic-migrate-the-vector-of-a-pending-SIPI",
        "21-svm-refuse-writes-of-ID-and-LDR-in-x2AVIC",
        "22-amd_iommu-write-the-address-of-an-event",
        "23-amd_iommu-log-page-faults-of-devices-as-they-are",
        "24-amd_iommu-stop-at-an-illegal-command",
        "25-amd_iommu-interrupt-for-a-completion-if-software-wants-it",
        "26-icount-let-no-other-thread-choose-turns",
        "27-virtio-keep-the-hosts-time-out-of-the-guests",
        "28-icount-take-short-turns-while-vcpus-interrupt-each-other",
        "29-icount-chain-the-iterations-of-a-string-instruction",
        "30-build-precompile-osdep",
        "31-amd_iommu-migrate-its-state",
        "32-nvme-migrate-a-controller-that-was-never-enabled",
        "33-invalidate-a-block-without-flushing-the-cache-of-jumps",
        "34-keep-the-cache-of-jumps-when-the-TLB-is-flushed",
        "35-icount-let-a-turn-end-before-its-budget-is-used-up",
        "36-make-the-cache-of-jumps-larger",
        "37-end-a-block-at-RDMSR",
    ),
    added: &[("configs/devices/x86_64-softmmu/lab.mak", include_str!("../../patches/qemu/lab.mak"))],
    python: &["meson", "python3-distlib"],
    configure: include_str!("../../patches/qemu/configure"),
    make: &["ninja", "qemu-system-x86_64"],
    program: "qemu-system-x86_64",
    needs: &[
        Need::Program("gcc", "gcc"),
        Need::Program("ninja", "ninja-build"),
        Need::Program("patch", "patch"),
        Need::PythonModules("venv, ensurepip", "python3-venv"),
        Need::Program("pkg-config", "pkgconf"),
        Need::Library("glib-2.0", "libglib2.0-dev"),
        Need::Library("zlib", "zlib1g-dev"),
    ],
    units: 1335,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_that_is_checked_is_the_one_that_configure_uses() {
        let given = QEMU.arguments().filter_map(|argument| argument.strip_prefix("--python="));
        assert_eq!(given.collect::<Vec<_>>(), [PYTHON_PROGRAM]);
    }
}
