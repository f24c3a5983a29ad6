//! The kernels' numberings of inhibit reasons.

use crate::{InhibitReason, KernelVersion};
use InhibitReason::{
    Absent, ApicBaseModified, ApicIdModified, BlockIrq, Disabled, HyperV, IrqWindow, LogicalIdAliased,
    Nested, PhysicalIdAliased, PhysicalIdTooBig, PitReinject, Sev, X2Apic,
};

/// Tables of `enum kvm_apicv_inhibit` (before 5.18: macros), each valid from its version up to the next.
///
/// Kernels with the same order only append, so the longest list of an order serves all of them: BLOCKIRQ,
/// ABSENT and SEV were added to the first order over time, PHYSICAL_ID_TOO_BIG to the last in 6.17. Checked
/// against the headers of Linux 5.10, 6.1, 6.12 and 6.16 and, for the order of 5.19, the commit that
/// introduced it (a9603ae0e4ee). The order of 6.0 is also that of Oracle's UEK 7 (5.15).
const BY_VERSION: &[(KernelVersion, &[InhibitReason])] = &[
    (
        KernelVersion::new(5, 6),
        &[Disabled, HyperV, Nested, IrqWindow, PitReinject, X2Apic, BlockIrq, Absent, Sev],
    ),
    (
        KernelVersion::new(5, 19),
        &[
            Disabled,
            HyperV,
            Absent,
            BlockIrq,
            ApicIdModified,
            ApicBaseModified,
            Nested,
            IrqWindow,
            PitReinject,
            X2Apic,
            Sev,
        ],
    ),
    (
        KernelVersion::new(6, 0),
        &[
            Disabled,
            HyperV,
            Absent,
            BlockIrq,
            ApicIdModified,
            ApicBaseModified,
            Nested,
            IrqWindow,
            PitReinject,
            Sev,
        ],
    ),
    (
        KernelVersion::new(6, 3),
        &[
            Disabled,
            HyperV,
            Absent,
            BlockIrq,
            PhysicalIdAliased,
            ApicIdModified,
            ApicBaseModified,
            Nested,
            IrqWindow,
            PitReinject,
            Sev,
            LogicalIdAliased,
            PhysicalIdTooBig,
        ],
    ),
];

/// A kernel's numbering of inhibit reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InhibitNumbering {
    names: Vec<Option<InhibitReason>>,
    stated: bool,
}

impl InhibitNumbering {
    /// The table of the mainline kernel of this version; empty before 5.6, which had no inhibit reasons.
    #[must_use]
    pub fn of_kernel(version: KernelVersion) -> Self {
        let table = BY_VERSION.iter().rev().find(|entry| entry.0 <= version);
        let names = table.map_or(&[][..], |entry| entry.1).iter().copied().map(Some).collect();
        Self { names, stated: false }
    }

    /// The numbering in the running kernel's `print fmt` of `kvm_apicv_inhibit_changed`.
    ///
    /// `None` if the format has no names (before Linux 6.11). `print fmt` lists the names in the order of the
    /// enumeration (`APICV_INHIBIT_REASONS` in `kvm_host.h`), with enumerators instead of numbers, so an entry's
    /// position is its number unless a number is given. Unknown names keep their position and stay unnamed.
    #[must_use]
    pub fn from_print_fmt(print_fmt: &str) -> Option<Self> {
        let list = &print_fmt[print_fmt.find("__print_flags")?..];
        let mut names: Vec<Option<InhibitReason>> = Vec::new();
        for entry in list.split('{').skip(1) {
            let (bit, rest) = entry.split_once(", \"")?;
            let (name, _) = rest.split_once('"')?;
            let number = written_shift(bit).unwrap_or(names.len());
            if number >= 64 {
                return None;
            }
            put(&mut names, number, name.parse().ok());
        }
        (!names.is_empty()).then_some(Self { names, stated: true })
    }

    /// The numbering in the running kernel's type information: the enumerators of `enum kvm_apicv_inhibit` and their
    /// values. `None` if none of them is known.
    #[must_use]
    pub fn from_values<'a>(values: impl IntoIterator<Item = (&'a str, u32)>) -> Option<Self> {
        let mut names: Vec<Option<InhibitReason>> = Vec::new();
        for (name, number) in values {
            let (Ok(reason), Ok(number @ 0..64)) = (name.parse(), usize::try_from(number)) else { continue };
            put(&mut names, number, Some(reason));
        }
        (!names.is_empty()).then_some(Self { names, stated: true })
    }

    /// Tests whether the numbering comes from the running kernel; otherwise it is that of a mainline version.
    #[must_use]
    pub fn is_stated(&self) -> bool {
        self.stated
    }

    /// The reason with a number; `None` if this kernel's table does not contain the number.
    #[must_use]
    pub fn reason(&self, number: u32) -> Option<InhibitReason> {
        *self.names.get(usize::try_from(number).ok()?)?
    }

    /// The number of a reason in this kernel.
    #[must_use]
    pub fn number(&self, reason: InhibitReason) -> Option<u32> {
        let at = self.names.iter().position(|name| *name == Some(reason))?;
        u32::try_from(at).ok()
    }
}

