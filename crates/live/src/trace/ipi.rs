//! IPIs, decoded from the interrupt command register (ICR).

use serde::{Serialize, Serializer};

/// The delivery mode: ICR bits 10:8 (Intel SDM volume 3, 11.6.1; AMD64 APM volume 2, 16.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// To all targets, with the vector.
    Fixed,
    /// To one of the targets, that with the lowest priority.
    LowestPriority,
    /// System management interrupt.
    Smi,
    /// Non-maskable.
    Nmi,
    /// Resets a vCPU.
    Init,
    /// Starts a vCPU; the vector is the page number.
    Startup,
    /// From an external interrupt controller.
    ExtInt,
    /// Encoding 3, which is reserved.
    Reserved,
}

impl DeliveryMode {
    /// Decodes a register or a field of KVM that has the mode in bits 10:8.
    #[must_use]
    pub const fn from_register(value: u32) -> Self {
        match (value >> 8) & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            4 => Self::Nmi,
            5 => Self::Init,
            6 => Self::Startup,
            7 => Self::ExtInt,
            _ => Self::Reserved,
        }
    }

    /// The kernel's name, as `kvm_apic_ipi` prints it (`kvm_deliver_mode` in `arch/x86/kvm/trace.h`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "Fixed",
            Self::LowestPriority => "LowPrio",
            Self::Smi => "SMI",
            Self::Nmi => "NMI",
            Self::Init => "INIT",
            Self::Startup => "SIPI",
            Self::ExtInt => "ExtINT",
            Self::Reserved => "Res3",
        }
    }
}

impl Serialize for DeliveryMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The target of an IPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The vCPU with this APIC ID; all ones is broadcast.
    Physical(u32),
    /// All vCPUs whose logical destination register matches: a mask, or a cluster and a mask.
    Logical(u32),
    /// The sender.
    Myself,
    /// All vCPUs including the sender.
    All,
    /// All vCPUs except the sender.
    Others,
}

/// An IPI as the guest requested it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipi {
    /// The target.
    pub destination: Destination,
    /// The delivery mode.
    pub mode: DeliveryMode,
    /// ICR bits 7:0.
    pub vector: u8,
    /// The whole register: the high half in the upper bits.
    pub icr: u64,
}

/// ICR bit 11: logical destination mode.
const LOGICAL: u32 = 1 << 11;

impl Ipi {
    /// Decodes the two halves of the register.
    ///
    /// In xAPIC mode the destination is in the highest byte and the bits below are zero; in x2APIC mode it is the
    /// whole high half. The event does not say which mode is in use. But an x2APIC destination whose three low bytes
    /// are zero would be an APIC ID of 2^24 or above, or a cluster with an empty mask; neither occurs.
    #[must_use]
    pub const fn from_register(high: u32, low: u32) -> Self {
        let id = if high & 0x00ff_ffff == 0 { high >> 24 } else { high };
        let destination = match (low >> 18) & 3 {
            1 => Destination::Myself,
            2 => Destination::All,
            3 => Destination::Others,
            _ if low & LOGICAL != 0 => Destination::Logical(id),
            _ => Destination::Physical(id),
        };
        Self {
            destination,
            mode: DeliveryMode::from_register(low),
            vector: (low & 0xff) as u8,
            icr: ((high as u64) << 32) | low as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xapic_and_x2apic_destinations() {
        let to = |high, low| Ipi::from_register(high, low).destination;
        assert_eq!(to(0x0300_0000, 0xfd), Destination::Physical(3));
        assert_eq!(to(3, 0xfd), Destination::Physical(3));
        assert_eq!(to(0, 0xfd), Destination::Physical(0));
        assert_eq!(to(0x0300_0000, 0x8fd), Destination::Logical(3));
        assert_eq!(to(0x0001_0002, 0x8fd), Destination::Logical(0x1_0002));
        assert_eq!(to(u32::MAX, 0xfd), Destination::Physical(u32::MAX));
        assert_eq!(to(0, 0xc00fd), Destination::Others);
        assert_eq!(to(0, 0x800fd), Destination::All);
        assert_eq!(to(0, 0x400fd), Destination::Myself);
    }

    #[test]
    fn modes_have_the_kernels_names() {
        let mode = |low| Ipi::from_register(0, low).mode.name();
        assert_eq!([0xfd, 0x4500, 0x69a, 0x400].map(mode), ["Fixed", "INIT", "SIPI", "NMI"]);
        let ipi = Ipi::from_register(0x0100_0000, 0x0000_08fd);
        assert_eq!((ipi.vector, ipi.icr), (0xfd, 0x0100_0000_0000_08fd));
    }
}
