//! Offsets of KVM's fields that raw tracepoints do not pass, from the type information (BTF) of the running kernel.

use std::path::Path;

use btf::Btf;
use exits::Isa;
use host::kvm::module_of;

/// Offsets in bytes, by which the BPF programs read the reason of an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// The index of the vCPU among the arguments of the tracepoint `kvm_exit`.
    pub(super) vcpu_argument: u32,
    /// `vcpu_id` in `struct kvm_vcpu`.
    pub(super) vcpu_id: u32,
    /// The exit reason in `struct vcpu_vmx`, or the exit code in `struct vmcb`.
    pub(super) reason: u32,
    /// The pointer to the VMCB in `struct vcpu_svm`.
    pub(super) vmcb: u32,
    /// `handling_intr_from_guest` of a vCPU (Linux 5.18): set while KVM handles an interrupt that arrived in the
    /// guest. 0 if the kernel does not have it.
    pub(super) from_guest: u32,
}

impl Layout {
    /// `orig_ax`, the system call's number, in the `struct pt_regs` that is the first argument of `sys_enter`
    /// (`arch/x86/include/asm/ptrace.h`).
    pub(super) const SYSTEM_CALL: Self =
        Self { vcpu_argument: 0, vcpu_id: 0, reason: 120, vmcb: 0, from_guest: 0 };

    /// Finds the offsets for the host below `root`. The error says what is missing.
    pub(super) fn find(root: &Path, isa: Isa) -> Result<Self, String> {
        let types = kernel_types(root)?;
        let (vendor, kvm) = (module_types(root, &types, module_of(isa))?, module_types(root, &types, "kvm")?);
        let missing = |what: &str| format!("the kernel's type information has no {what}");
        let member = |of: &str, path: &[&str]| {
            vendor.member(of, path).ok_or_else(|| missing(&format!("{of}.{}", path.join("."))))
        };
        let (reason, vmcb) = match isa {
            Isa::Vmx => {
                starts_with_vcpu(&vendor, "vcpu_vmx")?;
                // Linux 6.16 moved the members that VMX and TDX share into a structure of their own.
                let reason = member("vcpu_vmx", &["exit_reason"])
                    .or_else(|_| member("vcpu_vmx", &["vt", "exit_reason"]))?;
                (reason, 0)
            }
            Isa::Svm => {
                starts_with_vcpu(&vendor, "vcpu_svm")?;
                let control = member("vmcb", &["control"])?;
                let code = member("vmcb_control_area", &["exit_code"])?;
                (control + code, member("vcpu_svm", &["vmcb"])?)
            }
        };
        Ok(Self {
            vcpu_argument: vcpu_arguments(&kvm)
                .ok_or_else(|| missing("usable btf_trace_kvm_exit and btf_trace_kvm_entry"))?,
            vcpu_id: member("kvm_vcpu", &["vcpu_id"])?,
            reason,
            vmcb,
            from_guest: vendor.member("kvm_vcpu", &["arch", "handling_intr_from_guest"]).unwrap_or(0),
        })
    }
}

/// Tests whether the kernel has the type information that raw tracepoints need. If KVM is not loaded, only the
/// kernel's own is checked.
///
/// # Errors
/// The missing part. Without it, stable tracepoints are used, whose overhead is higher.
pub fn type_information(root: &Path) -> Result<(), String> {
    let found = match host::kvm::vendor_module(root).and_then(host::kvm::isa_of) {
        Some(isa) => Layout::find(root, isa).map(drop),
        None => kernel_types(root).map(drop),
    };
    found
        .map_err(|why| format!("{why}; stable tracepoints are used, which cost more (CONFIG_DEBUG_INFO_BTF)"))
}

/// The type information of the kernel itself.
pub(crate) fn kernel_types(root: &Path) -> Result<Btf, String> {
    let path = root.join("sys/kernel/btf/vmlinux");
    Btf::from_file(&path).map_err(|error| format!("no type information in {} ({error})", path.display()))
}

