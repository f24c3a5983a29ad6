//! Interrupt virtualization of this host, and KVM's mechanisms to inhibit it for one VM.

use std::fs;
use std::path::Path;

use host::Root;
use host::inspection::{KernelTypes, TypeQuestion};
use kvm_bindings::{
    KVM_CAP_HYPERV_SYNIC2, KVM_GUESTDBG_BLOCKIRQ, KVM_GUESTDBG_ENABLE, Msrs, kvm_enable_cap, kvm_guest_debug,
    kvm_msr_entry,
};
use kvm_ioctls::{Kvm, VcpuFd};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// KVM_CAP_SET_GUEST_DEBUG2: its value is the mask of accepted flags (api.rst; Linux >= 5.13).
const CAP_SET_GUEST_DEBUG2: libc::c_ulong = kvm_bindings::KVM_CAP_SET_GUEST_DEBUG2 as libc::c_ulong;

/// HV_X64_MSR_SINT0 (Hyper-V Top Level Functional Specification, "Synthetic Interrupt Sources").
const HV_X64_MSR_SINT0: u32 = 0x4000_0090;
/// The reset value: masked.
const SINT_MASKED: u64 = 1 << 16;
/// Delivery ends the interrupt, without an EOI. APICv and AVIC cannot do that, so KVM inhibits them.
const SINT_AUTO_EOI: u64 = 1 << 17;
/// Any vector from 16 up; the parked vCPU never receives it.
const SINT_VECTOR: u64 = 0x70;

/// The mechanism by which the micro VM inhibits APICv or AVIC for itself (enum kvm_apicv_inhibit in
/// arch/x86/include/asm/kvm_host.h). Both can be lifted again, and neither affects other VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InhibitMechanism {
    /// KVM_GUESTDBG_BLOCKIRQ on the parked vCPU: APICV_INHIBIT_REASON_BLOCKIRQ, Linux >= 5.16.
    BlockIrq,
    /// A Hyper-V synthetic interrupt source with AutoEOI on the parked vCPU: APICV_INHIBIT_REASON_HYPERV,
    /// reversible since Linux 5.15 (0f250a646382).
    AutoEoi,
}

impl InhibitMechanism {
    /// The kernel's name of the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BlockIrq => "BLOCKIRQ",
            Self::AutoEoi => "HYPERV",
        }
    }
}

/// The arms that are available in the micro VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arms {
    /// Both arms, in one VM and without reloading a module.
    Both {
        /// The mechanism that switches interrupt virtualization off.
        mechanism: InhibitMechanism,
    },
    /// Interrupt virtualization is not available.
    OnlyOff {
        /// The reason, with the file that shows it.
        why: String,
    },
    /// Interrupt virtualization cannot be inhibited for one VM.
    OnlyOn {
        /// The reason.
        why: String,
    },
}

/// Tests whether the loaded KVM module virtualizes interrupts; the error is the reason why not. `root` is "/"
/// or a test's tree.
pub(crate) fn host_virtualizes(root: &Path) -> Result<(), String> {
    let modules = root.join("sys/module");
    let mut why = Vec::new();
    for (module, parameter, what, other) in
        [("kvm_intel", "enable_apicv", "APICv", "svm"), ("kvm_amd", "avic", "AVIC", "vmx")]
    {
        let file = modules.join(module).join("parameters").join(parameter);
        // A module that is built in is there on CPUs of the other vendor too.
        if !modules.join(module).exists() || cpu_has(root, other) {
            continue;
        }
        // param_get_bool() writes Y and N.
        match fs::read_to_string(&file).as_deref().map(str::trim) {
            Ok("Y" | "y" | "1") => return Ok(()),
            Ok(value) => why.push(format!("{} is {value}: {module} has {what} off", file.display())),
            Err(error) => why.push(format!(
                "{} can not be read ({error}): this {module} has no such parameter or hides it",
                file.display()
            )),
        }
    }
    if why.is_empty() {
        let others = other_implementations(&modules);
        why.push(if others.is_empty() {
            format!("neither kvm_intel nor kvm_amd is in {}", modules.display())
        } else {
            format!(
                "neither kvm_intel nor kvm_amd is in {}; another implementation answers: {}",
                modules.display(),
                others.join(", ")
            )
        });
    }
    Err(why.join("; "))
}

fn other_implementations(modules: &Path) -> Vec<String> {
    let names = fs::read_dir(modules).into_iter().flatten().flatten();
    let mut others: Vec<_> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("kvm_"))
        .collect();
    others.sort_unstable();
    others
}

