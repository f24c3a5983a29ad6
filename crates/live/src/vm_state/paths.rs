//! The paths from a vCPU to the fields of KVM that are read.

use aya::Pod;
use btf::Btf;
use exits::Isa;

use super::PATHS;
use crate::collector::layout::{kernel_types, module_types, starts_with_vcpu};

/// `STEPS` of the BPF program.
const STEPS: usize = 4;

/// `struct path` of the BPF program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Path {
    steps: u32,
    size: u32,
    at: [u32; STEPS],
}

// SAFETY: plain numbers without padding, laid out as the program's structure; every bit pattern is a value.
unsafe impl Pod for Path {}
const _: () = assert!(size_of::<Path>() == 4 * (2 + STEPS));

impl Path {
    fn new(size: u32, steps: &[u32]) -> Option<Self> {
        let mut at = [0; STEPS];
        at.get_mut(..steps.len())?.copy_from_slice(steps);
        Some(Self { steps: u32::try_from(steps.len()).ok()?, size, at })
    }
}

/// The values, by the number of their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    VcpuId,
    Kvm,
    Inhibits,
    Apic,
    Active,
    ApicBase,
    Irqchip,
    Pit,
    PitReinject,
    VmType,
    IntCtl,
    PostedFirst,
    Pin,
    Secondary,
    Tertiary,
}

/// The offsets in this kernel, for the BPF program and for the reader of its values.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) task_process: u32,
    pub(super) file_private: u32,
    pub(super) paths: [Option<Path>; PATHS],
    /// The offset in a vCPU of AMD's list of posted interrupts.
    pub(super) posted_list: u32,
    /// Fields that are missing in this kernel's type information.
    pub(super) missing: Vec<String>,
}

impl Layout {
    /// Finds the offsets for the host below `root`. The error names a mandatory field that is missing.
    pub(super) fn find(root: &std::path::Path, isa: Option<Isa>) -> Result<Self, String> {
        let kernel = kernel_types(root)?;
        let kvm = module_types(root, &kernel, "kvm")?;
        let needed = |types: &Btf, of: &str, path: &[&str]| {
            let found = types.member(of, path);
            found.ok_or_else(|| format!("the kernel's type information has no {of}.{}", path.join(".")))
        };
        let mut layout = Self {
            task_process: needed(&kernel, "task_struct", &["tgid"])?,
            file_private: needed(&kernel, "file", &["private_data"])?,
            paths: [None; PATHS],
            posted_list: 0,
            missing: Vec::new(),
        };
        let to_kvm = needed(&kvm, "kvm_vcpu", &["kvm"])?;
        let number = needed(&kvm, "kvm_vcpu", &["vcpu_id"])?;
        layout.set(What::VcpuId, 4, &[number]);
        layout.set(What::Kvm, 8, &[to_kvm]);
        layout.of_kvm(&kvm, to_kvm);
        layout.of_apic(&kvm);
        if let Some(isa) = isa {
            match module_types(root, &kernel, host::kvm::module_of(isa)) {
                Ok(vendor) => layout.of_vendor(&vendor, isa),
                Err(why) => layout.missing.push(why),
            }
        }
        Ok(layout)
    }

    fn set(&mut self, what: What, size: u32, steps: &[u32]) {
        self.paths[what as usize] = Path::new(size, steps);
    }

    fn note(&mut self, of: &str, path: &[&str]) {
        self.missing.push(format!("{of}.{}", path.join(".")));
    }

    fn of_kvm(&mut self, kvm: &Btf, to_kvm: u32) {
        let fields: [(What, u32, &[&str]); 4] = [
            (What::Inhibits, 8, &["arch", "apicv_inhibit_reasons"]),
            (What::Irqchip, 4, &["arch", "irqchip_mode"]),
            // One byte since Linux 6.9, four before; the numbers are small.
            (What::VmType, 1, &["arch", "vm_type"]),
            (What::Pit, 8, &["arch", "vpit"]),
        ];
        for (what, size, path) in fields {
            match kvm.member("kvm", path) {
                Some(at) => self.set(what, size, &[to_kvm, at]),
                // The others are optional: kernels can be built without a PIT, and older ones have no VM types.
                None if what == What::Inhibits => self.note("kvm", path),
                None => {}
            }
        }
        let reinject = kvm.member("kvm_pit", &["pit_state", "reinject"]);
        if let (Some(pit), Some(reinject)) = (kvm.member("kvm", &["arch", "vpit"]), reinject) {
            self.set(What::PitReinject, 4, &[to_kvm, pit, reinject]);
        }
    }

