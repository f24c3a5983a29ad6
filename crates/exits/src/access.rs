//! The target of an exit, in addition to its reason: a port, an address, a register.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

use crate::{ExitReason, apic_register, msr};

/// The direction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// `IN`, a load, `RDMSR`.
    Read,
    /// `OUT`, a store, `WRMSR`.
    Write,
}

/// The target of the access that caused an exit: the breakdown of I/O, MMIO, MSR and APIC exits.
///
/// The text form is that of `perf kvm stat --event=ioport,mmio` (`0x3f8:POUT`, `0x3fd:PIN`, `0xd0000490:W`),
/// with names for registers that have one (`ICR:W`, `msr 0x1b:R`), and `fast 0xfe003000:W` for what perf leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Access {
    /// An I/O port (`kvm_pio`).
    Port {
        /// Its number.
        port: u16,
        /// In or out.
        direction: Direction,
    },
    /// A guest physical address without memory (`kvm_mmio`).
    Mmio {
        /// The address.
        address: u64,
        /// Load or store.
        direction: Direction,
    },
    /// A store that KVM ended by its address alone (`kvm_fast_mmio`). The address has an ioeventfd for stores of any
    /// length (`KVM_FAST_MMIO_BUS` in `virt/kvm/eventfd.c`), so it is a notification of a virtio device.
    FastMmio {
        /// The guest physical address.
        address: u64,
    },
    /// A model-specific register (`kvm_msr`).
    Msr {
        /// Its number, `ECX`.
        number: u32,
        /// Read or write.
        direction: Direction,
    },
    /// A register of the local APIC that KVM emulated (`kvm_apic`).
    Apic {
        /// Its offset in the APIC page, bytes.
        register: u32,
        /// Read or write.
        direction: Direction,
    },
    /// An IPI that AVIC could not deliver (`kvm_avic_incomplete_ipi`), by its failure cause (AMD64 APM volume 2,
    /// 15.29.9.1).
    IncompleteIpi {
        /// The cause's number, EXITINFO2 bits 63:32.
        id: u32,
    },
    /// A register access that AVIC does not accelerate (`kvm_avic_unaccelerated_access`).
    Unaccelerated {
        /// The register's offset in the APIC page, bytes.
        register: u32,
        /// Read or write.
        direction: Direction,
    },
    /// An exit of a nested guest, L2 (`kvm_nested_vmexit`), or its injection into the guest hypervisor, L1
    /// (`kvm_nested_vmexit_inject`). Not an access, but like AVIC's events it gives the details of an exit.
    Nested {
        /// The reason of L2's exit.
        reason: ExitReason,
        /// True if L1 was entered to handle the exit; otherwise the host may have handled it alone.
        to_l1: bool,
    },
    /// All accesses that are not counted separately, because the recording has more different ones than the limit.
    Other,
}

/// The kinds of [`Access`], which reports list separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AccessKind {
    /// [`Access::Port`].
    Port,
    /// [`Access::Mmio`] and [`Access::FastMmio`].
    Mmio,
    /// [`Access::Msr`].
    Msr,
    /// [`Access::Apic`].
    Apic,
    /// [`Access::IncompleteIpi`].
    IncompleteIpi,
    /// [`Access::Unaccelerated`].
    Unaccelerated,
    /// [`Access::Nested`].
    Nested,
    /// [`Access::Other`].
    Other,
}

impl Access {
    /// The kind of the access.
    #[must_use]
    pub const fn kind(self) -> AccessKind {
        match self {
            Self::Port { .. } => AccessKind::Port,
            Self::Mmio { .. } | Self::FastMmio { .. } => AccessKind::Mmio,
            Self::Msr { .. } => AccessKind::Msr,
            Self::Apic { .. } => AccessKind::Apic,
            Self::IncompleteIpi { .. } => AccessKind::IncompleteIpi,
            Self::Unaccelerated { .. } => AccessKind::Unaccelerated,
            Self::Nested { .. } => AccessKind::Nested,
            Self::Other => AccessKind::Other,
        }
    }
}

