//! Checksum and segmentation offloads: the work that one side leaves to the other.

use crate::protocol::VirtioFeatures;

/// The offloads that one side carries out for the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums.
    pub checksum: bool,
    /// TCP segmentation over IPv4 (TSO).
    pub tcp4: bool,
    /// TCP segmentation over IPv6 (TSO).
    pub tcp6: bool,
    /// TSO of packets with a congestion mark (ECN).
    pub ecn: bool,
    /// Fragmentation of UDP datagrams (UFO).
    pub fragments: bool,
    /// UDP segmentation over IPv4 (USO).
    pub datagrams4: bool,
    /// UDP segmentation over IPv6 (USO).
    pub datagrams6: bool,
}

impl Offloads {
    /// The offloads of the device for a guest that negotiated these features.
    #[must_use]
    pub fn of_device(features: VirtioFeatures) -> Self {
        let has = |bit: u32| features.has(1 << bit);
        Self {
            checksum: has(0),
            tcp4: has(11),
            tcp6: has(12),
            ecn: has(13),
            fragments: has(14),
            datagrams4: has(56),
            datagrams6: has(56),
        }
    }

    /// The offloads of a guest that negotiated these features.
    #[must_use]
    pub fn of_guest(features: VirtioFeatures) -> Self {
        let has = |bit: u32| features.has(1 << bit);
        let checksum = has(1);
        let (tcp4, tcp6) = (checksum && has(7), checksum && has(8));
        Self {
            checksum,
            tcp4,
            tcp6,
            // The kernel refuses TSO with ECN without plain TSO (drivers/net/tun.c, `set_offload`).
            ecn: (tcp4 || tcp6) && has(9),
            fragments: checksum && has(10),
            datagrams4: checksum && has(54),
            datagrams6: checksum && has(55),
        }
    }

    /// The offloads as a byte, for atomic access.
    #[must_use]
    pub fn bits(&self) -> u8 {
        let all =
            [self.checksum, self.tcp4, self.tcp6, self.ecn, self.fragments, self.datagrams4, self.datagrams6];
        all.iter().rev().fold(0, |bits, one| bits << 1 | u8::from(*one))
    }

    /// The reverse of [`Self::bits`].
    #[inline]
    #[must_use]
    pub(crate) fn of_bits(bits: u8) -> Self {
        let has = |bit: u32| bits >> bit & 1 != 0;
        Self {
            checksum: has(0),
            tcp4: has(1),
            tcp6: has(2),
            ecn: has(3),
            fragments: has(4),
            datagrams4: has(5),
            datagrams6: has(6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_mark_needs_segmentation() {
        const CHECKSUM: u64 = 1 << 1;
        const ECN: u64 = 1 << 9;
        let ecn = |features: u64| Offloads::of_guest(VirtioFeatures(features | ECN)).ecn;
        assert!(!ecn(CHECKSUM) && !ecn(1 << 7), "a guest may negotiate it alone");
        assert!(ecn(CHECKSUM | 1 << 7) && ecn(CHECKSUM | 1 << 8));
    }
}
