//! Memory that stands for the guest's where the disk cannot use that as it is.

/// Bytes of one buffer.
const SIZE: u64 = 128 << 10;
/// Buffers of a queue. A request that finds none waits for another one of its queue: no other queue feels it.
const MOST: usize = 4;

/// A buffer that is aligned as the disk wants it.
pub(super) struct Bounce {
    bytes: Box<[u8]>,
    lead: usize,
    size: usize,
}

impl Bounce {
    /// Its bytes.
    pub(super) fn data(&mut self) -> &mut [u8] {
        &mut self.bytes[self.lead..self.lead + self.size]
    }
}

/// The buffers of one queue: made when they are needed first, and kept.
pub(super) struct Bounces {
    free: Vec<Bounce>,
    made: usize,
    alignment: u64,
}

impl Bounces {
    /// None yet, of those that are multiples of `alignment` in address and size.
    pub(super) const fn new(alignment: u64) -> Self {
        Self { free: Vec::new(), made: 0, alignment }
    }

    /// How many can be had now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + MOST - self.made
    }

    /// A buffer; `None` when all are in use.
    pub(super) fn take(&mut self) -> Option<Bounce> {
        if let Some(bounce) = self.free.pop() {
            return Some(bounce);
        }
        if self.made == MOST {
            return None;
        }
        self.made += 1;
        let size = SIZE.next_multiple_of(self.alignment);
        let bytes = vec![0; (size + self.alignment) as usize].into_boxed_slice();
        let lead = bytes.as_ptr().align_offset(self.alignment as usize);
        Some(Bounce { bytes, lead, size: size as usize })
    }

    pub(super) fn give(&mut self, bounce: Bounce) {
        self.free.push(bounce);
    }
}