/// Tests whether AVIC is "hybrid" in x2APIC mode. On an AMD CPU without x2AVIC, KVM virtualizes the delivery of
/// interrupts, but register accesses exit (arch/x86/kvm/svm/avic.c, Linux >= 6.0, and earlier ones of vendors).
pub(crate) fn x2apic_is_hybrid(root: &Path) -> bool {
    let is_new = || kernel_is_at_least(root, (6, 0)) || types_have(root, TypeQuestion::X2AVIC);
    cpu_has(root, "svm") && !cpu_has(root, "x2avic") && is_new()
}

/// Tests whether uses of AutoEOI are counted (Linux >= 5.15, and earlier ones of vendors). Before, enabling the SynIC inhibits
/// for the VM's lifetime.
fn auto_eoi_is_counted(root: &Path) -> bool {
    kernel_is_at_least(root, (5, 15)) || types_have(root, TypeQuestion::AUTO_EOI_COUNTED)
}

/// Tests whether the kernel's type information has something, which vendors may have ported to an earlier release.
fn types_have(root: &Path, question: TypeQuestion) -> bool {
    let types = KernelTypes::read(&Root::directory(root));
    types.get().and_then(|types| types.answer(question)) == Some(true)
}

/// Tests whether the CPU has this flag in /proc/cpuinfo.
pub(crate) fn cpu_has(root: &Path, flag: &str) -> bool {
    let Ok(cpuinfo) = fs::read_to_string(root.join("proc/cpuinfo")) else { return false };
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|word| word == flag)
}

/// The mechanisms that this KVM offers, the preferred one first. Only a trial shows whether one works: Linux
/// 5.15 accepts BLOCKIRQ and inhibits nothing.
pub(crate) fn candidates(kvm: &Kvm, root: &Path) -> Vec<InhibitMechanism> {
    let mut found = Vec::new();
    let flags = u32::try_from(kvm.check_extension_raw(CAP_SET_GUEST_DEBUG2)).unwrap_or(0);
    if flags & KVM_GUESTDBG_BLOCKIRQ != 0 {
        found.push(InhibitMechanism::BlockIrq);
    }
    // A trial would spoil the VM.
    if kvm.check_extension(kvm_ioctls::Cap::HypervSynic2) && auto_eoi_is_counted(root) {
        found.push(InhibitMechanism::AutoEoi);
    }
    found
}

/// Compares with `/proc/sys/kernel/osrelease`, such as `6.1.0-56-cloud-amd64`.
fn kernel_is_at_least(root: &Path, wanted: (u32, u32)) -> bool {
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= wanted,
        _ => false,
    }
}

/// Sets or lifts the inhibit, through a vCPU that never runs.
pub(crate) fn set(parked: &VcpuFd, mechanism: InhibitMechanism, inhibit: bool) -> Result<(), Error> {
    match mechanism {
        InhibitMechanism::BlockIrq => {
            let control = if inhibit { KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_BLOCKIRQ } else { 0 };
            let debug = kvm_guest_debug { control, ..Default::default() };
            parked
                .set_guest_debug(&debug)
                .map_err(Error::ioctl("set KVM_GUESTDBG_BLOCKIRQ on the parked vCPU (KVM_SET_GUEST_DEBUG)"))
        }
        InhibitMechanism::AutoEoi => set_auto_eoi(parked, inhibit),
    }
}

