//! Finds the number of an exit reason by its name in any of the formats.

use exits::{ExitReason, Isa};
use rustc_hash::FxHashMap;

use super::number::{hexadecimal, number, whole};

/// Names of SVM exit codes in libtraceevent's plug-ins, which trace-cmd and perf use: the kernel's `SVM_EXIT_`
/// constants (`arch/x86/include/uapi/asm/svm.h`) without `SVM_`. Names that differ from the kernel's printed ones
/// only in case are omitted.
const PLUGIN: &[(&str, u32)] = &[
    ("CR0_SEL_WRITE", 0x65),
    ("INTR", 0x60),
    ("IDTR_READ", 0x66),
    ("GDTR_READ", 0x67),
    ("LDTR_READ", 0x68),
    ("TR_READ", 0x69),
    ("IDTR_WRITE", 0x6a),
    ("GDTR_WRITE", 0x6b),
    ("LDTR_WRITE", 0x6c),
    ("TR_WRITE", 0x6d),
    ("IOIO", 0x7b),
    ("VMMCALL", 0x81),
    ("MWAIT_COND", 0x8c),
    ("RDPRU", 0x8e),
    ("EFER_WRITE_TRAP", 0x8f),
    ("CR0_WRITE_TRAP", 0x90),
    ("CR4_WRITE_TRAP", 0x94),
    ("CR8_WRITE_TRAP", 0x98),
    ("BUS_LOCK", 0xa5),
    ("IDLE_HLT", 0xa6),
    ("ERR", u32::MAX),
];
const PLUGIN_PREFIX: &str = "EXIT_";
/// Exceptions are `EXIT_EXCP_PF` in the plug-in and `PF excp` in the kernel.
const EXCEPTION: &str = " excp";

/// VMX: bit 31 with its name (`VMX_EXIT_REASON_FLAGS` in `arch/x86/include/uapi/asm/vmx.h`).
const FAILED_ENTRY: u32 = 1 << 31;
const FAILED_ENTRY_NAME: &[u8] = b"FAILED_VMENTRY";
/// The bits of a VMX exit reason that are the basic reason.
const BASIC: u32 = 0xffff;

/// The name in earlier kernels, see `exits`.
const FORMER: &str = "PENDING_INTERRUPT";
/// The most texts that are cached; a recording has few.
const MOST: usize = 1024;

/// Finds reasons.
pub(super) struct Reasons {
    known: FxHashMap<Vec<u8>, ExitReason>,
    /// The instruction set of the reasons so far, for reasons that are only numbers.
    isa: Option<Isa>,
}

impl Reasons {
    pub(super) fn new() -> Self {
        let mut known = FxHashMap::default();
        for reason in ExitReason::known() {
            let Some(name) = reason.name() else { continue };
            if reason.isa == Isa::Svm {
                let plugin = match name.strip_suffix(EXCEPTION) {
                    Some(exception) => format!("{PLUGIN_PREFIX}EXCP_{exception}"),
                    None => format!("{PLUGIN_PREFIX}{}", name.to_ascii_uppercase()),
                };
                known.insert(plugin.into_bytes(), reason);
            }
            known.insert(name.as_bytes().to_vec(), reason);
        }
        for &(name, code) in PLUGIN {
            known.insert(format!("{PLUGIN_PREFIX}{name}").into_bytes(), ExitReason::svm(code));
        }
        known.extend(FORMER.parse().ok().map(|reason| (FORMER.as_bytes().to_vec(), reason)));
        Self { known, isa: None }
    }

    /// The reason for this text.
    pub(super) fn find(&mut self, text: &[u8]) -> Option<ExitReason> {
        let reason = match self.known.get(text) {
            Some(&reason) => reason,
            None => {
                let reason = self.take_apart(text)?;
                if self.known.len() < MOST {
                    self.known.insert(text.to_vec(), reason);
                }
                reason
            }
        };
        self.isa = Some(reason.isa);
        Some(reason)
    }

    /// A reason with flags, or a number.
    #[cold]
    fn take_apart(&self, text: &[u8]) -> Option<ExitReason> {
        let (mut base, mut flags) = (text, 0);
        while let Some(space) = base.iter().rposition(|&byte| byte == b' ') {
            flags |= match &base[space + 1..] {
                FAILED_ENTRY_NAME => FAILED_ENTRY,
                word if word.starts_with(b"0x") => u32::try_from(hexadecimal(word)?).ok()?,
                _ => break,
            };
            base = &base[..space];
        }
        let reason = match self.known.get(base) {
            Some(&reason) => reason,
            None => ExitReason { isa: self.isa?, code: u32::try_from(unnamed(base)?).ok()? },
        };
        match (reason.isa, flags) {
            (_, 0) => Some(reason),
            (Isa::Vmx, flags) if flags & BASIC == 0 => Some(ExitReason::vmx(reason.code | flags)),
            _ => None,
        }
    }

