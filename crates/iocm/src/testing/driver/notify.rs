//! Notification suppression, from the driver's side.

use super::{DEVICE, DRIVER, Driver};
use std::sync::atomic::{Ordering, fence};

impl Driver {
    /// Asks to be called for the next buffer that comes back, or for none.
    pub fn enable_calls(&self, wanted: bool) {
        match (self.features.packed, self.features.event_index) {
            (false, true) if wanted => {
                self.word(self.shift + DRIVER + 4 + 2 * u64::from(self.size))
                    .store(self.seen, Ordering::Relaxed);
            }
            (false, true) => {
                let far = self.seen.wrapping_sub(1);
                self.word(self.shift + DRIVER + 4 + 2 * u64::from(self.size)).store(far, Ordering::Relaxed);
            }
            (false, false) => self.word(self.shift + DRIVER).store(u16::from(!wanted), Ordering::Relaxed),
            (true, event_index) => {
                self.word(self.shift + DRIVER).store(self.seen, Ordering::Relaxed);
                let flags = if !wanted {
                    1
                } else if event_index {
                    2
                } else {
                    0
                };
                self.word(self.shift + DRIVER + 2).store(flags, Ordering::Relaxed);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Tests whether the device wants a kick for what was made available since the index `before`.
    #[must_use]
    pub fn must_kick(&self, before: u16) -> bool {
        fence(Ordering::SeqCst);
        match (self.features.packed, self.features.event_index) {
            (false, true) => {
                let event =
                    self.word(self.shift + DEVICE + 4 + 8 * u64::from(self.size)).load(Ordering::Relaxed);
                self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(before)
            }
            (false, false) => self.word(self.shift + DEVICE).load(Ordering::Relaxed) & 1 == 0,
            (true, _) => match self.word(self.shift + DEVICE + 2).load(Ordering::Relaxed) & 3 {
                0 => true,
                2 => {
                    let event = self.word(self.shift + DEVICE).load(Ordering::Relaxed);
                    let steps = |from: u16, to: u16| {
                        let size = u32::from(self.size);
                        let (from_at, to_at) = (u32::from(from & 0x7fff), u32::from(to & 0x7fff));
                        if from >> 15 == to >> 15 {
                            to_at.wrapping_sub(from_at)
                        } else {
                            to_at + size - from_at
                        }
                    };
                    let (back, fresh) = (steps(event, self.next), steps(before, self.next));
                    (1..=fresh).contains(&back)
                }
                _ => false,
            },
        }
    }
}
