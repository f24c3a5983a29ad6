//! Exits over time.

use serde::ser::{SerializeStruct as _, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::parsing::{self, TooMuch};
use crate::{ExitReason, Span};

/// The narrowest slice: 2^20 ns, about a millisecond.
const NARROWEST: u32 = 20;
/// The most slices from the first exit to the last; if there would be more, the width is doubled.
const MOST_SLICES: u64 = 2048;
/// Series of VMs that are kept apart, up to 32 KiB each: of 1,000 VMs with 16 reasons.
const MOST_SERIES: usize = 16_384;

/// The exits of one time slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Exits that began in it; of exits whose time is only known by a span, this slice's part.
    pub count: u64,
    /// The host's handling time of them, in nanoseconds; exits without a handling time add nothing.
    pub handling_ns: u64,
}

impl Slice {
    /// Adds another slice. Commutative and associative.
    pub fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.handling_ns = self.handling_ns.saturating_add(other.handling_ns);
    }
}

/// The key of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesKey {
    /// The VM (process or domain), if known.
    pub vm: Option<u32>,
    /// The reason.
    pub reason: ExitReason,
}

/// An index from [`Timeline::series`], for fast adding. Valid only for that timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesIndex(usize);

/// Exits by VM and reason in slices of equal width. The width is a power of two nanoseconds, at least 2^20 (about a
/// millisecond), so that there are at most 2048 slices between the first exit and the last, and none is shorter than a span
/// of [`Timeline::add_over`].
///
/// Slices begin at multiples of their width, so that timelines of parts of a recording merge exactly to that
/// of the whole.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Timeline {
    width_bits: u32,
    /// The numbers (time divided by width) of the first and the last slice.
    range: Option<(u64, u64)>,
    /// The number of the first slice of every series.
    origin: u64,
    series: Vec<(SeriesKey, Vec<Slice>)>,
    index: BTreeMap<SeriesKey, usize>,
}

