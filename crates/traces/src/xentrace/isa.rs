//! Infers the instruction set of exits: VMX or SVM.
//!
//! Since Xen 4.19 they have different events. Before, both had the one that is VMX's now, and the handlers that
//! follow the exits show which it is: an exit that was handled as a HLT is one of VMX if its number is 12, and one of
//! SVM if it is 0x78.

use exits::Isa;

use super::event::{
    CPUID, CR_READ, CR_WRITE, HLT, INTR, IOPORT, MSR_READ, MSR_WRITE, NPF, RDTSC, REALMODE_EMULATE,
    TRAP_DEBUG, VLAPIC, VMMCALL, WIDE, WRITE,
};

/// Handlers with the exits that lead to them: basic reasons of VMX (Intel SDM volume 3, appendix C) and codes of SVM
/// (AMD64 APM volume 2, appendix C).
const HANDLERS: &[(u32, &[u32], &[u32])] = &[
    (CR_READ, &[28], &[0x00, 0x02, 0x03, 0x04, 0x08]),
    (CR_WRITE, &[28], &[0x10, 0x12, 0x13, 0x14, 0x18]),
    (MSR_READ, &[31], &[0x7c]),
    (MSR_WRITE, &[32], &[0x7c]),
    (CPUID, &[10], &[0x72]),
    (INTR, &[1], &[0x60]),
    (VMMCALL, &[18], &[0x81]),
    (HLT, &[12], &[0x78]),
    (IOPORT, &[30], &[0x7b]),
    (RDTSC, &[16, 51], &[0x6e, 0x87]),
    (NPF, &[48], &[0x400]),
];
/// Handlers that only Xen's code for VMX has.
const OF_VMX_ALONE: [u32; 3] = [REALMODE_EMULATE, TRAP_DEBUG, VLAPIC];

/// The flags above the basic reason of VMX.
const VMX_FLAGS: u32 = 0xffff_0000;
/// Above all known basic reasons of VMX, and below the first SVM code that is neither a register nor an exception.
const FIRST_ABOVE_VMX: u32 = 0x60;

/// Tests whether VMX can have an exit with this code.
pub(super) const fn can_be_vmx(code: u32) -> bool {
    code & !VMX_FLAGS < FIRST_ABOVE_VMX && code != u32::MAX
}

/// The evidence for each of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    vmx: u32,
    svm: u32,
}

impl Evidence {
    /// Adds an exit whose event does not determine the instruction set.
    pub(super) fn exit(&mut self, code: u32) {
        // VMX sets flags for a failed entry; the only SVM code with these bits is -1.
        match code {
            u32::MAX => self.svm += 1,
            _ if code & VMX_FLAGS != 0 => self.vmx += 1,
            _ => self.svm += u32::from(!can_be_vmx(code)),
        }
    }

    /// Adds a handler that followed the exit with this code; `words` is the length of its record.
    pub(super) fn handler(&mut self, event: u32, code: u32, words: usize) {
        let handler = event & 0xfff & !WIDE & !WRITE;
        if OF_VMX_ALONE.contains(&handler) {
            self.vmx += 1;
        }
        // VMX records the vector of an external interrupt, SVM does not.
        if handler == INTR {
            self.vmx += u32::from(words > 0);
        }
        let Some((_, vmx, svm)) = HANDLERS.iter().find(|entry| entry.0 == handler) else { return };
        self.vmx += u32::from(vmx.contains(&code));
        self.svm += u32::from(svm.contains(&code));
    }

    /// The verdict; `None` if there is no evidence, or the same for both.
    pub(super) fn verdict(self) -> Option<Isa> {
        match self.vmx.cmp(&self.svm) {
            std::cmp::Ordering::Greater => Some(Isa::Vmx),
            std::cmp::Ordering::Less => Some(Isa::Svm),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// Tests whether there is little evidence, or some that contradicts the verdict.
    pub(super) fn is_weak(self) -> bool {
        let (more, less) = (self.vmx.max(self.svm), self.vmx.min(self.svm));
        more < 3 || less * 10 > more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_tell() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.verdict(), None);
        for (code, handler) in [(12, HLT), (1, INTR), (30, IOPORT | WRITE)] {
            evidence.exit(code);
            evidence.handler(0x0008_2000 | handler, code, 1);
        }
        assert_eq!((evidence.verdict(), evidence.is_weak()), (Some(Isa::Vmx), false));

        let mut evidence = Evidence::default();
        evidence.exit(0x10);
        assert_eq!(evidence.verdict(), None);
        evidence.handler(0x0008_2000 | CR_WRITE | WIDE, 0x10, 3);
        assert_eq!((evidence.verdict(), evidence.is_weak()), (Some(Isa::Svm), true));
        evidence.exit(0x400);
        evidence.exit(u32::MAX);
        assert!(!evidence.is_weak());
    }

    #[test]
    fn failed_entries_of_vmx_are_its_own() {
        let mut evidence = Evidence::default();
        evidence.exit(0x8000_0021);
        assert_eq!(evidence, Evidence { vmx: 1, svm: 0 });
        assert!(can_be_vmx(0x8000_0021) && can_be_vmx(75));
        assert!(!can_be_vmx(0x78) && !can_be_vmx(u32::MAX));
    }
}
