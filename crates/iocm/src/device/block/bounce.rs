//! Bounce buffers, for guest memory that the disk cannot use directly.

/// Bytes of one buffer.
const SIZE: u64 = 128 << 10;
/// The number of buffers of a queue. A request that finds none waits for another request of the same queue, so no other
/// queue is affected.
const MAX: usize = 4;

/// A buffer with the alignment that the disk requires.
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

/// The bounce buffers of one queue, allocated when they are first needed.
pub(super) struct Bounces {
    free: Vec<Bounce>,
    made: usize,
    alignment: u64,
}

impl Bounces {
    /// No buffers yet. `alignment` is that of their addresses and sizes.
    pub(super) const fn new(alignment: u64) -> Self {
        Self { free: Vec::new(), made: 0, alignment }
    }

    /// The number of buffers that can be taken now.
    pub(super) fn available(&self) -> usize {
        self.free.len() + MAX - self.made
    }

    /// Takes a buffer; `None` when all are in use.
    pub(super) fn take(&mut self) -> Option<Bounce> {
        if let Some(bounce) = self.free.pop() {
            return Some(bounce);
        }
        if self.made == MAX {
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