/// The type information of a module of KVM, based on the kernel's.
pub(crate) fn module_types(root: &Path, kernel: &Btf, module: &str) -> Result<Btf, String> {
    let home = root.join("sys/kernel/btf");
    let path = home.join(module);
    // If KVM is built in, its types are in the kernel's type information.
    if !path.exists() && home.join("kvm").exists() {
        return Err(format!("no type information in {}", path.display()));
    }
    if !path.exists() {
        return kernel_types(root);
    }
    Btf::from_split_file(&path, kernel)
        .map_err(|error| format!("{} cannot be read ({error})", path.display()))
}

/// Tests that the vendor's structure begins with `struct kvm_vcpu`, so that the pointer that tracepoints pass points
/// to both.
pub(crate) fn starts_with_vcpu(btf: &Btf, name: &str) -> Result<(), String> {
    match btf.member(name, &["vcpu"]) {
        Some(0) => Ok(()),
        Some(_) => Err(format!("struct {name} does not begin with its vCPU")),
        None => Err(format!(
            "there is no type information of struct {name}: kernels have that of modules since Linux 5.11 \
             (CONFIG_DEBUG_INFO_BTF_MODULES)"
        )),
    }
}

/// The index of the `struct kvm_vcpu *` among the arguments of `kvm_exit`: 0 since Linux 5.17, 1 before. It must be
/// the first argument of `kvm_entry`, which was a number before Linux 5.10.
fn vcpu_arguments(btf: &Btf) -> Option<u32> {
    // The first parameter is the private data of the probe.
    let argument = |definition: &str| btf.parameter(definition, "kvm_vcpu")?.checked_sub(1);
    argument("btf_trace_kvm_entry").filter(|&at| at == 0)?;
    argument("btf_trace_kvm_exit").filter(|&at| at < 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with KVM built in, whose `kvm_entry` takes an argument of the type with this ID: 1 is `unsigned int`,
    /// 4 is `struct kvm_vcpu *`.
    fn kernel(entry_takes: u32) -> tempfile::TempDir {
        const NAMES: [&str; 8] = [
            "unsigned int",
            "kvm_vcpu",
            "vcpu_id",
            "vcpu_vmx",
            "vcpu",
            "exit_reason",
            "btf_trace_kvm_exit",
            "btf_trace_kvm_entry",
        ];
        let strings = format!("\0{}\0", NAMES.join("\0"));
        let name = |name: &str| strings.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        let types: Vec<u32> = [
            &[name("unsigned int"), 1 << 24, 4, 32][..],
            &[name("kvm_vcpu"), 4 << 24 | 1, 8, name("vcpu_id"), 1, 32],
            &[name("vcpu_vmx"), 4 << 24 | 2, 16, name("vcpu"), 2, 0, name("exit_reason"), 1, 64],
            &[0, 2 << 24, 2],
            // 5: a function that takes a `void *` and a `struct kvm_vcpu *`; 6: a pointer to it; then its typedef.
            &[0, 13 << 24 | 2, 0, 0, 0, 0, 4],
            &[0, 2 << 24, 5],
            &[name("btf_trace_kvm_exit"), 8 << 24, 6],
            &[0, 13 << 24 | 2, 0, 0, 0, 0, entry_takes],
            &[0, 2 << 24, 8],
            &[name("btf_trace_kvm_entry"), 8 << 24, 9],
        ]
        .concat();
        let (size, strings_size) = (4 * types.len() as u32, strings.len() as u32);
        let words = [0x0001_eb9f, 24, 0, size, size, strings_size].into_iter().chain(types);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.extend(strings.bytes());
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/kernel/btf")).unwrap();
        std::fs::write(root.path().join("sys/kernel/btf/vmlinux"), bytes).unwrap();
        root
    }

    #[test]
    fn raw_tracepoints_are_not_used_where_kvm_entry_gives_no_vcpu() {
        let found = Layout { vcpu_argument: 0, vcpu_id: 4, reason: 8, vmcb: 0, from_guest: 0 };
        assert_eq!(Layout::find(kernel(4).path(), Isa::Vmx), Ok(found));
        let why = Layout::find(kernel(1).path(), Isa::Vmx).unwrap_err();
        assert!(why.contains("btf_trace_kvm_entry"), "{why}");
    }
}