/// The causes of AVIC's incomplete IPIs: AMD64 APM volume 2, table 15-22; names as in `enum
/// avic_ipi_failure_cause` in `arch/x86/include/asm/svm.h`.
const INCOMPLETE_IPI: &[&str] = &[
    "INVALID_INT_TYPE",
    "TARGET_NOT_RUNNING",
    "INVALID_TARGET",
    "INVALID_BACKING_PAGE",
    "INVALID_IPI_VECTOR",
];

/// The kernel's name of the cause of an incomplete IPI, EXITINFO2 bits 63:32 (AMD64 APM volume 2, 15.29.9.1),
/// without `AVIC_IPI_FAILURE_`; `None` for a number without a name.
#[must_use]
pub fn incomplete_ipi_cause(id: u32) -> Option<&'static str> {
    INCOMPLETE_IPI.get(usize::try_from(id).ok()?).copied()
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::Port { port, direction: Direction::Read } => format!("{port:#x}:PIN"),
            Self::Port { port, direction: Direction::Write } => format!("{port:#x}:POUT"),
            Self::Mmio { address, direction } => format!("{address:#x}:{}", letter(direction)),
            Self::FastMmio { address } => format!("{FAST}{address:#x}:W"),
            Self::Msr { number, direction } => match msr::name(number) {
                Some(name) => format!("{name}:{}", letter(direction)),
                None => format!("msr {number:#x}:{}", letter(direction)),
            },
            Self::Apic { register, direction } => {
                format!("apic {}:{}", ApicRegister(register), letter(direction))
            }
            Self::IncompleteIpi { id } => match incomplete_ipi_cause(id) {
                Some(name) => format!("ipi {name}"),
                None => format!("ipi cause {id}"),
            },
            Self::Unaccelerated { register, direction } => {
                format!("avic {}:{}", ApicRegister(register), letter(direction))
            }
            Self::Nested { reason, to_l1: false } => format!("{NESTED}{reason}"),
            Self::Nested { reason, to_l1: true } => format!("{NESTED}{reason}{TO_L1}"),
            Self::Other => "other".to_owned(),
        };
        f.pad(&text)
    }
}

/// Precedes the address of a store that KVM ended by it.
const FAST: &str = "fast ";
/// Precedes the reason of a nested guest's exit; [`TO_L1`] follows it if the guest hypervisor handles the exit.
const NESTED: &str = "L2 ";
const TO_L1: &str = " to L1";

struct ApicRegister(u32);

impl fmt::Display for ApicRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match apic_register::name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

const fn letter(direction: Direction) -> char {
    match direction {
        Direction::Read => 'R',
        Direction::Write => 'W',
    }
}

/// The error of a text that is not an access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a port, address or register; write 0x3f8:POUT, 0xd0000490:W, ICR:W or `msr 0x1b:R`")]
pub struct UnknownAccess(pub String);

impl FromStr for Access {
    type Err = UnknownAccess;

