//! A guest's memory as its VMM shares it: regions of files, mapped into this process.
//!
//! The guest runs meanwhile and may change any byte at any time. So nothing in it is borrowed: values are copied out
//! once, and only the copy is checked and used.

mod dirty;
mod fault;
mod mapping;

use std::fs::File;
use std::sync::{Arc, OnceLock};

pub use dirty::{DirtyLog, LogError};
pub(crate) use fault::lost_pages;
pub use mapping::{MapError, Mapping};

/// A memory region description of vhost-user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionDescription {
    /// The guest address.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// The address in the front-end's address space, which is also used for the addresses of rings.
    pub user: u64,
    /// The offset of the region in its file, bytes.
    pub offset: u64,
}

impl RegionDescription {
    fn is_valid(&self) -> bool {
        self.size > 0
            && [self.guest, self.user, self.offset].iter().all(|at| at.checked_add(self.size).is_some())
    }

    /// Tests whether both describe the same region.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.guest, self.size, self.user) == (other.guest, other.size, other.user)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: u64, b: u64| a < b + other.size && b < a + self.size;
        meet(self.guest, other.guest) || meet(self.user, other.user)
    }
}

/// A mapped region.
#[derive(Debug)]
struct Region {
    description: RegionDescription,
    mapping: Mapping,
}

/// A contiguous part of a guest's memory.
///
/// It is valid as long as the [`GuestMemory`] that it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The address in this process.
    pub pointer: *mut u8,
    /// The guest address.
    pub guest: u64,
    /// Size in bytes.
    pub size: u32,
}

/// The part of a region that is needed to translate an address. Two of these fit into a cache line.
#[derive(Debug, Clone, Copy)]
struct Span {
    guest: u64,
    size: u64,
    /// The address of its first byte in this process.
    first: *mut u8,
}

// SAFETY: any thread may use a guest's memory, which the region keeps mapped.
unsafe impl Send for Span {}
// SAFETY: as before.
unsafe impl Sync for Span {}

/// The memory of a guest. Adding or removing a region makes a new `GuestMemory`, which shares the other regions.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    /// By guest address, without overlaps.
    regions: Vec<Arc<Region>>,
    /// The spans of the regions, in the same order.
    spans: Vec<Span>,
    log: Option<Arc<DirtyLog>>,
}

/// A region that cannot be added or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// It is empty, or its end is beyond 64 bits.
    #[error("The region at {guest:#x} with {size:#x} bytes is empty or goes beyond the last address")]
    Shape {
        /// The guest address.
        guest: u64,
        /// Size in bytes.
        size: u64,
    },
    /// It overlaps another one.
    #[error("The regions at {0:#x} and {1:#x} overlap")]
    Overlap(u64, u64),
    /// It does not exist.
    #[error("There is no region at {guest:#x} with {size:#x} bytes")]
    NotThere {
        /// The guest address.
        guest: u64,
        /// Size in bytes.
        size: u64,
    },
    /// The guest would be larger than is allowed, because all guests share the address space of this process.
    #[error(
        "The guest would have {wanted:#x} bytes of memory, and {most:#x} are the most on this host: four times its own"
    )]
    TooMuch {
        /// The size with this region, bytes.
        wanted: u64,
        /// The largest size of a guest, bytes.
        most: u64,
    },
    /// It cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The largest guest, bytes. A file may claim any size for free, but the addresses for its mapping are shared by all
/// guests. Four times the host's memory leaves room for overcommitted guests.
fn most_of_a_guest() -> u64 {
    static MAX: OnceLock<u64> = OnceLock::new();
    *MAX.get_or_init(|| {
        // Miri does not tell how much memory the host has.
        if cfg!(miri) {
            return 1 << 34;
        }
        // SAFETY: the call takes no pointers.
        let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
        let bytes = u64::try_from(pages).unwrap_or(0) * rustix::param::page_size() as u64;
        bytes.saturating_mul(4).max(1 << 34)
    })
}

impl GuestMemory {
    fn of(regions: Vec<Arc<Region>>, log: Option<Arc<DirtyLog>>) -> Self {
        let span = |region: &Arc<Region>| {
            let RegionDescription { guest, size, .. } = region.description;
            Span { guest, size, first: region.mapping.at(0) }
        };
        let spans = regions.iter().map(span).collect();
        Self { regions, spans, log }
    }

    /// Maps regions.
    ///
    /// # Errors
    /// [`RegionError`] for the first region that cannot be mapped or overlaps another one.
    pub fn map(regions: impl IntoIterator<Item = (RegionDescription, File)>) -> Result<Self, RegionError> {
        let empty = Ok(Self::default());
        regions.into_iter().fold(empty, |memory, (description, file)| memory?.with(description, &file))
    }

