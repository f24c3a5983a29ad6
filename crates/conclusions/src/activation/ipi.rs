//! IPI virtualization: sending IPIs to other vCPUs without an exit. It is judged separately from the delivery of
//! interrupts.

use super::{Controls, Mode, Status};
use exits::Isa;
use serde::Serialize;

/// Evidence on IPI virtualization.
#[derive(Debug, Clone, Copy)]
pub struct IpiEvidence {
    /// The host's instruction set.
    pub isa: Option<Isa>,
    /// The status of interrupt virtualization for the VM.
    pub status: Status,
    /// The mechanism that delivers interrupts; `None` if unknown.
    pub mode: Option<Mode>,
    /// The module's `enable_ipiv`; `None` if the module has no such parameter or it cannot be read. The
    /// kernel clears it at loading if the CPU does not support it.
    pub parameter: Option<bool>,
    /// The CPU supports it (Intel's `ipi_virt`); `None` if unknown.
    pub cpu: Option<bool>,
    /// The CPU family.
    pub family: Option<u32>,
    /// The CPU's controls for one vCPU of the VM.
    pub controls: Option<Controls>,
}

/// The reason why IPI virtualization is not active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoIpiVirtualization {
    /// Interrupt virtualization is not active.
    Inhibited,
    /// `enable_ipiv` is off.
    Parameter,
    /// `enable_ipiv` is off, which is the kernel's default on AMD's family 17h and Hygon's 18h because of
    /// erratum 1235.
    Erratum1235,
    /// The guest uses x2APIC and the CPU has AVIC without x2AVIC: KVM intercepts the ICR (`avic_activate_vmcb`).
    HybridAvic,
    /// The CPU's controls for this VM exclude it.
    Controls,
    /// The CPU does not support it.
    Cpu,
    /// This kernel's module does not support it (Intel before Linux 6.0).
    Kernel,
}

/// IPI virtualization of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum IpiVirtualization {
    /// IPIs to running vCPUs take no exit.
    On,
    /// Off, although it could be on.
    Off(NoIpiVirtualization),
    /// Not available on this host.
    NotAvailable(NoIpiVirtualization),
    /// The evidence is missing.
    Unknown,
}

impl IpiEvidence {
    /// The state that follows from the evidence.
    #[must_use]
    pub fn judge(&self) -> IpiVirtualization {
        use IpiVirtualization::{NotAvailable, Off, On, Unknown};
        let Some(isa) = self.isa else { return Unknown };
        let controls = self.controls.and_then(Controls::sends_ipis);
        let erratum = isa == Isa::Svm && matches!(self.family, Some(0x17 | 0x18));
        match (self.status, self.parameter) {
            _ if self.cpu == Some(false) && isa == Isa::Vmx => NotAvailable(NoIpiVirtualization::Cpu),
            (_, Some(false)) if erratum => NotAvailable(NoIpiVirtualization::Erratum1235),
            // The parameter has no effect then.
            _ if self.mode == Some(Mode::HybridAvic) => Off(NoIpiVirtualization::HybridAvic),
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
                // Kernels without the parameter always use it with AVIC.
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
            mode: Some(Mode::Apicv),
            parameter: Some(true),
            cpu: Some(true),
            family: Some(6),
            controls: None,
        };
        let told = |tertiary| Some(Controls::Vmx { pin: 0, secondary: 1 << 9, tertiary: Some(tertiary) });
        let amd = IpiEvidence {
            isa: Some(Isa::Svm),
            mode: Some(Mode::Avic),
            cpu: None,
            family: Some(0x19),
            ..intel
        };
        let hybrid = IpiEvidence { mode: Some(Mode::HybridAvic), ..amd };
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
            (hybrid, Off(NoIpiVirtualization::HybridAvic)),
            (IpiEvidence { parameter: Some(false), ..hybrid }, Off(NoIpiVirtualization::HybridAvic)),
            (IpiEvidence { mode: Some(Mode::X2avic), ..amd }, On),
            (IpiEvidence { status: Status::Partly, ..intel }, On),
            (IpiEvidence { status: Status::Partly, ..amd }, On),
            (
                IpiEvidence { parameter: Some(false), family: Some(0x17), ..hybrid },
                NotAvailable(NoIpiVirtualization::Erratum1235),
            ),
            (
                IpiEvidence { parameter: Some(false), family: Some(0x18), ..amd },
                NotAvailable(NoIpiVirtualization::Erratum1235),
            ),
            (
                IpiEvidence { parameter: Some(false), family: Some(0x17), ..intel },
                Off(NoIpiVirtualization::Parameter),
            ),
        ];
        for (evidence, expected) in table {
            assert_eq!(evidence.judge(), expected, "{evidence:?}");
        }
    }
}