    /// Parses the output of [`fmt::Display`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| UnknownAccess(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Access> {
    if text == "other" {
        return Some(Access::Other);
    }
    if let Some(reason) = text.strip_prefix(NESTED) {
        let to_l1 = reason.ends_with(TO_L1);
        let reason = reason.strip_suffix(TO_L1).unwrap_or(reason).parse().ok()?;
        return Some(Access::Nested { reason, to_l1 });
    }
    if let Some(cause) = text.strip_prefix("ipi ") {
        let id = match cause.strip_prefix("cause ") {
            Some(number) => number.parse().ok()?,
            None => u32::try_from(INCOMPLETE_IPI.iter().position(|&name| name == cause)?).ok()?,
        };
        return Some(Access::IncompleteIpi { id });
    }
    let (what, direction) = text.rsplit_once(':')?;
    let port = |direction| Some(Access::Port { port: u16::try_from(hexadecimal(what)?).ok()?, direction });
    let direction = match direction {
        "PIN" => return port(Direction::Read),
        "POUT" => return port(Direction::Write),
        "R" => Direction::Read,
        "W" => Direction::Write,
        _ => return None,
    };
    let register = |text: &str| {
        apic_register::offset(text).or_else(|| hexadecimal(text).and_then(|number| number.try_into().ok()))
    };
    if let Some(address) = hexadecimal(what) {
        Some(Access::Mmio { address, direction })
    } else if let Some(address) = what.strip_prefix(FAST).filter(|_| direction == Direction::Write) {
        Some(Access::FastMmio { address: hexadecimal(address)? })
    } else if let Some(number) = what.strip_prefix("msr ") {
        Some(Access::Msr { number: u32::try_from(hexadecimal(number)?).ok()?, direction })
    } else if let Some(name) = what.strip_prefix("apic ") {
        Some(Access::Apic { register: register(name)?, direction })
    } else if let Some(name) = what.strip_prefix("avic ") {
        Some(Access::Unaccelerated { register: register(name)?, direction })
    } else {
        Some(Access::Msr { number: msr::number(what)?, direction })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    // from_str_radix accepts a leading '+', which this crate never writes.
    digits.starts_with(|c: char| c.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_access() -> impl Strategy<Value = Access> {
        let direction = prop_oneof![Just(Direction::Read), Just(Direction::Write)];
        (0..9u8, any::<u64>(), 0..0x900u32, any::<bool>(), direction).prop_map(
            |(kind, wide, near, use_near, direction)| {
                let number = if use_near { near } else { wide as u32 };
                match kind {
                    0 => Access::Port { port: number as u16, direction },
                    1 => Access::Mmio { address: wide, direction },
                    2 => Access::Msr { number, direction },
                    3 => Access::Apic { register: number, direction },
                    4 => Access::IncompleteIpi { id: number },
                    5 => Access::Unaccelerated { register: number, direction },
                    6 => {
                        let reason =
                            if use_near { ExitReason::svm(number) } else { ExitReason::vmx(number & 0xffff) };
                        Access::Nested { reason, to_l1: direction == Direction::Write }
                    }
                    7 => Access::FastMmio { address: wide },
                    _ => Access::Other,
                }
            },
        )
    }

    #[test]
    fn written_as_perf_does() {
        let text = |access: Access| access.to_string();
        assert_eq!(text(Access::Port { port: 0x3f8, direction: Direction::Write }), "0x3f8:POUT");
        assert_eq!(text(Access::Mmio { address: 0xd000_0490, direction: Direction::Read }), "0xd0000490:R");
        assert_eq!(text(Access::FastMmio { address: 0xfe00_3000 }), "fast 0xfe003000:W");
        assert_eq!(text(Access::Msr { number: 0x830, direction: Direction::Write }), "ICR:W");
        assert_eq!(text(Access::Apic { register: 0xb0, direction: Direction::Write }), "apic EOI:W");
        assert_eq!(text(Access::IncompleteIpi { id: 1 }), "ipi TARGET_NOT_RUNNING");
    }

    #[test]
    fn a_wrong_text_says_what_to_write() {
        for text in ["", "ICR", "0x3f8", "0x:R", "0x+1:W", "0x12345:PIN", "ipi X", "ICR:X", "fast 0x1:R"] {
            let error = text.parse::<Access>().unwrap_err();
            assert!(error.to_string().contains("0x3f8:POUT"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn texts_both_ways(access in any_access()) {
            prop_assert_eq!(access.to_string().parse::<Access>(), Ok(access));
        }

        #[test]
        fn no_text_panics(text in "(msr |apic |avic |fast |ipi |L2 |0x)?[0-9a-fA-Z_ x]{0,8}(:(PIN|POUT|R|W))?") {
            let _ = text.parse::<Access>();
        }
    }
}