/// Names a number. Lower numbers that have no name yet stay unnamed.
fn put(names: &mut Vec<Option<InhibitReason>>, number: usize, name: Option<InhibitReason>) {
    if names.len() <= number {
        names.resize(number + 1, None);
    }
    names[number] = name;
}

/// The shift in `((((1UL))) << (3))`, or `None` if the kernel printed the enumerator's name.
fn written_shift(bit: &str) -> Option<usize> {
    let (_, shift) = bit.rsplit_once("<<")?;
    shift.trim_matches(|c: char| c == '(' || c == ')' || c.is_whitespace()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT_6_12: &str = concat!(
        r#""%s reason=%u, inhibits=0x%lx%s%s", REC->set ? "set" : "cleared", REC->reason, (REC->inhibits), "#,
        r#"(REC->inhibits) ? " " : "", (REC->inhibits) ? __print_flags(REC->inhibits, "|", "#,
        r#"{ ((((1UL))) << (APICV_INHIBIT_REASON_DISABLED)), "DISABLED" }, "#,
        r#"{ ((((1UL))) << (APICV_INHIBIT_REASON_HYPERV)), "HYPERV" }, "#,
        r#"{ ((((1UL))) << (APICV_INHIBIT_REASON_ABSENT)), "ABSENT" }) : """#
    );

    #[test]
    fn numbers_by_version() {
        let reason = |number, version| InhibitNumbering::of_kernel(version).reason(number);
        let old = KernelVersion::new(5, 15);
        assert_eq!(reason(3, old), Some(IrqWindow));
        assert_eq!(reason(7, old), Some(Absent));
        assert_eq!(reason(8, KernelVersion::new(5, 18)), Some(Sev));
        assert_eq!(reason(9, KernelVersion::new(5, 19)), Some(X2Apic));
        assert_eq!(reason(9, KernelVersion::new(6, 0)), Some(Sev));
        let v61 = KernelVersion::new(6, 1);
        assert_eq!(reason(2, v61), Some(Absent));
        assert_eq!(reason(7, v61), Some(IrqWindow));
        let v612 = KernelVersion::new(6, 12);
        assert_eq!(reason(7, v612), Some(Nested));
        assert_eq!(reason(8, v612), Some(IrqWindow));
        assert_eq!(reason(9, v612), Some(PitReinject));
        assert_eq!(reason(40, v612), None);
        assert_eq!(reason(0, KernelVersion::new(4, 19)), None);
    }

    #[test]
    fn a_kernel_that_states_its_names_is_believed() {
        let stated = InhibitNumbering::from_print_fmt(FORMAT_6_12).unwrap();
        assert!(stated.is_stated());
        assert_eq!(stated.reason(2), Some(Absent));
        assert_eq!(stated.reason(3), None);
        assert_eq!(stated.number(HyperV), Some(1));
    }

    #[test]
    fn numbers_in_the_format_win_over_the_position() {
        let format =
            r#"__print_flags(REC->inhibits, "|", { ((((1UL))) << (7)), "IRQWIN" }, { (1UL << 2), "NEW" })"#;
        let stated = InhibitNumbering::from_print_fmt(format).unwrap();
        assert_eq!(stated.reason(7), Some(IrqWindow));
        assert_eq!(stated.reason(2), None);
    }

    #[test]
    fn a_kernel_whose_types_have_the_names_is_believed() {
        let values = [
            ("APICV_INHIBIT_REASON_DISABLE", 0),
            ("APICV_INHIBIT_REASON_PIT_REINJ", 9),
            ("APICV_INHIBIT_REASON_OF_LATER_KERNELS", 3),
            ("APICV_INHIBIT_REASON_SEV", 64),
            ("NR_APICV_INHIBIT_REASONS", 12),
        ];
        let stated = InhibitNumbering::from_values(values).unwrap();
        assert!(stated.is_stated());
        assert_eq!(
            [0, 3, 9, 12].map(|number| stated.reason(number)),
            [Some(Disabled), None, Some(PitReinject), None]
        );
        assert_eq!(InhibitNumbering::from_values([("NR_APICV_INHIBIT_REASONS", 12)]), None);
    }

    #[test]
    fn a_format_without_names_states_nothing() {
        assert_eq!(InhibitNumbering::from_print_fmt(r#""%s reason=%u, inhibits=0x%lx", REC->set"#), None);
    }

    proptest! {
        #[test]
        fn no_format_panics(text in "(__print_flags)?[{}<>(), \"A-Z0-9]{0,60}") {
            let _ = InhibitNumbering::from_print_fmt(&text);
        }
    }
}