fn set_auto_eoi(parked: &VcpuFd, inhibit: bool) -> Result<(), Error> {
    // Without the synthetic interrupt controller KVM refuses its MSRs; enabling it again changes nothing.
    let synic = kvm_enable_cap { cap: KVM_CAP_HYPERV_SYNIC2, ..Default::default() };
    parked
        .enable_cap(&synic)
        .map_err(Error::ioctl("enable the Hyper-V SynIC of the parked vCPU (KVM_CAP_HYPERV_SYNIC2)"))?;
    let data = if inhibit { SINT_VECTOR | SINT_AUTO_EOI } else { SINT_MASKED };
    let sint = kvm_msr_entry { index: HV_X64_MSR_SINT0, data, ..Default::default() };
    let what = "write the SynIC's SINT0 of the parked vCPU (KVM_SET_MSRS)";
    let msrs = Msrs::from_entries(&[sint]).map_err(|_| Error::Ioctl {
        what: what.to_owned(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })?;
    match parked.set_msrs(&msrs).map_err(Error::ioctl(what))? {
        1 => Ok(()),
        _ => Err(Error::Ioctl {
            what: what.to_owned(),
            source: std::io::Error::other("KVM took none of the registers"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_parameter_that_is_on_is_enough() {
        for file in ["sys/module/kvm_intel/parameters/enable_apicv", "sys/module/kvm_amd/parameters/avic"] {
            for value in ["Y\n", "1\n"] {
                let root = tree(&[(file, value)]);
                assert_eq!(host_virtualizes(root.path()), Ok(()), "{file} {value}");
            }
        }
    }

    #[test]
    fn a_parameter_that_is_off_is_named_with_its_value() {
        let root = tree(&[("sys/module/kvm_amd/parameters/avic", "N\n")]);
        let why = host_virtualizes(root.path()).unwrap_err();
        assert!(why.contains("sys/module/kvm_amd/parameters/avic is N"), "{why}");
    }

    #[test]
    fn a_module_for_the_other_vendors_cpus_says_nothing() {
        let root = tree(&[
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: svm avic\n"),
            ("sys/module/kvm_intel/parameters/enable_apicv", "Y\n"),
            ("sys/module/kvm_amd/parameters/avic", "N\n"),
        ]);
        let why = host_virtualizes(root.path()).unwrap_err();
        assert!(why.contains("kvm_amd has AVIC off") && !why.contains("kvm_intel"), "{why}");
    }

    #[test]
    fn a_module_without_the_parameter_says_so() {
        let root = tree(&[("sys/module/kvm_intel/parameters/ept", "Y\n")]);
        let why = host_virtualizes(root.path()).unwrap_err();
        assert!(why.contains("enable_apicv can not be read"), "{why}");
    }

    #[test]
    fn another_implementation_is_named() {
        let root = tree(&[
            ("sys/module/kvm_pvm/parameters/force", "N\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "0\n"),
        ]);
        let why = host_virtualizes(root.path()).unwrap_err();
        assert!(why.ends_with("another implementation answers: kvm_pvm"), "{why}");
        let why = host_virtualizes(tree(&[]).path()).unwrap_err();
        assert!(why.starts_with("neither kvm_intel nor kvm_amd"), "{why}");
    }

    #[test]
    fn only_an_amd_cpu_without_x2avic_is_hybrid() {
        let root = |flags: &str, release: &str| {
            let cpu = format!("processor\t: 0\nflags\t\t: {flags}\n");
            tree(&[("proc/cpuinfo", &cpu), ("proc/sys/kernel/osrelease", release)])
        };
        assert!(x2apic_is_hybrid(root("fpu svm avic", "6.0.0").path()));
        assert!(!x2apic_is_hybrid(root("fpu svm avic x2avic", "6.0.0").path()));
        assert!(!x2apic_is_hybrid(root("fpu vmx", "6.0.0").path()));
        // Before Linux 6.0 KVM inhibits AVIC for a guest with x2APIC.
        assert!(!x2apic_is_hybrid(root("fpu svm avic", "5.19.17").path()));
        // Red Hat's 5.14 has KVM of later releases.
        let red_hat = root("fpu svm avic", "5.14.0-503.11.1.el9_5.x86_64");
        assert!(!x2apic_is_hybrid(red_hat.path()));
        fs::create_dir(red_hat.path().join("exitless")).unwrap();
        fs::write(red_hat.path().join("exitless/types"), "vcpu_svm.x2avic_msrs_intercepted: yes\n").unwrap();
        assert!(x2apic_is_hybrid(red_hat.path()));
        assert!(!x2apic_is_hybrid(tree(&[]).path()));
    }

    #[test]
    fn auto_eoi_is_counted_by_kernels_that_have_the_counter() {
        let red_hat = tree(&[("proc/sys/kernel/osrelease", "5.14.0-503.11.1.el9_5.x86_64")]);
        assert!(!auto_eoi_is_counted(red_hat.path()));
        fs::create_dir(red_hat.path().join("exitless")).unwrap();
        fs::write(red_hat.path().join("exitless/types"), "kvm_hv.synic_auto_eoi_used: yes\n").unwrap();
        assert!(auto_eoi_is_counted(red_hat.path()));
        assert!(auto_eoi_is_counted(tree(&[("proc/sys/kernel/osrelease", "5.15.0")]).path()));
    }

    #[test]
    fn kernels_are_told_by_their_first_two_numbers() {
        let at_least = |release: &str| {
            kernel_is_at_least(tree(&[("proc/sys/kernel/osrelease", release)]).path(), (5, 15))
        };
        assert!(at_least("5.15.0-91-generic\n"));
        assert!(at_least("6.1.0-56-cloud-amd64\n"));
        assert!(!at_least("5.10.0-28-amd64\n"));
        assert!(!at_least("4.18.0-513.el8.x86_64\n"));
        assert!(!at_least("garbage\n"));
        assert!(!kernel_is_at_least(tree(&[]).path(), (5, 15)));
    }

    #[test]
    fn reasons_have_the_names_of_the_tracepoint() {
        assert_eq!(InhibitMechanism::BlockIrq.reason(), "BLOCKIRQ");
        assert_eq!(InhibitMechanism::AutoEoi.reason(), "HYPERV");
    }
}
