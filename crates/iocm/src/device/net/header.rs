//! What comes before each packet in a buffer (VIRTIO 1.3, 5.1.6): what is left to do to the packet.
//!
//! A guest's header is its word. It is copied once, checked against what was agreed on and against the packet that it
//! comes with, and what goes on is made anew from what was understood.

use super::offload::Offloads;
use super::packet::{Layers, Version};

/// Bytes of a header: with the number of buffers.
pub const SIZE: usize = 12;
/// Bytes of the header that drivers of before VIRTIO 1.0 use without mergeable buffers.
pub const LEGACY_SIZE: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`.
const ECN: u8 = 0x80;

/// Least bytes of a segment that a guest may ask for: as Linux's `TCP_MIN_SND_MSS`. With fewer, one packet of a guest
/// would become thousands.
const LEAST_TCP_SEGMENT: u16 = 48;
/// Most datagrams of one packet: as Linux's `UDP_MAX_SEGMENTS`.
const MOST_DATAGRAMS: usize = 128;

/// Into what a large packet is to be cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cut {
    /// It is not large.
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

/// What is left to do to a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// Where the checksum is counted from, and where it goes from there, when it is not there yet.
    pub checksum: Option<(u16, u16)>,
    /// Into what the packet is to be cut.
    pub cut: Cut,
    /// Whether the packet has a congestion mark that the first segment alone gets.
    pub ecn: bool,
    /// Bytes of data in each piece.
    pub segment: u16,
    /// Bytes of the packet's own headers.
    pub headers: u16,
}

/// Why a guest's packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There is no whole header, or no whole Ethernet header behind it.
    #[error("a packet of {0} bytes is none")]
    Short(u64),
    /// It is larger than any packet is.
    #[error("a packet of {0} bytes is larger than any")]
    Large(u64),
    /// It asks for what was not agreed on, or for what there is not.
    #[error("a packet asks for work of kind {0:#x}, which was not agreed on")]
    NotAgreed(u8),
    /// Its checksum's place is not in it.
    #[error("a packet of {size} bytes has its checksum {offset} bytes behind byte {start}")]
    Checksum {
        /// Bytes of the packet.
        size: usize,
        /// Where it is counted from.
        start: u16,
        /// Where it goes, from there.
        offset: u16,
    },
    /// It is to be cut into pieces, but is no such packet, or the pieces are none.
    #[error("a packet is to be cut as it cannot be: {0}")]
    Cut(&'static str),
}

impl NetHeader {
    /// What a packet needs that is whole.
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
        // At most what `head` has.
        Ok(Self { checksum, cut, ecn, segment, headers: headers as u16 })
    }

    /// A header of the host's kernel, whose word counts.
    #[must_use]
    pub fn of_kernel(bytes: [u8; LEGACY_SIZE]) -> [u8; SIZE] {
        let mut whole = [0; SIZE];
        whole[..LEGACY_SIZE].copy_from_slice(&bytes);
        whole[LEGACY_SIZE] = 1;
        whole
    }

    /// As the other side reads it, for a packet in one buffer.
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
