//! The payloads of messages.

use crate::memory::RegionDescription;

/// A vring state description: the index of a ring and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// The index of the ring.
    pub ring: u32,
    /// The number: a size, an index, or 1 for enabled.
    pub value: u32,
}

/// The addresses of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// The index of the ring.
    pub ring: u32,
    /// Bit 0: writes to the used ring are logged at `log`.
    pub flags: u32,
    /// The descriptor table, as an address of the front-end's process.
    pub descriptors: u64,
    /// The used ring.
    pub used: u64,
    /// The available ring.
    pub available: u64,
    /// The guest address of the used ring, for the log.
    pub log: u64,
}

/// The memory in which requests in flight are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightDescription {
    /// Bytes.
    pub size: u64,
    /// The offset in the file, bytes.
    pub offset: u64,
    /// The number of queues.
    pub queues: u16,
    /// The number of descriptors of each.
    pub queue_size: u16,
}

/// A payload that is parsed from front to back.
pub(super) struct PayloadReader<'a>(pub(super) &'a [u8]);

impl PayloadReader<'_> {
    fn take<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let (first, rest) = self.0.split_first_chunk::<SIZE>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn word(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn double(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn quad(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn state(&mut self) -> Option<RingState> {
        Some(RingState { ring: self.double()?, value: self.double()? })
    }

    pub(super) fn addresses(&mut self) -> Option<RingAddresses> {
        Some(RingAddresses {
            ring: self.double()?,
            flags: self.double()?,
            descriptors: self.quad()?,
            used: self.quad()?,
            available: self.quad()?,
            log: self.quad()?,
        })
    }

    pub(super) fn region(&mut self) -> Option<RegionDescription> {
        Some(RegionDescription {
            guest: self.quad()?,
            size: self.quad()?,
            user: self.quad()?,
            offset: self.quad()?,
        })
    }

    pub(super) fn inflight(&mut self) -> Option<InflightDescription> {
        Some(InflightDescription {
            size: self.quad()?,
            offset: self.quad()?,
            queues: self.word()?,
            queue_size: self.word()?,
        })
    }
}

impl RingState {
    pub(crate) fn bytes(self) -> Vec<u8> {
        [self.ring.to_ne_bytes(), self.value.to_ne_bytes()].concat()
    }
}

impl InflightDescription {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = self.size.to_ne_bytes().to_vec();
        bytes.extend(self.offset.to_ne_bytes());
        bytes.extend(self.queues.to_ne_bytes());
        bytes.extend(self.queue_size.to_ne_bytes());
        // The padding of the C structure.
        bytes.extend([0; 4]);
        bytes
    }
}
