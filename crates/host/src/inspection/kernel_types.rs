//! Features of the running KVM by the kernel's type information (BTF), independent of the kernel's version.

use crate::root::kind_of;
use crate::{AbsenceKind, Fact, Root};
use btf::Btf;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// The file with the answers of another machine, one on each line: `kvm_arch.apicv_nr_irq_window_req: yes`.
const KEPT: &str = "/exitless/types";
const HOME: &str = "/sys/kernel/btf";

/// A question about the type information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeQuestion {
    /// The presence of a member in a structure.
    Member(&'static str, &'static str),
    /// The presence of a value in an enumeration.
    Value(&'static str, &'static str),
}

impl TypeQuestion {
    /// The number of Hyper-V enlightenments with AutoEOI (Linux 5.15, 0f250a646382).
    pub const AUTO_EOI_COUNTED: Self = Self::Member("kvm_hv", "synic_auto_eoi_used");
    /// Inhibit reasons of a single vCPU, such as a nested guest (5.19).
    pub const INHIBITS_OF_VCPU: Self = Self::Member("kvm_x86_ops", "vcpu_get_apicv_inhibit_reasons");
    /// The interception of the x2APIC MSRs, which x2AVIC removes (6.0).
    pub const X2AVIC: Self = Self::Member("vcpu_svm", "x2avic_msrs_intercepted");
    /// Intel's PID-pointer table for IPI virtualization (6.0).
    pub const IPI_TABLE: Self = Self::Member("kvm_vmx", "pid_table");
    /// The split format in which AMD's CPUs store the x2APIC ICR (6.12, 73b42dc69be8).
    pub const SPLIT_ICR: Self = Self::Member("kvm_x86_ops", "x2apic_icr_is_split");
    /// The inhibit reason of APIC IDs beyond the hardware's table (6.17).
    pub const ID_TOO_BIG: Self = Self::Value("kvm_apicv_inhibit", "APICV_INHIBIT_REASON_PHYSICAL_ID_TOO_BIG");
    /// The number of vCPUs that wait for an interrupt window (7.1, 6563ddadd169).
    pub const IRQ_WINDOWS: Self = Self::Member("kvm_arch", "apicv_nr_irq_window_req");
    /// The marker of VT-d entries that post to vCPUs, as distinct from those for the host's own posted MSIs
    /// (6.15, 688124cc541f).
    pub const POSTED_TO_VCPU: Self = Self::Member("irq_2_iommu", "posted_vcpu");

    /// All questions.
    pub const ALL: [Self; 8] = [
        Self::AUTO_EOI_COUNTED,
        Self::INHIBITS_OF_VCPU,
        Self::X2AVIC,
        Self::IPI_TABLE,
        Self::SPLIT_ICR,
        Self::ID_TOO_BIG,
        Self::IRQ_WINDOWS,
        Self::POSTED_TO_VCPU,
    ];

    fn ask(self, types: &Btf) -> Option<bool> {
        match self {
            Self::Member(structure, member) => types.has_member(structure, member),
            Self::Value(enumeration, value) => types.has_value(enumeration, value),
        }
    }
}

impl fmt::Display for TypeQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Member(of, name) | Self::Value(of, name)) = self;
        write!(f, "{of}.{name}")
    }
}

/// The answers. A question about a type that the kernel does not describe has no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelTypes(BTreeMap<TypeQuestion, bool>);

impl KernelTypes {
    /// The answer to a question, if there is one.
    #[must_use]
    pub fn answer(&self, question: TypeQuestion) -> Option<bool> {
        self.0.get(&question).copied()
    }

    /// Asks the kernel below `root`; for a kept host, the answers that were recorded there.
    #[must_use]
    pub fn read(root: &Root) -> Fact<Self> {
        if !root.is_live()
            && let Ok(text) = root.read(KEPT)
        {
            let text = String::from_utf8_lossy(&text);
            return Self(text.lines().filter_map(kept).collect()).known();
        }
        match Self::ask(root) {
            Ok(answers) => {
                for (question, there) in &answers.0 {
                    root.append(KEPT, &format!("{question}: {}", if *there { "yes" } else { "no" }));
                }
                answers.known()
            }
            // BTF is not recorded, only the answers are: its files have many megabytes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Fact::absent(AbsenceKind::NotThere, format!("there is no {HOME}/vmlinux"))
            }
            Err(error) => Fact::absent(kind_of(&error), format!("{HOME}/vmlinux cannot be read: {error}")),
        }
    }

    fn known(self) -> Fact<Self> {
        let told = self.0.iter().map(|(question, there)| format!("{question}: {there}"));
        let told = told.collect::<Vec<_>>().join(", ");
        Fact::known(self, HOME, told)
    }

    /// Reads the answers from the BTF of the kernel and, if KVM is not built in, of KVM's modules.
    fn ask(root: &Root) -> io::Result<Self> {
        let kernel = Btf::parse(root.peek(&format!("{HOME}/vmlinux"))?)?;
        let module = |name: &str| Btf::parse_split(root.peek(&format!("{HOME}/{name}")).ok()?, &kernel).ok();
        // Ask the modules first: only a module's own BTF has its types in full.
        let mut all: Vec<Btf> = ["kvm_amd", "kvm_intel", "kvm"].into_iter().filter_map(module).collect();
        all.push(kernel.clone());
        let ask =
            |question: TypeQuestion| Some((question, all.iter().find_map(|types| question.ask(types))?));
        Ok(Self(TypeQuestion::ALL.into_iter().filter_map(ask).collect()))
    }
}

fn kept(line: &str) -> Option<(TypeQuestion, bool)> {
    let (name, answer) = line.split_once(": ")?;
    let question = TypeQuestion::ALL.into_iter().find(|question| question.to_string() == name)?;
    match answer.trim() {
        "yes" => Some((question, true)),
        "no" => Some((question, false)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "kernel_types_tests.rs"]
mod tests;
