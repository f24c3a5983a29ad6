//! The kinds of accesses of exit reasons.

use exits::{Access, AccessKind, Direction, ExitReason, Isa};

/// The accesses that exits of a reason may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accesses {
    /// Their title.
    pub(super) title: &'static str,
    kinds: &'static [AccessKind],
    direction: Option<Direction>,
}

impl Accesses {
    /// The accesses of a reason; `None` for a reason without a port, address or register.
    pub(super) fn of(reason: ExitReason) -> Option<Self> {
        const PORTS: (&str, &[AccessKind]) = ("port", &[AccessKind::Port]);
        const ADDRESSES: (&str, &[AccessKind]) =
            ("address or APIC register", &[AccessKind::Mmio, AccessKind::Apic]);
        const MSRS: (&str, &[AccessKind]) = ("MSR", &[AccessKind::Msr]);
        // A guest with SEV-ES or SEV-SNP calls KVM for all of these.
        const CALLS: (&str, &[AccessKind]) =
            ("port, address or MSR", &[AccessKind::Port, AccessKind::Mmio, AccessKind::Msr]);
        const REGISTERS: (&str, &[AccessKind]) =
            ("APIC register", &[AccessKind::Apic, AccessKind::Unaccelerated]);
        const IPIS: (&str, &[AccessKind]) = ("incomplete IPI", &[AccessKind::IncompleteIpi]);
        let ((title, kinds), direction) = match (reason.isa, reason.basic().code) {
            (Isa::Vmx, 30) | (Isa::Svm, 0x7b) => (PORTS, None),
            (Isa::Vmx, 31) => (MSRS, Some(Direction::Read)),
            (Isa::Vmx, 32) => (MSRS, Some(Direction::Write)),
            (Isa::Svm, 0x7c) => (MSRS, None),
            // APIC access, virtualized EOI, and APIC write.
            (Isa::Vmx, 44 | 45 | 56) | (Isa::Svm, 0x402) => (REGISTERS, None),
            // If the APIC page of an xAPIC guest is not mapped, accesses to it are MMIO.
            (Isa::Vmx, 48 | 49) | (Isa::Svm, 0x400) => (ADDRESSES, None),
            (Isa::Svm, 0x401) => (IPIS, None),
            (Isa::Svm, 0x403) => (CALLS, None),
            _ => return None,
        };
        Some(Self { title, kinds, direction })
    }

    /// Tests whether `access` is, or may be, one of these. The kind of accesses beyond the limit of distinct ones is
    /// unknown.
    pub(super) fn include(self, access: Access) -> bool {
        let direction = match access {
            Access::Port { direction, .. }
            | Access::Mmio { direction, .. }
            | Access::Msr { direction, .. }
            | Access::Apic { direction, .. }
            | Access::Unaccelerated { direction, .. } => Some(direction),
            Access::FastMmio { .. } => Some(Direction::Write),
            _ => None,
        };
        let kind = access.kind();
        kind == AccessKind::Other
            || (self.kinds.contains(&kind) && (self.direction.is_none() || self.direction == direction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ExitReason {
        name.parse().unwrap()
    }

    #[test]
    fn sleep_is_what_the_tables_call_so() {
        let sleep: Vec<_> = ExitReason::known().filter(|reason| reason.is_sleep()).collect();
        let names = ["HLT", "hlt", "idle-halt"];
        assert_eq!(sleep, names.map(named));
    }

    #[test]
    fn reasons_lead_to_what_they_are_about() {
        let write = |number| Access::Msr { number, direction: Direction::Write };
        let read = Access::Msr { number: 0x1b, direction: Direction::Read };
        let titles = ["IO_INSTRUCTION", "MSR_WRITE", "EPT_MISCONFIG", "APIC_WRITE", "avic_incomplete_ipi"]
            .map(|name| Accesses::of(named(name)).unwrap().title);
        assert_eq!(titles, ["port", "MSR", "address or APIC register", "APIC register", "incomplete IPI"]);
        let writes = Accesses::of(named("MSR_WRITE")).unwrap();
        assert!(writes.include(write(0x830)) && !writes.include(read) && writes.include(Access::Other));
        let both = Accesses::of(named("msr")).unwrap();
        assert!(both.include(write(0x830)) && both.include(read));
        assert!(!both.include(Access::Port { port: 0x3f8, direction: Direction::Read }));
        let calls = Accesses::of(named("vmgexit")).unwrap();
        assert!(calls.include(write(0x830)) && calls.include(read));
        assert!(calls.include(Access::Port { port: 0x3f8, direction: Direction::Read }));
        assert_eq!(Accesses::of(named("CPUID")), None);
    }
}
