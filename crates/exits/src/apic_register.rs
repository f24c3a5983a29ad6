//! Names of the local APIC's registers.

/// Offset in the APIC page to name, ordered by offset. An offset is 16 times the x2APIC MSR less 0x800.
///
/// Offsets: Intel SDM volume 3, table 11-1, and AMD64 APM volume 2, table 16-2. Names: those in the kernel's
/// `kvm_apic` event (`kvm_trace_symbol_apic` in `arch/x86/kvm/trace.h`) for registers that kernel engineers
/// use, full names for the local vector table.
pub(crate) const NAMES: &[(u32, &str)] = &[
    (0x020, "ID"),
    (0x030, "VERSION"),
    (0x080, "TPR"),
    (0x090, "APR"),
    (0x0a0, "PPR"),
    (0x0b0, "EOI"),
    (0x0c0, "RRR"),
    (0x0d0, "LDR"),
    (0x0e0, "DFR"),
    (0x0f0, "SPIV"),
    (0x280, "ESR"),
    (0x2f0, "LVT_CMCI"),
    (0x300, "ICR"),
    (0x310, "ICR2"),
    (0x320, "LVT_TIMER"),
    (0x330, "LVT_THERMAL"),
    (0x340, "LVT_PC"),
    (0x350, "LVT_LINT0"),
    (0x360, "LVT_LINT1"),
    (0x370, "LVT_ERROR"),
    (0x380, "TMICT"),
    (0x390, "TMCCT"),
    (0x3e0, "TDCR"),
    (0x3f0, "SELF_IPI"),
    (0x400, "EFEAT"),
    (0x410, "ECTRL"),
    (0x420, "SEOI"),
];

/// Banks of eight registers of 32 bits each.
const BANKS: &[(u32, &[&str; 8])] = &[
    (0x100, &["ISR0", "ISR1", "ISR2", "ISR3", "ISR4", "ISR5", "ISR6", "ISR7"]),
    (0x180, &["TMR0", "TMR1", "TMR2", "TMR3", "TMR4", "TMR5", "TMR6", "TMR7"]),
    (0x200, &["IRR0", "IRR1", "IRR2", "IRR3", "IRR4", "IRR5", "IRR6", "IRR7"]),
];

/// The name of the local APIC's register at this offset in the APIC page (bytes), such as `ICR` at 0x300.
#[must_use]
pub fn name(offset: u32) -> Option<&'static str> {
    if let Ok(at) = NAMES.binary_search_by_key(&offset, |entry| entry.0) {
        return Some(NAMES[at].1);
    }
    let (first, names) = BANKS.iter().find(|(first, _)| (*first..first + 0x80).contains(&offset))?;
    let within = offset - first;
    within.is_multiple_of(0x10).then(|| names[(within / 0x10) as usize])
}

/// The offset (bytes) of the register with this name.
pub(crate) fn offset(name: &str) -> Option<u32> {
    if let Some(&(offset, _)) = NAMES.iter().find(|entry| entry.1 == name) {
        return Some(offset);
    }
    BANKS.iter().find_map(|&(first, names)| {
        let at = names.iter().position(|&other| other == name)?;
        Some(first + 0x10 * u32::try_from(at).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_ways() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        let named: Vec<_> = (0..0x500).filter(|&at| name(at).is_some()).collect();
        assert_eq!(named.len(), NAMES.len() + 24);
        for at in named {
            assert_eq!(offset(name(at).unwrap()), Some(at));
        }
        assert_eq!(name(0x171), None);
        assert_eq!(name(0x170), Some("ISR7"));
    }
}
