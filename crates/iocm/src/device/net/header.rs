//! The header of a packet, `virtio_net_hdr` (VIRTIO 1.3, 5.1.6).
//!
//! A guest's header is not trusted. It is copied once, checked against the negotiated features and against its packet,
//! and then written anew from the values that were understood.

use super::offload::Offloads;
use super::packet::{HeaderOffsets, Version};

/// The size of a header with `num_buffers`.
pub const SIZE: usize = 12;
/// The size of a header of legacy drivers without mergeable buffers.
pub const LEGACY_SIZE: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`.
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_ECN`.
pub(super) const ECN: u8 = 0x80;

/// The smallest segment that a guest may ask for, as Linux's `TCP_MIN_GSO_SIZE` (include/net/tcp.h): what 40 bytes of options
/// leave of the smallest MSS. A packet that would be cut into thousands fills its receiver's queue alone.
const LEAST_TCP_SEGMENT: u16 = 8;
/// The data in the smallest packet that every link takes, of 68 bytes (RFC 791, 3.2).
const LEAST_FRAGMENT: u16 = 48;
/// The most datagrams of one packet, as Linux's `UDP_MAX_SEGMENTS`.
const MAX_DATAGRAMS: usize = 128;

/// The segmentation of a large packet (`gso_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Segmentation {
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
    pub segmentation: Segmentation,
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
    NotNegotiated(u8),
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
    /// Its source is a group, or not the address of the device.
    #[error("a packet is from an address that its guest may not send from")]
    Source,
    /// It cannot be segmented as it asks.
    #[error("a packet cannot be segmented: {0}")]
    Segmentation(&'static str),
}

impl NetHeader {
    /// The header of a packet that needs no offload.
    pub const NOTHING: Self =
        Self { checksum: None, segmentation: Segmentation::None, ecn: false, segment: 0, headers: 0 };

    /// Reads a header and checks it against its packet: `head` has the packet's first bytes, `size` is its length.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn check(
        bytes: [u8; LEGACY_SIZE],
        head: &[u8],
        size: usize,
        negotiated: Offloads,
    ) -> Result<Self, Malformed> {
        let [flags, kind, ..] = bytes;
        // The case of nearly all small packets.
        if Self::asks_for_nothing([flags, kind]) {
            return Ok(Self::NOTHING);
        }
        Self::check_work(bytes, head, size, negotiated)
    }

    /// Tests whether the header with these flags and this type of segmentation is [`Self::NOTHING`].
    #[inline]
    #[must_use]
    pub const fn asks_for_nothing([flags, kind]: [u8; 2]) -> bool {
        flags & NEEDS_CHECKSUM == 0 && kind == 0
    }

    /// The number of packets that one of `size` bytes becomes when it is segmented.
    #[inline]
    #[must_use]
    pub fn segments(&self, size: usize) -> usize {
        match usize::from(self.segment) {
            0 => 1,
            segment => size.saturating_sub(usize::from(self.headers)).div_ceil(segment),
        }
    }

    /// The size of the largest packet that one of `size` bytes becomes when it is segmented.
    #[inline]
    #[must_use]
    pub fn largest_piece(&self, size: usize) -> usize {
        // The UDP header is part of what is fragmented.
        let fragmented = if self.segmentation == Segmentation::Fragments { 8 } else { 0 };
        match usize::from(self.segment) {
            0 => size,
            segment => size.min(usize::from(self.headers).saturating_sub(fragmented) + segment),
        }
    }

    fn check_work(
        [flags, kind, _, _, s0, s1, c0, c1, o0, o1]: [u8; LEGACY_SIZE],
        head: &[u8],
        size: usize,
        negotiated: Offloads,
    ) -> Result<Self, Malformed> {
        let (segment, start, offset) =
            (u16::from_le_bytes([s0, s1]), u16::from_le_bytes([c0, c1]), u16::from_le_bytes([o0, o1]));
        if flags & NEEDS_CHECKSUM == 0 {
            return Err(Malformed::Segmentation("without a checksum to be made"));
        }
        if !negotiated.checksum {
            return Err(Malformed::NotNegotiated(kind));
        }
        let end = usize::from(start) + usize::from(offset) + 2;
        if usize::from(start) < super::packet::ETHERNET || end > size {
            return Err(Malformed::Checksum { size, start, offset });
        }
        let ecn = kind & ECN != 0;
        let (segmentation, allowed) = match kind & !ECN {
            0 => (Segmentation::None, true),
            1 => (Segmentation::Tcp4, negotiated.tcp4),
            3 => (Segmentation::Fragments, negotiated.fragments),
            4 => (Segmentation::Tcp6, negotiated.tcp6),
            5 => (Segmentation::Datagrams, negotiated.datagrams4 || negotiated.datagrams6),
            _ => return Err(Malformed::NotNegotiated(kind)),
        };
        let is_tcp = matches!(segmentation, Segmentation::Tcp4 | Segmentation::Tcp6);
        if !allowed || ecn && !(is_tcp && negotiated.ecn) {
            return Err(Malformed::NotNegotiated(kind));
        }
        let checksum = Some((start, offset));
        if segmentation == Segmentation::None {
            return Ok(Self { checksum, ..Self::NOTHING });
        }
        let offsets = HeaderOffsets::of(head)
            .ok_or(Malformed::Segmentation("it is not whole up to its transport header"))?;
        let right = match segmentation {
            Segmentation::Tcp4 => offsets.is(Version::V4, 6),
            Segmentation::Tcp6 => offsets.is(Version::V6, 6),
            _ => offsets.protocol == 17,
        };
        if !right || offsets.transport != usize::from(start) {
            return Err(Malformed::Segmentation("it is another protocol's, or its checksum is elsewhere"));
        }
        if offset != if is_tcp { 16 } else { 6 } {
            return Err(Malformed::Segmentation("its checksum is not where the protocol has it"));
        }
        let headers = offsets.headers(head).filter(|headers| *headers < size);
        let headers = headers.ok_or(Malformed::Segmentation("it has no data"))?;
        let is_small = match segmentation {
            Segmentation::Datagrams => {
                segment == 0 || (size - headers).div_ceil(usize::from(segment)) > MAX_DATAGRAMS
            }
            Segmentation::Fragments => segment < LEAST_FRAGMENT,
            _ => segment < LEAST_TCP_SEGMENT,
        };
        if is_small {
            return Err(Malformed::Segmentation("its pieces are smaller than any are"));
        }
        // At most the length of `head`.
        Ok(Self { checksum, segmentation, ecn, segment, headers: headers as u16 })
    }

    /// The header of a packet from the host's kernel, which is trusted, for a guest with these offloads.
    #[must_use]
    pub fn of_kernel(bytes: [u8; LEGACY_SIZE], guest: Offloads) -> [u8; SIZE] {
        let mut whole = [0; SIZE];
        whole[..LEGACY_SIZE].copy_from_slice(&bytes);
        // The kernel sets it for each checksum that it has checked, and a guest without `VIRTIO_NET_F_GUEST_CSUM` is to get
        // no flags (VIRTIO 1.3, 5.1.6.4.1).
        if !guest.checksum {
            whole[0] &= !DATA_VALID;
        }
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
        let kind = match self.segmentation {
            Segmentation::None => 0,
            Segmentation::Tcp4 => 1,
            Segmentation::Fragments => 3,
            Segmentation::Tcp6 => 4,
            Segmentation::Datagrams => 5,
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