    /// This memory and one more region.
    ///
    /// # Errors
    ///
    /// Those of [`Self::map`].
    pub fn with(&self, description: RegionDescription, file: &File) -> Result<Self, RegionError> {
        if !description.is_valid() {
            return Err(RegionError::Shape { guest: description.guest, size: description.size });
        }
        if let Some(other) = self.regions.iter().find(|other| other.description.overlaps(&description)) {
            return Err(RegionError::Overlap(other.description.guest, description.guest));
        }
        let (has, most) =
            (self.regions.iter().map(|region| region.description.size).sum::<u64>(), most_of_a_guest());
        let wanted = has.saturating_add(description.size);
        if wanted > most {
            return Err(RegionError::TooMuch { wanted, most });
        }
        let region =
            Region { description, mapping: Mapping::of_file(file, description.offset, description.size)? };
        let mut regions = self.regions.clone();
        let at = regions.partition_point(|other| other.description.guest < description.guest);
        regions.insert(at, Arc::new(region));
        Ok(Self::of(regions, self.log.clone()))
    }

    /// Tests whether it has a region with these addresses and this size.
    #[must_use]
    pub fn has(&self, description: &RegionDescription) -> bool {
        self.regions.iter().any(|region| region.description.is(description))
    }

    /// This memory without the region that has these addresses and this size.
    ///
    /// # Errors
    /// [`RegionError::NotThere`].
    pub fn without(&self, description: &RegionDescription) -> Result<Self, RegionError> {
        let mut regions = self.regions.clone();
        regions.retain(|region| !region.description.is(description));
        match regions.len() == self.regions.len() {
            true => Err(RegionError::NotThere { guest: description.guest, size: description.size }),
            false => Ok(Self::of(regions, self.log.clone())),
        }
    }

    /// This memory with its writes logged in `log`, or not logged.
    #[must_use]
    pub fn logged(&self, log: Option<Arc<DirtyLog>>) -> Self {
        Self::of(self.regions.clone(), log)
    }

    /// The number of regions.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Passes `size` bytes from `guest` on to `each`, in one piece for each region. Returns `false` if there is a hole;
    /// the pieces before it have been passed by then.
    #[inline]
    pub fn parts(&self, guest: u64, size: u32, mut each: impl FnMut(Part)) -> bool {
        let (mut at, mut left) = (guest, size);
        while left > 0 {
            let Some(part) = self.first_part(at, left) else { return false };
            each(part);
            left -= part.size;
            at = match at.checked_add(u64::from(part.size)) {
                Some(at) => at,
                None => return left == 0,
            };
        }
        true
    }

    /// The bytes from `guest` on as one piece; `None` if they are not within one region.
    #[inline]
    #[must_use]
    pub(crate) fn one_part(&self, guest: u64, size: u32) -> Option<Part> {
        self.first_part(guest, size).filter(|part| part.size == size)
    }

    #[inline]
    fn first_part(&self, guest: u64, size: u32) -> Option<Part> {
        // Guests have few regions, and most addresses are in the first or the last: a binary search is no faster.
        let span = self.spans.iter().rev().find(|span| span.guest <= guest)?;
        let inside = guest - span.guest;
        let left = span.size.checked_sub(inside).filter(|left| *left > 0)?;
        let size = u32::try_from(left).map_or(size, |left| left.min(size));
        Some(Part { pointer: span.first.wrapping_add(inside as usize), guest, size })
    }

    /// Translates an address of the front-end's address space, which vhost-user uses for rings.
    #[must_use]
    pub fn of_user(&self, user: u64, size: u32) -> Option<Part> {
        let region = self.regions.iter().find(|region| {
            user.checked_sub(region.description.user).is_some_and(|inside| inside < region.description.size)
        })?;
        self.one_part(region.description.guest + (user - region.description.user), size)
    }

    /// Logs a write, if writes are logged.
    #[inline]
    pub fn wrote(&self, guest: u64, size: u64) {
        if let Some(log) = &self.log {
            log.mark(guest, size);
        }
    }

    /// Tests whether a page of it, or of its dirty log, was lost: its content is then no longer the guest's.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
            || self.log.as_ref().is_some_and(|log| log.is_lost())
    }

    /// Tests whether writes are logged.
    #[inline]
    #[must_use]
    pub(crate) fn is_logged(&self) -> bool {
        self.log.is_some()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
