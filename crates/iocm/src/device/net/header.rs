//! The header of a packet, `virtio_net_hdr` (VIRTIO 1.3, 5.1.6).
//!
//! A guest's header is not trusted. It is copied once, checked against the negotiated features and against its packet,
//! and then written anew from the values that were understood.

use super::offload::Offloads;
use super::packet::{Layers, Version};

/// The size of a header with `num_buffers`.
pub const SIZE: usize = 12;
/// The size of a header of legacy drivers without mergeable buffers.
pub const LEGACY_SIZE: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`.
const ECN: u8 = 0x80;

/// The smallest segment that a guest may ask for, as Linux's `TCP_MIN_SND_MSS`. With smaller ones a packet would become
/// thousands.
const LEAST_TCP_SEGMENT: u16 = 48;
/// The most datagrams of one packet, as Linux's `UDP_MAX_SEGMENTS`.
const MOST_DATAGRAMS: usize = 128;

/// The segmentation of a large packet (`gso_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cut {
    /// None.
    #[default]
    None,
    /// TCP segments over IPv4.
    Tcp4,
    /// TCP segments over IPv6.
    Tcp6,
    /// IP fragments of one UDP datagram.
    Fragments,
    /// UDP datagrams.
    Datagrams,
}

/// A checked header: the offloads that a packet still needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// The checksum that is still missing: the byte at which it starts, and the offset of its field from there.
    pub checksum: Option<(u16, u16)>,
    /// The segmentation of the packet.
    pub cut: Cut,
    /// The packet has a congestion mark (ECN) that only the first segment keeps.
    pub ecn: bool,
    /// The data in each segment, bytes (`gso_size`).
    pub segment: u16,
    /// The length of the packet's headers, bytes (`hdr_len`).
    pub headers: u16,
}

/// A malformed packet, which is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The header, or the Ethernet header after it, is not complete.
    #[error("a packet of {0} bytes is too short")]
    Short(u64),
    /// It is too large.
    #[error("a packet of {0} bytes is too large")]
    Large(u64),
    /// It asks for an offload that was not negotiated, or does not exist.
    #[error("a packet asks for an offload of type {0:#x} that was not negotiated")]
    NotAgreed(u8),
    /// The field of its checksum is outside of the packet.
    #[error("a packet of {size} bytes cannot have its checksum {offset} bytes after byte {start}")]
    Checksum {
        /// The size of the packet, bytes.
        size: usize,
        /// The byte at which the checksum starts.
        start: u16,
        /// The offset of the checksum's field from there.
        offset: u16,
    },
    /// It cannot be segmented as it asks.
    #[error("a packet cannot be segmented: {0}")]
    Cut(&'static str),
}

impl NetHeader {
    /// The header of a packet that needs no offload.
    pub const NOTHING: Self = Self { checksum: None, cut: Cut::None, ecn: false, segment: 0, headers: 0 };

    /// Reads a header and checks it against its packet: `head` has the packet's first bytes, `size` is all of them.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn check(
        bytes: [u8; LEGACY_SIZE],
        head: &[u8],
        size: usize,
        agreed: Offloads,
    ) -> Result<Self, Malformed> {
        let [flags, kind, ..] = bytes;
        // Nearly all small packets.
        if flags & NEEDS_CHECKSUM == 0 && kind == 0 {
            return Ok(Self::NOTHING);
        }
        Self::check_work(bytes, head, size, agreed)
    }

    fn check_work(
        [flags, kind, _, _, s0, s1, c0, c1, o0, o1]: [u8; LEGACY_SIZE],
        head: &[u8],
        size: usize,
        agreed: Offloads,
    ) -> Result<Self, Malformed> {
        let (segment, start, offset) =
            (u16::from_le_bytes([s0, s1]), u16::from_le_bytes([c0, c1]), u16::from_le_bytes([o0, o1]));
        if flags & NEEDS_CHECKSUM == 0 {
            return Err(Malformed::Cut("without a checksum to be made"));
        }
        if !agreed.checksum {
            return Err(Malformed::NotAgreed(kind));
        }
        let end = usize::from(start) + usize::from(offset) + 2;
        if usize::from(start) < super::packet::ETHERNET || end > size {
            return Err(Malformed::Checksum { size, start, offset });
        }
        let ecn = kind & ECN != 0;
        let (cut, allowed) = match kind & !ECN {
            0 => (Cut::None, true),
            1 => (Cut::Tcp4, agreed.tcp4),
            3 => (Cut::Fragments, agreed.fragments),
            4 => (Cut::Tcp6, agreed.tcp6),
            5 => (Cut::Datagrams, agreed.datagrams4 || agreed.datagrams6),
            _ => return Err(Malformed::NotAgreed(kind)),
        };
        let is_tcp = matches!(cut, Cut::Tcp4 | Cut::Tcp6);
        if !allowed || ecn && !(is_tcp && agreed.ecn) {
            return Err(Malformed::NotAgreed(kind));
        }
        let checksum = Some((start, offset));
        if cut == Cut::None {
            return Ok(Self { checksum, ..Self::NOTHING });
        }
        let layers = Layers::of(head).ok_or(Malformed::Cut("it is not whole up to its transport header"))?;
        let right = match cut {
            Cut::Tcp4 => layers.is(Version::V4, 6),
            Cut::Tcp6 => layers.is(Version::V6, 6),
            _ => layers.protocol == 17,
        };
        if !right || layers.transport != usize::from(start) {
            return Err(Malformed::Cut("it is another protocol's, or its checksum is elsewhere"));
        }
        if offset != if is_tcp { 16 } else { 6 } {
            return Err(Malformed::Cut("its checksum is not where the protocol has it"));
        }
        let headers = layers.headers(head).filter(|headers| *headers < size);
        let headers = headers.ok_or(Malformed::Cut("it has no data"))?;
        let is_small = match cut {
            Cut::Datagrams => {
                segment == 0 || (size - headers).div_ceil(usize::from(segment)) > MOST_DATAGRAMS
            }
            _ => segment < LEAST_TCP_SEGMENT,
        };
        if is_small {
            return Err(Malformed::Cut("its pieces are smaller than any are"));
        }
        // At most the length of `head`.
        Ok(Self { checksum, cut, ecn, segment, headers: headers as u16 })
    }

    /// The header of a packet from the host's kernel, which is trusted.
    #[must_use]
    pub fn of_kernel(bytes: [u8; LEGACY_SIZE]) -> [u8; SIZE] {
        let mut whole = [0; SIZE];
        whole[..LEGACY_SIZE].copy_from_slice(&bytes);
        whole[LEGACY_SIZE] = 1;
        whole
    }

    /// The header in the form that the other side reads, for a packet in one buffer.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> [u8; SIZE] {
        let Some((start, offset)) = self.checksum else {
            let mut bytes = [0; SIZE];
            bytes[LEGACY_SIZE] = 1;
            return bytes;
        };
        let kind = match self.cut {
            Cut::None => 0,
            Cut::Tcp4 => 1,
            Cut::Fragments => 3,
            Cut::Tcp6 => 4,
            Cut::Datagrams => 5,
        };
        let kind = kind | if self.ecn { ECN } else { 0 };
        let [h0, h1] = self.headers.to_le_bytes();
        let [s0, s1] = self.segment.to_le_bytes();
        let [c0, c1] = start.to_le_bytes();
        let [o0, o1] = offset.to_le_bytes();
        [NEEDS_CHECKSUM, kind, h0, h1, s0, s1, c0, c1, o0, o1, 1, 0]
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
