//! Changes of how interrupts reach a VM, as KVM reports them.

use std::path::Path;

use crate::inhibit::{CHANGED, InhibitFields, UPDATE_REQUEST, number_field};
use crate::{Error, EventFormat, Field, InhibitChange, Record, Sample, Tracefs, TracepointSampler};

/// Room for about 600 changes per thread.
const BYTES_PER_THREAD: usize = 64 << 10;
const POSTING: &str = "kvm_pi_irte_update";

/// A change of how KVM delivers an interrupt of an assigned device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostingChange {
    /// The host's number of the interrupt, as in `/proc/interrupts`.
    pub host_irq: u32,
    /// True if it is posted from now on; otherwise the host handles it.
    pub posted: bool,
}

/// The changes that were seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes of inhibit reasons, in order of time.
    pub inhibits: Vec<InhibitChange>,
    /// Changes of device interrupts; those of one thread are in order.
    pub posting: Vec<PostingChange>,
    /// The number of events that were lost because a buffer was full.
    pub lost: u64,
}

/// Watches the threads of a VM for changes. Any thread of the VMM that calls into KVM can make one, so all are
/// watched.
#[derive(Debug)]
pub struct ChangesWatch {
    sampler: TracepointSampler,
    inhibit: InhibitFields,
    posting: Option<PostingFields>,
}

#[derive(Debug)]
struct PostingFields {
    id: u16,
    host_irq: Field,
    set: Field,
}

impl PostingFields {
    fn new(format: &EventFormat) -> Result<Self, Error> {
        Ok(Self {
            id: format.id,
            host_irq: number_field(format, "host_irq")?,
            set: number_field(format, "set")?,
        })
    }

    fn decode(&self, raw: &[u8]) -> Option<PostingChange> {
        let host_irq = u32::try_from(self.host_irq.read(raw)?).ok()?;
        Some(PostingChange { host_irq, posted: self.set.read(raw)? != 0 })
    }
}

impl ChangesWatch {
    /// Watches `threads` of the host below `root` from now on.
    ///
    /// # Errors
    /// [`Error::NoEvent`] if this kernel does not report changes of inhibit reasons, and those of
    /// [`TracepointSampler::open`].
    pub fn attach(root: &Path, threads: &[i32]) -> Result<Self, Error> {
        let tracefs = Tracefs::find(root)?;
        let name = [CHANGED, UPDATE_REQUEST].into_iter().find(|name| tracefs.has("kvm", name));
        let inhibit = tracefs.format("kvm", name.unwrap_or(CHANGED))?;
        // Kernels without support for device assignment lack this event.
        let posting = tracefs.format("kvm", POSTING).ok();
        let posting_fields = posting.as_ref().map(PostingFields::new).transpose()?;
        let fields = InhibitFields::new(&inhibit, Some(&tracefs))?;
        let events: Vec<_> = std::iter::once(&inhibit).chain(&posting).collect();
        let mut sampler = TracepointSampler::open(&events, threads, BYTES_PER_THREAD)?;
        sampler.enable()?;
        Ok(Self { sampler, inhibit: fields, posting: posting_fields })
    }

    /// The changes since attaching, or since the last call.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn take(&mut self) -> Result<Changes, Error> {
        let mut changes = Changes::default();
        for thread in self.sampler.drain()? {
            for record in thread.records() {
                match record {
                    Record::Sample(sample) => self.add(&sample, &mut changes),
                    Record::Lost(count) => changes.lost += count,
                    Record::Other(_) | Record::Malformed { .. } => {}
                }
            }
        }
        changes.inhibits.sort_by_key(|change| change.time_ns);
        Ok(changes)
    }

    fn add(&self, sample: &Sample<'_>, changes: &mut Changes) {
        let Some(event) = sample.raw.first_chunk().map(|id| u16::from_ne_bytes(*id)) else { return };
        if self.inhibit.id == event {
            changes.inhibits.extend(self.inhibit.decode(sample.tid, sample.time_ns, sample.raw));
        } else if let Some(fields) = self.posting.as_ref().filter(|fields| fields.id == event) {
            changes.posting.extend(fields.decode(sample.raw));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_posting_change_of_a_real_kernels_format() {
        let formats = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");
        let start = formats.find("name: kvm_pi_irte_update\n").unwrap();
        let end = start + formats[start..].find("\n\nname: ").unwrap() + 1;
        let fields = PostingFields::new(&EventFormat::parse(&formats[start..end]).unwrap()).unwrap();
        let mut raw = [0; 40];
        raw[8] = 77;
        assert_eq!(fields.decode(&raw), Some(PostingChange { host_irq: 77, posted: false }));
        raw[32] = 1;
        assert_eq!(fields.decode(&raw), Some(PostingChange { host_irq: 77, posted: true }));
        assert_eq!(fields.decode(&raw[..20]), None);
    }
}