impl Timeline {
    /// The series of these exits, created if it does not exist. Where there are 16,384, further VMs share one for each
    /// reason, without a VM; reasons beyond as many again, which no processor has, share the last one.
    pub fn series(&mut self, mut key: SeriesKey) -> SeriesIndex {
        let next = self.series.len();
        if next >= MOST_SERIES && !self.index.contains_key(&key) {
            key.vm = None;
            if next >= 2 * MOST_SERIES && !self.index.contains_key(&key) {
                return SeriesIndex(next - 1);
            }
        }
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.series.push((key, Vec::new()));
        }
        SeriesIndex(index)
    }

    /// Counts exits that began at `time_ns`.
    pub fn add(&mut self, series: SeriesIndex, time_ns: u64, exits: Slice) {
        let slot = time_ns >> self.width();
        let within = slot.wrapping_sub(self.origin);
        let slices = &mut self.series[series.0].1;
        if let (Some(slice), Some((first, last))) = (slices.get_mut(within as usize), self.range) {
            // An allocated slice may lie outside of the range, which must then be extended.
            if (first..=last).contains(&slot) {
                slice.merge(exits);
                return;
            }
        }
        self.add_growing(series, time_ns, exits);
    }

    /// Counts exits that began in `span`, at times that are not known. Where two slices share the span, each gets the part
    /// of the exits that it has of the span.
    pub fn add_over(&mut self, series: SeriesIndex, span: Span, exits: Slice) {
        let length_ns = span.length_ns();
        // Narrower slices would look evenly filled, whether or not the exits came in bursts.
        while self.width_ns() < length_ns.min(1 << 63) {
            self.double();
        }
        let edge_ns = (span.last_ns >> self.width()) << self.width();
        let before_ns = u128::from(edge_ns.saturating_sub(span.first_ns));
        let length_ns = u128::from(length_ns.max(1));
        let before = |sum: u64| ((u128::from(sum) * before_ns + length_ns / 2) / length_ns) as u64;
        let first = Slice { count: before(exits.count), handling_ns: before(exits.handling_ns) };
        let second =
            Slice { count: exits.count - first.count, handling_ns: exits.handling_ns - first.handling_ns };
        for (time_ns, part) in [(span.first_ns, first), (span.last_ns, second)] {
            if part != Slice::default() {
                self.add(series, time_ns, part);
            }
        }
    }

    #[cold]
    fn add_growing(&mut self, series: SeriesIndex, time_ns: u64, exits: Slice) {
        self.cover(time_ns >> self.width(), time_ns >> self.width());
        let within = ((time_ns >> self.width()) - self.origin) as usize;
        let slices = &mut self.series[series.0].1;
        if slices.len() <= within {
            slices.resize(within + 1, Slice::default());
        }
        slices[within].merge(exits);
    }

    /// Adds another timeline. Commutative and associative.
    pub fn merge(&mut self, other: &Self) {
        let Some((mut first, mut last)) = other.range else { return };
        while self.width() < other.width() {
            self.double();
        }
        let narrower = self.width() - other.width();
        (first, last) = (first >> narrower, last >> narrower);
        self.cover(first, last);
        let narrower = self.width() - other.width();
        for (key, slices) in &other.series {
            let ours = self.series(*key).0;
            for (slot, &slice) in (other.origin..).zip(slices) {
                if slice != Slice::default() {
                    let within = ((slot >> narrower) - self.origin) as usize;
                    let ours = &mut self.series[ours].1;
                    if ours.len() <= within {
                        ours.resize(within + 1, Slice::default());
                    }
                    ours[within].merge(slice);
                }
            }
        }
    }

    /// Extends the range to these slots (of the current width), doubling the width if necessary.
    fn cover(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        loop {
            let (from, to) = self.range.map_or((first, last), |(from, to)| (from.min(first), to.max(last)));
            if to - from < MOST_SLICES {
                if self.range.is_none() {
                    self.origin = from;
                }
                if from < self.origin {
                    let missing = (self.origin - from) as usize;
                    for (_, slices) in &mut self.series {
                        slices.splice(0..0, std::iter::repeat_n(Slice::default(), missing));
                    }
                    self.origin = from;
                }
                self.range = Some((from, to));
                return;
            }
            self.double();
            (first, last) = (first >> 1, last >> 1);
        }
    }

    fn double(&mut self) {
        let odd = (self.origin & 1) as usize;
        for (_, slices) in &mut self.series {
            let mut wider = vec![Slice::default(); (slices.len() + odd).div_ceil(2)];
            for (at, &slice) in slices.iter().enumerate() {
                wider[(at + odd) / 2].merge(slice);
            }
            *slices = wider;
        }
        self.origin >>= 1;
        self.range = self.range.map(|(first, last)| (first >> 1, last >> 1));
        self.width_bits = self.width() + 1;
    }

    /// Adds up the series that `vm` maps to the same VM. Indexes from before are invalid then.
    pub(crate) fn regroup(&mut self, vm: impl Fn(Option<u32>) -> Option<u32>) {
        let mut whole = Self { width_bits: self.width_bits, range: self.range, ..Self::default() };
        whole.origin = self.origin;
        for (key, slices) in std::mem::take(&mut self.series) {
            let SeriesIndex(at) = whole.series(SeriesKey { vm: vm(key.vm), ..key });
            let ours = &mut whole.series[at].1;
            if ours.len() < slices.len() {
                ours.resize(slices.len(), Slice::default());
            }
            ours.iter_mut().zip(slices).for_each(|(ours, slice)| ours.merge(slice));
        }
        *self = whole;
    }

    /// Doubles the width of the slices until parsing the timeline takes at most this memory, or hardly any slice is left.
    pub fn fit(&mut self, bytes: usize) {
        while self.size_when_read() > bytes && self.len() > 2 {
            self.double();
        }
    }

    /// The memory that parsing it counts against a limit, besides that of its own fields.
    pub(crate) fn size_when_read(&self) -> usize {
        let parsed = parsing::of_element::<StoredSeries>() + 2 * self.len() * parsing::of_element::<u64>();
        let made = if self.is_empty() { 0 } else { size_of_slices(self.len()) };
        self.series.len() * (parsed + made)
    }

    fn width(&self) -> u32 {
        self.width_bits.max(NARROWEST)
    }

    /// The width of a slice in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        1 << self.width()
    }

    /// The number of slices from the first exit to the last.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.map_or(0, |(first, last)| (last - first + 1) as usize)
    }

    /// Tests whether it has no exits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_none()
    }

    /// The start of the first slice, in nanoseconds.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.range.map_or(0, |(first, _)| first << self.width())
    }

    /// Every series with its slices, [`Self::len`] each, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (SeriesKey, Vec<Slice>)> {
        let skipped = self.range.map_or(0, |(first, _)| (first - self.origin) as usize);
        self.index.iter().map(move |(&key, &at)| {
            let mut slices: Vec<_> = self.series[at].1.iter().skip(skipped).copied().collect();
            slices.resize(self.len(), Slice::default());
            (key, slices)
        })
    }

    /// Slices by reason over all VMs, [`Self::len`] each.
    #[must_use]
    pub fn by_reason(&self) -> BTreeMap<ExitReason, Vec<Slice>> {
        let mut all: BTreeMap<ExitReason, Vec<Slice>> = BTreeMap::new();
        for (key, slices) in self.iter() {
            let sum = all.entry(key.reason).or_insert_with(|| vec![Slice::default(); self.len()]);
            sum.iter_mut().zip(slices).for_each(|(sum, slice)| sum.merge(slice));
        }
        all
    }

    /// The series of VMs that `keep` selects; range and width are unchanged.
    #[must_use]
    pub fn only(&self, keep: impl Fn(Option<u32>) -> bool) -> Self {
        let mut part = Self { width_bits: self.width_bits, range: self.range, ..Self::default() };
        part.origin = self.origin;
        for (key, slices) in self.series.iter().filter(|(key, _)| keep(key.vm)) {
            part.index.insert(*key, part.series.len());
            part.series.push((*key, slices.clone()));
        }
        part
    }
}

