//! Registers of the local APIC by their names in the kernel's output.

use super::number::number;

const PREFIX: &[u8] = b"APIC_";

/// `kvm_trace_symbol_apic` in `arch/x86/kvm/trace.h`, without `APIC_`; offsets in the APIC page.
const NAMES: &[(&[u8], u64)] = &[
    // First the one that guests write most.
    (b"EOI", 0x0b0),
    (b"ICR", 0x300),
    (b"ID", 0x020),
    (b"LVR", 0x030),
    (b"TASKPRI", 0x080),
    (b"ARBPRI", 0x090),
    (b"PROCPRI", 0x0a0),
    (b"RRR", 0x0c0),
    (b"LDR", 0x0d0),
    (b"DFR", 0x0e0),
    (b"SPIV", 0x0f0),
    (b"ISR", 0x100),
    (b"TMR", 0x180),
    (b"IRR", 0x200),
    (b"ESR", 0x280),
    (b"ICR2", 0x310),
    (b"LVTT", 0x320),
    (b"LVTTHMR", 0x330),
    (b"LVTPC", 0x340),
    (b"LVT0", 0x350),
    (b"LVT1", 0x360),
    (b"LVTERR", 0x370),
    (b"TMICT", 0x380),
    (b"TMCCT", 0x390),
    (b"TDCR", 0x3e0),
    (b"SELF_IPI", 0x3f0),
    (b"EFEAT", 0x400),
    (b"ECTRL", 0x410),
];

/// The offset of the register at the start of `text`; those without a name are printed as numbers.
pub(super) fn offset(text: &[u8]) -> Option<u64> {
    let Some(name) = text.strip_prefix(PREFIX) else { return number(text) };
    let length = name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    NAMES.iter().find(|entry| entry.0 == &name[..length]).map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(offset(b"APIC_EOI = 0x0"), Some(0xb0));
        assert_eq!(offset(b"APIC_ICR2 = 0x0"), Some(0x310));
        assert_eq!(offset(b"APIC_SELF_IPI"), Some(0x3f0));
        assert_eq!(offset(b"0x2f0 = 0x0"), Some(0x2f0));
        assert_eq!(offset(b"APIC_NEW = 0x0"), None);
    }
}
