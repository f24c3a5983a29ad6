//! The two x86 virtualization instruction sets.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The instruction set of a VM exit, which gives exit numbers their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// Intel VT-x (`kvm_intel`).
    Vmx,
    /// AMD-V (`kvm_amd`).
    Svm,
}

impl Isa {
    /// Converts the `isa` field of `kvm_exit`: `KVM_ISA_VMX` is 1, `KVM_ISA_SVM` is 2
    /// (`arch/x86/kvm/trace.h`). `None` for any other number.
    #[must_use]
    pub const fn from_kvm(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Vmx),
            2 => Some(Self::Svm),
            _ => None,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vmx => "vmx",
            Self::Svm => "svm",
        })
    }
}

/// The error of a word that is neither `vmx` nor `svm`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an instruction set; write `vmx` (Intel) or `svm` (AMD)")]
pub struct UnknownIsa(pub String);

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "vmx" => Ok(Self::Vmx),
            "svm" => Ok(Self::Svm),
            other => Err(UnknownIsa(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_numbers() {
        assert_eq!(Isa::from_kvm(1), Some(Isa::Vmx));
        assert_eq!(Isa::from_kvm(2), Some(Isa::Svm));
        assert_eq!(Isa::from_kvm(0), None);
    }

    #[test]
    fn words_both_ways() {
        for isa in [Isa::Vmx, Isa::Svm] {
            assert_eq!(isa.to_string().parse(), Ok(isa));
            assert_eq!(serde_json::to_string(&isa).unwrap(), format!("\"{isa}\""));
        }
        assert!("VMX".parse::<Isa>().is_err());
    }
}
