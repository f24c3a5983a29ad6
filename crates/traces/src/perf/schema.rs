//! The events of a recording, by which its records are decoded.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use tracepoints::EventFormat;

use super::attribute::{Attribute, Layout};
use super::short::ShortWay;
use crate::bytes::u64_at;
use crate::decoder::Decoder;

/// IDs below this are looked up in a table.
const DIRECT: u64 = 1 << 16;

/// The most events of a recording: perf writes at most a few hundred; these would be megabytes.
pub(super) const MOST_ATTRIBUTES: usize = 65_536;

/// The most IDs of all events together: those of 1,000 events on 1,000 CPUs.
pub(super) const MOST_IDENTITIES: usize = 1 << 20;

/// The attributes, their IDs and the tracepoints' formats. In pipe mode it grows during reading.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) attributes: Vec<Attribute>,
    layouts: Vec<Layout>,
    direct: Vec<u8>,
    others: FxHashMap<u64, u8>,
    /// The attribute of each ID.
    owners: FxHashMap<u64, usize>,
    /// The offset of the ID in every sample; `None` if all events have the same layout.
    identity: Option<u16>,
    pub(super) decoder: Arc<Decoder>,
    /// Only set in the copies that [`Self::shared`] returns.
    pub(super) short_way: Option<ShortWay>,
    /// True if [`Self::sampled`] is not empty. Only set in the copies that [`Self::shared`] returns.
    pub(super) is_sampled: bool,
}

impl Schema {
    pub(super) fn new() -> Self {
        Self {
            attributes: Vec::new(),
            layouts: Vec::new(),
            direct: Vec::new(),
            others: FxHashMap::default(),
            owners: FxHashMap::default(),
            identity: None,
            decoder: Arc::new(Decoder::new()),
            short_way: None,
            is_sampled: false,
        }
    }

    /// Adds an event with its IDs.
    pub(super) fn add(&mut self, attribute: Attribute, identities: impl Iterator<Item = u64>) {
        let layout = attribute.layout();
        // Recordings have few different layouts, whatever the number of events.
        let number = match self.layouts.iter().position(|other| *other == layout) {
            Some(number) => number,
            None if self.layouts.len() < usize::from(u8::MAX) => {
                self.layouts.push(layout);
                self.layouts.len() - 1
            }
            None => 0,
        };
        self.attributes.push(attribute);
        let number = number as u8;
        for identity in identities {
            self.owners.insert(identity, self.attributes.len() - 1);
            if identity < DIRECT {
                let at = identity as usize;
                if self.direct.len() <= at {
                    self.direct.resize(at + 1, 0);
                }
                self.direct[at] = number;
            } else {
                self.others.insert(identity, number);
            }
        }
        let different = self.layouts.len() > 1;
        self.identity = self.layouts.iter().find_map(|layout| layout.identity).filter(|_| different);
    }

    /// The number of IDs of all events.
    pub(super) fn identities(&self) -> usize {
        self.owners.len()
    }

    /// A copy for decoding, with the fast path. Finding that takes a look at every ID, so it is not done for each
    /// event that is added.
    pub(super) fn shared(&self) -> Arc<Self> {
        let is_sampled = !self.sampled().is_empty();
        Arc::new(Self { short_way: self.find_short_way(), is_sampled, ..self.clone() })
    }

    /// Tests whether the event with this ID is `kvm_exit`.
    pub(super) fn is_exit(&self, identity: u64) -> bool {
        let only = || (self.attributes.len() == 1).then_some(0);
        let owner = self.owners.get(&identity).copied().or_else(only);
        owner.is_some_and(|owner| self.decoder.is_exit(self.attributes[owner].config))
    }

    /// The names of the tracepoints of interest that are only sampled.
    pub(super) fn sampled(&self) -> Vec<&str> {
        let sampled = self.attributes.iter().filter(|one| one.is_tracepoint() && one.is_sampled());
        sampled.filter_map(|attribute| self.decoder.name_of_read(attribute.config)).collect()
    }

    /// Tests whether samples of a tracepoint lack the time.
    pub(super) fn lacks_time(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.is_tracepoint() && !attribute.has_time())
    }

    /// Adds the tracepoints' formats.
    pub(super) fn learn(&mut self, formats: &[(String, EventFormat)]) {
        if formats.is_empty() {
            return;
        }
        let decoder = Arc::make_mut(&mut self.decoder);
        formats.iter().for_each(|(system, format)| decoder.add(system, format));
    }

    /// The fast path, if all tracepoints have the same layout and it is suitable.
    fn find_short_way(&self) -> Option<ShortWay> {
        let mut numbered = (0..=u8::MAX).zip(&self.layouts).filter(|(_, layout)| layout.tracepoint);
        let (number, layout) = numbered.next().filter(|_| numbered.next().is_none())?;
        if self.identity.is_none() && self.layout_number(0) != number {
            return None;
        }
        let of_layout = self.owners.iter().filter_map(|(&identity, &owner)| {
            let attribute = &self.attributes[owner];
            let same = attribute.is_tracepoint() && self.layout_number(identity) == number;
            same.then_some((identity, attribute.config))
        });
        ShortWay::new(layout, of_layout, &self.decoder)
    }

    /// The index of the layout of an event's records, by its ID.
    #[inline(always)]
    pub(super) fn layout_number(&self, identity: u64) -> u8 {
        match self.direct.get(identity as usize) {
            Some(&number) => number,
            _ if self.others.is_empty() => 0,
            _ => self.others.get(&identity).copied().unwrap_or(0),
        }
    }

    /// The layout of a sample. As in perf, samples with an unknown ID are decoded like those of the first event.
    #[inline]
    pub(super) fn layout_of(&self, record: &[u8]) -> Option<&Layout> {
        let identity = self.identity.and_then(|at| u64_at(record, usize::from(at)));
        self.layout_by(identity.unwrap_or(0))
    }

    /// The layout of an event's records, by its ID.
    #[inline]
    pub(super) fn layout_by(&self, identity: u64) -> Option<&Layout> {
        self.layouts.get(usize::from(self.layout_number(identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of an attribute with this `sample_type`.
    fn attribute(sample_type: u64) -> Attribute {
        let mut bytes = [0; 64];
        bytes[0] = 2;
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        Attribute::parse(&bytes).unwrap()
    }

    #[test]
    fn samples_find_their_layout_by_identity() {
        let (with_ip, without) = (1 << 16 | 1 | 1 << 1, 1 << 16 | 1 << 1);
        let mut schema = Schema::new();
        schema.add(attribute(with_ip), [5, 6].into_iter());
        assert_eq!(schema.identity, None);
        schema.add(attribute(without), [7, 1 << 40].into_iter());
        let record = |identity: u64| [[0; 8], identity.to_le_bytes()].concat();
        let thread = |identity| schema.layout_of(&record(identity)).unwrap().thread;
        assert_eq!([5, 6, 7, 1 << 40].map(thread), [24, 24, 16, 16].map(Some));
        assert_eq!(thread(99), Some(24));
    }

    #[test]
    fn layouts_are_as_many_as_have_numbers() {
        let mut schema = Schema::new();
        for read_format in 0..300u64 {
            let mut bytes = [0; 64];
            bytes[24] = 1 << 4;
            bytes[32..40].copy_from_slice(&read_format.to_le_bytes());
            schema.add(Attribute::parse(&bytes).unwrap(), [read_format].into_iter());
        }
        assert_eq!(schema.layouts.len(), 255);
        assert!(schema.shared().short_way.is_none());
    }
}
