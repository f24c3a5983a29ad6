//! What one queue looked up lately: most packets go where the one before went.

use super::table::Address;

/// How long something that was looked up holds, nanoseconds: an address grows old no less exactly than that.
const HOLDS_NS: u64 = 1_000_000_000;

/// Addresses that were looked up.
#[derive(Debug)]
pub(super) struct Memory([Known; Memory::SIZE]);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The address, with a bit on top that says that there is one.
    address: u64,
    until: u64,
    place: u32,
}

impl Memory {
    const SIZE: usize = 64;

    pub(super) const fn new() -> Self {
        Self([Known { address: 0, until: 0, place: 0 }; Self::SIZE])
    }

    fn key(address: Address) -> u64 {
        let [a, b, c, d, e, f] = address;
        u64::from_be_bytes([1, 0, a, b, c, d, e, f])
    }

    #[inline]
    fn slot(&mut self, key: u64) -> &mut Known {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &mut self.0[hash as usize % Self::SIZE]
    }

    #[inline]
    pub(super) fn find(&mut self, address: Address, now: u64) -> Option<u32> {
        let key = Self::key(address);
        let known = self.slot(key);
        (known.address == key && now < known.until).then_some(known.place)
    }

    pub(super) fn put(&mut self, address: Address, place: u32, now: u64) {
        let key = Self::key(address);
        *self.slot(key) = Known { address: key, until: now + HOLDS_NS, place };
    }
}
