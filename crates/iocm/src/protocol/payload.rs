//! Payloads of messages, and reading them.

use crate::memory::RegionDescription;

/// A ring's number and a figure of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingState {
    /// Which ring.
    pub ring: u32,
    /// The figure: a size, a place, or whether it is enabled.
    pub value: u32,
}

/// Where a ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// Which ring.
    pub ring: u32,
    /// Bit 0: writes to the used ring are to be marked, at `log`.
    pub flags: u32,
    /// Descriptors, an address of the front-end's process.
    pub descriptors: u64,
    /// The device's part.
    pub used: u64,
    /// The driver's part.
    pub available: u64,
    /// Address of the device's part in the guest.
    pub log: u64,
}

/// Where requests under way are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightDescription {
    /// Bytes.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Queues.
    pub queues: u16,
    /// Descriptors of each.
    pub queue_size: u16,
}

/// A payload that is read from its beginning to its end.
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
        // As C pads the structure.
        bytes.extend([0; 4]);
        bytes
    }
}