impl PartialEq for Timeline {
    fn eq(&self, other: &Self) -> bool {
        self.range == other.range && self.width() == other.width() && self.iter().eq(other.iter())
    }
}

impl Eq for Timeline {}

/// The memory of so many slices that were added one by one.
fn size_of_slices(slices: usize) -> usize {
    slices.next_power_of_two() * size_of::<Slice>()
}

/// The form in files.
#[derive(Deserialize)]
struct Stored {
    start_ns: u64,
    width_ns: u64,
    slices: u64,
    #[serde(deserialize_with = "parsing::list")]
    series: Vec<StoredSeries>,
}

#[derive(Serialize, Deserialize)]
struct StoredSeries {
    #[serde(flatten)]
    key: SeriesKey,
    #[serde(deserialize_with = "parsing::list")]
    count: Vec<u64>,
    #[serde(deserialize_with = "parsing::list")]
    handling_ns: Vec<u64>,
}

/// Written without a copy of the whole: it can have hundreds of megabytes.
impl Serialize for Timeline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The names are those of `Stored`.
        let mut fields = serializer.serialize_struct("Timeline", 4)?;
        fields.serialize_field("start_ns", &self.start_ns())?;
        fields.serialize_field("width_ns", &self.width_ns())?;
        fields.serialize_field("slices", &(self.len() as u64))?;
        fields.serialize_field("series", &EachSeries(self))?;
        fields.end()
    }
}

struct EachSeries<'t>(&'t Timeline);

impl Serialize for EachSeries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, slices)| StoredSeries {
            key,
            count: slices.iter().map(|slice| slice.count).collect(),
            handling_ns: slices.iter().map(|slice| slice.handling_ns).collect(),
        }))
    }
}

impl TryFrom<Stored> for Timeline {
    type Error = TooMuch;

    fn try_from(stored: Stored) -> Result<Self, TooMuch> {
        let width_bits = stored.width_ns.max(1).ilog2().max(NARROWEST);
        let mut timeline = Self { width_bits, ..Self::default() };
        let origin = stored.start_ns >> timeline.width_bits;
        if stored.slices == 0 {
            return Ok(timeline);
        }
        timeline.cover(origin, origin.saturating_add(stored.slices.min(MOST_SLICES) - 1));
        for series in &stored.series {
            let index = timeline.series(series.key);
            // Each series allocates slices from the common origin on.
            let later = series.count.len().min(series.handling_ns.len()).saturating_sub(1) as u64;
            let end_ns = stored.start_ns.saturating_add(later.saturating_mul(stored.width_ns));
            let slices = ((end_ns >> width_bits) - origin + 1).min(MOST_SLICES);
            parsing::spend(size_of_slices(slices as usize))?;
            for (at, (&count, &handling_ns)) in series.count.iter().zip(&series.handling_ns).enumerate() {
                let time_ns = stored.start_ns.saturating_add((at as u64).saturating_mul(stored.width_ns));
                if count > 0 || handling_ns > 0 {
                    timeline.add(index, time_ns, Slice { count, handling_ns });
                }
            }
        }
        Ok(timeline)
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
