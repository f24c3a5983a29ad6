//! Software fallbacks for offloads that a side does not have: checksums and segmentation.

use super::header::{NetHeader, Segmentation};
use super::offload::Offloads;
use super::packet::{HEAD, HeaderOffsets, Version};

impl Offloads {
    /// Tests whether a side with these offloads can take a packet unchanged.
    #[inline]
    #[must_use]
    pub fn takes(&self, header: &NetHeader, frame: &[u8]) -> bool {
        if header.checksum.is_none() {
            return true;
        }
        let segments = match header.segmentation {
            Segmentation::None => true,
            Segmentation::Tcp4 => self.tcp4,
            Segmentation::Tcp6 => self.tcp6,
            Segmentation::Fragments => self.fragments,
            Segmentation::Datagrams => match HeaderOffsets::of(frame).map(|offsets| offsets.version) {
                Some(Version::V4) => self.datagrams4,
                _ => self.datagrams6,
            },
        };
        self.checksum && segments && (!header.ecn || self.ecn)
    }
}

/// Adds the bytes to a sum of RFC 1071.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let rest = u64::from(u32::from_be_bytes(last));
    words.fold(sum + rest, |sum, word| {
        let word: [u8; 4] = [word[0], word[1], word[2], word[3]];
        sum + u64::from(u32::from_be_bytes(word))
    })
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Completes the checksum of a packet, whose field holds the sum over the pseudo-header.
pub(crate) fn make_checksum(frame: &mut [u8], start: u16, offset: u16) {
    let (start, field_at) = (usize::from(start), usize::from(start) + usize::from(offset));
    let Some(covered) = frame.get(start..) else { return };
    let sum = !fold(add(0, covered));
    // In UDP, 0 would mean that there is no checksum (RFC 768); 0xffff is the same value in ones' complement.
    let sum = if sum == 0 { 0xffff } else { sum };
    if let Some(field) = frame.get_mut(field_at..field_at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Segments a checked packet, and passes the headers and the data of each segment to `each`, until that returns
/// `false`. Returns the number of segments that were not taken.
pub fn cut(header: &NetHeader, frame: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> bool) -> usize {
    let headers = usize::from(header.headers);
    let (Some(offsets), Some(data)) =
        (HeaderOffsets::of(&frame[..frame.len().min(HEAD)]), frame.get(headers..))
    else {
        return 0;
    };
    let mut head = [0; HEAD];
    let Some(head) = head.get_mut(..headers) else { return 0 };
    let size = usize::from(header.segment.max(1));
    let count = data.len().div_ceil(size);
    for (index, data) in data.chunks(size).enumerate() {
        head.copy_from_slice(&frame[..headers]);
        let segment = Segment { index, is_last: index + 1 == count, before: index * size };
        offsets.set_network(head, segment, data.len());
        offsets.set_transport(head, segment, data, frame.len());
        if !each(head, data) {
            return count - index;
        }
    }
    0
}

/// A segment's position in its packet.
#[derive(Debug, Clone, Copy)]
struct Segment {
    index: usize,
    is_last: bool,
    /// The bytes of data before it.
    before: usize,
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

impl HeaderOffsets {
    fn set_network(&self, head: &mut [u8], segment: Segment, data: usize) {
        // A segment is no larger than the packet, whose size fits in 16 bits.
        let size = |from: usize, head: &[u8]| (head.len() - from + data) as u16;
        let at = self.network;
        match self.version {
            Version::V4 => {
                put(head, at + 2, size(at, head));
                let id = u16::from_be_bytes([head[at + 4], head[at + 5]]);
                put(head, at + 4, id.wrapping_add(segment.index as u16));
                put(head, at + 10, 0);
                let sum = !fold(add(0, &head[at..self.transport]));
                put(head, at + 10, sum);
            }
            Version::V6 => put(head, at + 4, size(at + 40, head)),
        }
    }

    /// `whole` is the size of the packet that is segmented.
    fn set_transport(&self, head: &mut [u8], segment: Segment, data: &[u8], whole: usize) {
        const FIN_AND_PUSH: u8 = 0x09;
        const REDUCED: u8 = 0x80;
        let at = self.transport;
        let size = (head.len() - at + data.len()) as u16;
        let checksum = if self.protocol == 6 { at + 16 } else { at + 6 };
        if self.protocol == 6 {
            let number: [u8; 4] = [head[at + 4], head[at + 5], head[at + 6], head[at + 7]];
            let number = u32::from_be_bytes(number).wrapping_add(segment.before as u32);
            head[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
            let flags = &mut head[at + 13];
            *flags &= if segment.is_last { !0 } else { !FIN_AND_PUSH };
            *flags &= if segment.index == 0 { !0 } else { !REDUCED };
        } else {
            put(head, at + 4, size);
        }
        // The field holds the sum over the pseudo-header of the whole packet (VIRTIO 1.3, 5.1.6.2), of which only the length
        // differs. Its address need not be the one in the IP header: behind a routing header, that is the next hop's, and
        // the sum is over the last one's (RFC 8200, 8.1).
        let of_whole = u64::from(u16::from_be_bytes([head[checksum], head[checksum + 1]]));
        let pseudo = of_whole + u64::from(!((whole - at) as u16)) + u64::from(size);
        put(head, checksum, 0);
        // TCP and UDP headers are multiples of four bytes, so the sum of the data can simply be added.
        let sum = !fold(add(add(pseudo, &head[at..]), data));
        put(head, checksum, if sum == 0 { 0xffff } else { sum });
    }
}

#[cfg(test)]
#[path = "segmentation_tests.rs"]
mod tests;
