//! An exit reason with its instruction set.

use crate::{Isa, svm, vmx};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// VMX: bits 15:0 of the exit reason are the basic reason (Intel SDM volume 3, 25.9.1).
const VMX_BASIC: u32 = 0xffff;
/// VMX: no reason of the processor, see [`vmx::NAMES`]. All bits are set, and none of them is a flag.
const SEAMCALL_BUSY: u32 = u32::MAX;
/// VMX: bit 31 marks a VM entry that failed.
const VMX_FAILED_ENTRY: u32 = 1 << 31;
const FAILED_ENTRY_WORD: &str = "FAILED_VMENTRY";

/// The reason of an exit: the hardware's number, unaltered.
///
/// Its text form is the name in the kernel's `kvm_exit` event: upper case for VMX, lower case for SVM, which
/// also identifies the instruction set. A number without a name is `vmx:79` or `svm:0x8e`. VMX flags follow
/// the name as the kernel prints them (`INVALID_STATE FAILED_VMENTRY`); other high bits follow as a
/// hexadecimal sum (`EXTERNAL_INTERRUPT +0x4000000`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExitReason {
    /// The instruction set that gives `code` its meaning.
    pub isa: Isa,
    /// The `exit_reason` field of `kvm_exit`: VMX exit reason with its high bits, or the low 32 bits of
    /// the SVM exit code.
    pub code: u32,
}

impl ExitReason {
    /// A VMX exit reason, high bits included.
    #[must_use]
    pub const fn vmx(code: u32) -> Self {
        Self { isa: Isa::Vmx, code }
    }

    /// An SVM exit code (low 32 bits).
    #[must_use]
    pub const fn svm(code: u32) -> Self {
        Self { isa: Isa::Svm, code }
    }

    /// The same reason without VMX's high bits; SVM codes have none.
    #[must_use]
    pub const fn basic(self) -> Self {
        match self.isa {
            Isa::Vmx if self.code == SEAMCALL_BUSY => self,
            Isa::Vmx => Self::vmx(self.code & VMX_BASIC),
            Isa::Svm => self,
        }
    }

    /// VMX's high bits (31:16), zero on SVM.
    #[must_use]
    pub const fn flags(self) -> u32 {
        self.code & !self.basic().code
    }

    /// Tests whether this exit reports a failed VM entry.
    ///
    /// VMX: bit 31, except in `SEAMCALL_BUSY`: KVM enters the trust domain again (`tdx_failed_vmentry` in
    /// `arch/x86/kvm/vmx/tdx.c`). SVM: `VMEXIT_INVALID`, -1.
    #[must_use]
    pub const fn failed_entry(self) -> bool {
        match self.isa {
            Isa::Vmx => self.flags() & VMX_FAILED_ENTRY != 0,
            Isa::Svm => self.code == u32::MAX,
        }
    }

    /// Tests whether the guest accessed a device, through a port or an address without memory.
    ///
    /// VMX: `IO_INSTRUCTION`, and `EPT_MISCONFIG`, which KVM sets up for MMIO. SVM: `io` and `npf`; the latter also
    /// occurs when a guest accesses memory for the first time.
    #[must_use]
    pub const fn reaches_device(self) -> bool {
        match self.isa {
            Isa::Vmx => matches!(self.basic().code, 30 | 49),
            Isa::Svm => matches!(self.code, 0x7b | 0x400),
        }
    }

    /// The kernel's name of the basic reason, or ours for `SEAMCALL_BUSY`; `None` if it is not in our tables.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let table = match self.isa {
            Isa::Vmx => vmx::NAMES,
            Isa::Svm => svm::NAMES,
        };
        let code = self.basic().code;
        table.binary_search_by_key(&code, |entry| entry.0).ok().map(|at| table[at].1)
    }

    /// Every reason with a name, VMX first, ordered by code.
    pub fn known() -> impl Iterator<Item = Self> {
        let vmx = vmx::NAMES.iter().map(|&(code, _)| Self::vmx(code));
        vmx.chain(svm::NAMES.iter().map(|&(code, _)| Self::svm(code)))
    }

    fn from_name(name: &str) -> Option<Self> {
        let find = |table: &[(u32, &str)]| table.iter().find(|entry| entry.1 == name).map(|entry| entry.0);
        find(vmx::NAMES)
            .or_else(|| find(vmx::FORMER_NAMES))
            .map(Self::vmx)
            .or_else(|| find(svm::NAMES).map(Self::svm))
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basic = self.basic();
        let mut text = match (self.name(), self.isa) {
            (Some(name), _) => name.to_owned(),
            (None, Isa::Vmx) => format!("vmx:{}", basic.code),
            (None, Isa::Svm) => format!("svm:{:#x}", basic.code),
        };
        if self.isa == Isa::Vmx && self.failed_entry() {
            text.push(' ');
            text.push_str(FAILED_ENTRY_WORD);
        }
        let others = self.flags() & !VMX_FAILED_ENTRY;
        if others != 0 {
            text.push_str(&format!(" +{others:#x}"));
        }
        f.pad(&text)
    }
}

/// The error of a text that is not an exit reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an exit reason; write a name as `kvm_exit` prints it (MSR_WRITE on Intel, msr on AMD), \
     or a number as vmx:79 or svm:0x8e"
)]
pub struct UnknownReason(pub String);

impl FromStr for ExitReason {
    type Err = UnknownReason;

    /// Parses the output of [`fmt::Display`], names of earlier kernels (`PENDING_INTERRUPT`) and numbers in
    /// either base.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

// Each flag may occur once, so that a long text cannot exhaust the stack by recursion.
fn parse(text: &str) -> Option<ExitReason> {
    // "DE excp" contains a space, so the whole text is tried before flags are split off.
    if let Some(reason) = plain(text) {
        return Some(reason);
    }
    let (head, others) = match text.rsplit_once(" +") {
        Some((head, sum)) => (head, number(sum)?),
        None => (text, 0),
    };
    let (head, failed) = match head.strip_suffix(FAILED_ENTRY_WORD) {
        Some(head) => (head.strip_suffix(' ')?, VMX_FAILED_ENTRY),
        None => (head, 0),
    };
    let reason = plain(head)?;
    let free = reason.isa == Isa::Vmx
        && others & VMX_BASIC == 0
        && others & failed == 0
        && (others | failed) & reason.code == 0;
    free.then_some(ExitReason::vmx(reason.code | others | failed))
}

/// A reason without flags.
fn plain(text: &str) -> Option<ExitReason> {
    ExitReason::from_name(text).or_else(|| {
        let (isa, code) = text.split_once(':')?;
        Some(ExitReason { isa: isa.parse().ok()?, code: number(code)? })
    })
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix accepts a leading '+', which this crate never writes.
    digits.starts_with(|c: char| c.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, radix).ok())?
}

impl Serialize for ExitReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExitReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