    /// The reason for these numbers, as in the fields of `kvm_exit`.
    pub(super) fn of_numbers(&mut self, isa: u64, code: u64) -> Option<ExitReason> {
        let isa = Isa::from_kvm(u32::try_from(isa).ok()?)?;
        self.isa = Some(isa);
        Some(ExitReason { isa, code: code as u32 })
    }
}

/// A number without a name: `0x4d` in the kernel, `UNKNOWN (77)` in the plug-in.
fn unnamed(text: &[u8]) -> Option<u64> {
    match text.strip_prefix(b"UNKNOWN (").and_then(|text| text.strip_suffix(b")")) {
        Some(inside) => whole(inside),
        None => text.starts_with(b"0x").then(|| number(text))?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_kernel() {
        let mut reasons = Reasons::new();
        for reason in ExitReason::known() {
            assert_eq!(reasons.find(reason.name().unwrap().as_bytes()), Some(reason));
        }
        assert_eq!(reasons.find(b"PENDING_INTERRUPT"), Some(ExitReason::vmx(7)));
    }

    #[test]
    fn names_of_the_plug_ins() {
        let mut reasons = Reasons::new();
        let names = [
            ("EXIT_READ_CR0", 0x00),
            ("EXIT_WRITE_CR8", 0x18),
            ("EXIT_WRITE_DR7", 0x37),
            ("EXIT_EXCP_DE", 0x40),
            ("EXIT_EXCP_XF", 0x53),
            ("EXIT_INTR", 0x60),
            ("EXIT_VINTR", 0x64),
            ("EXIT_TR_READ", 0x69),
            ("EXIT_SWINT", 0x75),
            ("EXIT_HLT", 0x78),
            ("EXIT_IOIO", 0x7b),
            ("EXIT_MSR", 0x7c),
            ("EXIT_VMMCALL", 0x81),
            ("EXIT_MWAIT_COND", 0x8c),
            ("EXIT_NPF", 0x400),
            ("EXIT_AVIC_INCOMPLETE_IPI", 0x401),
            ("EXIT_AVIC_UNACCELERATED_ACCESS", 0x402),
            ("EXIT_ERR", u32::MAX),
        ];
        for (name, code) in names {
            assert_eq!(reasons.find(name.as_bytes()), Some(ExitReason::svm(code)), "{name}");
        }
        assert_eq!(reasons.find(b"EXIT_NO_SUCH_THING"), None);
    }

    #[test]
    fn flags_and_numbers() {
        let mut reasons = Reasons::new();
        // The instruction set is not known yet.
        assert_eq!(reasons.find(b"0x4d"), None);
        assert_eq!(reasons.find(b"INVALID_STATE FAILED_VMENTRY"), Some(ExitReason::vmx(0x8000_0021)));
        assert_eq!(
            reasons.find(b"INVALID_STATE FAILED_VMENTRY 0x4000000"),
            Some(ExitReason::vmx(0x8400_0021))
        );
        assert_eq!(reasons.find(b"EXTERNAL_INTERRUPT 0x4000000"), Some(ExitReason::vmx(0x400_0001)));
        assert_eq!(reasons.find(b"0x4d"), Some(ExitReason::vmx(0x4d)));
        assert_eq!(reasons.find(b"UNKNOWN (2147483681)"), Some(ExitReason::vmx(0x8000_0021)));
        // A trust domain that the TDX module did not enter: -1, of which the kernel prints all bits above 15 as flags.
        for text in ["0xffff FAILED_VMENTRY 0x7fff0000", "UNKNOWN (4294967295)"] {
            assert_eq!(reasons.find(text.as_bytes()), Some(ExitReason::vmx(u32::MAX)), "{text}");
        }
        assert_eq!(reasons.find(b"CPUID 0x1"), None);
        assert_eq!(reasons.find(b"DE excp"), Some(ExitReason::svm(0x40)));
        assert_eq!(reasons.find(b"0x8e"), Some(ExitReason::svm(0x8e)));
        assert_eq!(reasons.find(b"npf FAILED_VMENTRY"), None);
        assert_eq!(reasons.of_numbers(2, u64::MAX), Some(ExitReason::svm(u32::MAX)));
        assert_eq!(reasons.of_numbers(3, 1), None);
        for text in ["", " ", "FAILED_VMENTRY", "0x", "UNKNOWN ()", "UNKNOWN (99999999999)"] {
            assert_eq!(reasons.find(text.as_bytes()), None, "{text}");
        }
    }
}