    fn of_apic(&mut self, kvm: &Btf) {
        if let Some(base) = kvm.member("kvm_vcpu", &["arch", "apic_base"]) {
            self.set(What::ApicBase, 8, &[base]);
        }
        let to_apic = kvm.member("kvm_vcpu", &["arch", "apic"]);
        if let Some(apic) = to_apic {
            self.set(What::Apic, 8, &[apic]);
        }
        // Linux 6.0 moved it from the vCPU to its APIC.
        match (to_apic, kvm.member("kvm_lapic", &["apicv_active"])) {
            (Some(apic), Some(active)) => self.set(What::Active, 1, &[apic, active]),
            _ => match kvm.member("kvm_vcpu", &["arch", "apicv_active"]) {
                Some(active) => self.set(What::Active, 1, &[active]),
                None => self.note("kvm_lapic", &["apicv_active"]),
            },
        }
    }

    fn of_vendor(&mut self, vendor: &Btf, isa: Isa) {
        let structure = match isa {
            Isa::Vmx => "vcpu_vmx",
            Isa::Svm => "vcpu_svm",
        };
        if let Err(why) = starts_with_vcpu(vendor, structure) {
            self.missing.push(why);
            return;
        }
        match isa {
            Isa::Vmx => {
                let fields: [(What, u32, &[&str]); 3] = [
                    (What::Pin, 4, &["vmcs01", "controls_shadow", "pin"]),
                    (What::Secondary, 4, &["vmcs01", "controls_shadow", "secondary_exec"]),
                    (What::Tertiary, 8, &["vmcs01", "controls_shadow", "tertiary_exec"]),
                ];
                for (what, size, path) in fields {
                    match vendor.member(structure, path) {
                        Some(at) => self.set(what, size, &[at]),
                        // Kernels before 6.0 do not have it.
                        None if what == What::Tertiary => {}
                        None => self.note(structure, path),
                    }
                }
            }
            Isa::Svm => {
                // The VMCB of the VM itself, not that of a nested guest; up to Linux 5.13 there was only one pointer.
                let vmcb = vendor
                    .member(structure, &["vmcb01", "ptr"])
                    .or_else(|| vendor.member(structure, &["vmcb"]));
                let control = vendor.member("vmcb", &["control"]);
                let word = vendor.member("vmcb_control_area", &["int_ctl"]);
                match (vmcb, control, word) {
                    (Some(vmcb), Some(control), Some(word)) => {
                        self.set(What::IntCtl, 4, &[vmcb, control + word]);
                    }
                    _ => self.note(structure, &["vmcb01", "ptr", "control", "int_ctl"]),
                }
                if let Some(list) = vendor.member(structure, &["ir_list"]) {
                    self.posted_list = list;
                    self.set(What::PostedFirst, 8, &[list]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_values_have_room_and_paths_are_not_too_long() {
        assert!((What::Tertiary as usize) < PATHS);
        assert_eq!(Path::new(4, &[1, 2, 3]), Some(Path { steps: 3, size: 4, at: [1, 2, 3, 0] }));
        assert_eq!(Path::new(4, &[0; 5]), None);
        let source = include_str!("../collector/programs/state.bpf.c");
        assert!(source.contains(&format!("#define PATHS {PATHS}\n")));
        assert!(source.contains(&format!("#define STEPS {STEPS}\n")));
    }

    #[test]
    fn a_host_without_type_information_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let why = Layout::find(root.path(), Some(Isa::Vmx)).unwrap_err();
        assert!(why.contains("sys/kernel/btf/vmlinux"), "{why}");
    }
}
