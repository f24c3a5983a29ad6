//! Whether IPIs go from vCPU to vCPU without an exit: a state of its own beside the delivery of interrupts.

use super::{Controls, Status};
use crate::Isa;
use serde::Serialize;

/// What bears on IPI virtualization.
#[derive(Debug, Clone, Copy)]
pub struct IpiEvidence {
    /// The host's kind of virtualization.
    pub isa: Option<Isa>,
    /// Whether interrupt virtualization is active for the VM.
    pub status: Status,
    /// The module's `enable_ipiv`; `None` when it has no such parameter or it may not be read. Read back after loading,
    /// it is off where the CPU cannot.
    pub parameter: Option<bool>,
    /// Whether the CPU has it (Intel's `ipi_virt`); `None` when that cannot be told.
    pub cpu: Option<bool>,
    /// The CPU's family.
    pub family: Option<u32>,
    /// What the CPU is told for one vCPU of the VM.
    pub controls: Option<Controls>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoIpiVirtualization {
    /// Interrupt virtualization is not active.
    Inhibited,
    /// `enable_ipiv` is off.
    Parameter,
    /// `enable_ipiv` is off, as the kernel leaves it on AMD's family 17h and Hygon's 18h for erratum 1235.
    Erratum1235,
    /// The CPU's controls for this VM leave it out.
    Controls,
    /// The CPU has none.
    Cpu,
    /// This kernel's module has none (Intel before Linux 6.0).
    Kernel,
}

/// IPI virtualization of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum IpiVirtualization {
    /// IPIs to running vCPUs take no exit.
    On,
    /// It could be on.
    Off(NoIpiVirtualization),
    /// It cannot be on here.
    NotAvailable(NoIpiVirtualization),
    /// What would tell is missing.
    Unknown,
}

impl IpiEvidence {
    /// The state that follows.
    #[must_use]
    pub fn judge(&self) -> IpiVirtualization {
        use IpiVirtualization::{NotAvailable, Off, On, Unknown};
        let Some(isa) = self.isa else { return Unknown };
        let controls = self.controls.and_then(Controls::sends_ipis);
        let erratum = isa == Isa::Svm && matches!(self.family, Some(0x17 | 0x18));
        match (self.status, self.parameter) {
            _ if self.cpu == Some(false) && isa == Isa::Vmx => NotAvailable(NoIpiVirtualization::Cpu),
            (_, Some(false)) if erratum => NotAvailable(NoIpiVirtualization::Erratum1235),
            (_, Some(false)) => Off(NoIpiVirtualization::Parameter),
            (_, None) if isa == Isa::Vmx && self.cpu == Some(true) && controls.is_none() => {
                NotAvailable(NoIpiVirtualization::Kernel)
            }
            (Status::Inhibited, _) => Off(NoIpiVirtualization::Inhibited),
            (Status::Unknown, _) => Unknown,
            (Status::Active | Status::Partly, parameter) => match (isa, controls) {
                (_, Some(false)) => Off(NoIpiVirtualization::Controls),
                (_, Some(true)) => On,
                (Isa::Vmx, None) if parameter == Some(true) => On,
                (Isa::Vmx, None) => Unknown,
                // Before the parameter came it was a part of AVIC.
                (Isa::Svm, None) => On,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IpiVirtualization::{NotAvailable, Off, On, Unknown};

    #[test]
    fn why_and_whether() {
        let intel = IpiEvidence {
            isa: Some(Isa::Vmx),
            status: Status::Active,
            parameter: Some(true),
            cpu: Some(true),
            family: Some(6),
            controls: None,
        };
        let told = |tertiary| Some(Controls::Vmx { pin: 0, secondary: 1 << 9, tertiary: Some(tertiary) });
        let amd = IpiEvidence { isa: Some(Isa::Svm), cpu: None, family: Some(0x19), ..intel };
        let table = [
            (intel, On),
            (IpiEvidence { controls: told(1 << 4), ..intel }, On),
            (IpiEvidence { controls: told(0), ..intel }, Off(NoIpiVirtualization::Controls)),
            (IpiEvidence { parameter: Some(false), ..intel }, Off(NoIpiVirtualization::Parameter)),
            (
                IpiEvidence { cpu: Some(false), parameter: Some(false), ..intel },
                NotAvailable(NoIpiVirtualization::Cpu),
            ),
            (IpiEvidence { parameter: None, ..intel }, NotAvailable(NoIpiVirtualization::Kernel)),
            (IpiEvidence { cpu: None, parameter: None, ..intel }, Unknown),
            (IpiEvidence { status: Status::Inhibited, ..intel }, Off(NoIpiVirtualization::Inhibited)),
            (IpiEvidence { status: Status::Unknown, ..intel }, Unknown),
            (IpiEvidence { isa: None, ..intel }, Unknown),
            (amd, On),
            (IpiEvidence { parameter: None, ..amd }, On),
            (IpiEvidence { parameter: Some(false), ..amd }, Off(NoIpiVirtualization::Parameter)),
            (
                IpiEvidence { parameter: Some(false), family: Some(0x17), ..amd },
                NotAvailable(NoIpiVirtualization::Erratum1235),
            ),
        ];
        for (evidence, expected) in table {
            assert_eq!(evidence.judge(), expected, "{evidence:?}");
        }
    }
}
