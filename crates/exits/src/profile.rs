//! The exits of a recording, or of a live observation.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Access, ExitCounts, ExitReason, HandlingTime, Losses, SeriesKey, Slice, Timeline, parsing};

/// A vCPU. Facts that the source does not have are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vcpu {
    /// The VM: under KVM the process that owns it, under Xen the domain.
    pub vm: Option<u32>,
    /// The vCPU's number in its VM.
    pub number: Option<u32>,
    /// Under KVM, the thread that runs the vCPU.
    pub thread: Option<u32>,
}

/// Exits of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// The number of exits.
    pub count: u64,
    /// The handling times of those exits whose next entry was seen. For an [`Access`], the time as `perf kvm stat`
    /// defines it.
    pub handling: HandlingTime,
}

impl Exits {
    /// Adds exits of the same kind. Commutative and associative.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.handling.merge(&other.handling);
    }
}

/// The exits of one vCPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuExits {
    /// The vCPU.
    pub vcpu: Vcpu,
    /// Exits by reason.
    #[serde(deserialize_with = "parsing::map")]
    pub reasons: BTreeMap<ExitReason, Exits>,
    /// Exits by port, address or register, for the exits that have one.
    #[serde(deserialize_with = "parsing::map")]
    pub accesses: BTreeMap<Access, Exits>,
}

/// The period of observation, in nanoseconds of the source's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first event.
    pub first_ns: u64,
    /// The last event.
    pub last_ns: u64,
}

impl Span {
    /// Its length in nanoseconds.
    #[must_use]
    pub const fn length_ns(self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// The smallest span that contains both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { first_ns: self.first_ns.min(other.first_ns), last_ns: self.last_ns.max(other.last_ns) }
    }

    /// Makes `whole` contain `part` too.
    pub fn widen(whole: &mut Option<Self>, part: Self) {
        *whole = Some(whole.map_or(part, |span| span.join(part)));
    }
}

/// Exits by vCPU and reason with their handling times: the common form of recordings, live observations and
/// comparisons.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// From the first event to the last; `None` without events.
    pub span: Option<Span>,
    /// The exits, ordered by vCPU, with one entry for each vCPU.
    #[serde(deserialize_with = "in_order")]
    vcpus: Vec<VcpuExits>,
    /// Names of VMs, if the source has them.
    #[serde(deserialize_with = "parsing::map")]
    pub names: BTreeMap<u32, String>,
    /// The number of each event of the source by name, including exits.
    #[serde(deserialize_with = "parsing::map")]
    pub events: BTreeMap<String, u64>,
    /// Exits over time.
    pub timeline: Timeline,
    /// Missing or doubtful data.
    pub losses: Losses,
}

impl Profile {
    /// An empty profile.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives it a time of this length on the clock of its exits, from the first slice of the timeline on.
    pub fn set_length(&mut self, ns: u64) {
        let first_ns = self.timeline.start_ns();
        let slices = self.timeline.len().saturating_sub(1) as u64;
        let last_slice_ns = first_ns.saturating_add(slices.saturating_mul(self.timeline.width_ns()));
        self.span = Some(Span { first_ns, last_ns: first_ns.saturating_add(ns).max(last_slice_ns) });
    }

    /// Makes `span` its time, and places its exits there: exits that were counted together have no times of their own.
    pub fn count_over(&mut self, span: Span) {
        self.span = Some(span);
        // Divided as a whole: parts of many small counts would all be rounded to the same side.
        let mut sums: BTreeMap<SeriesKey, Slice> = BTreeMap::new();
        for of in &self.vcpus {
            for (&reason, exits) in &of.reasons {
                let slice = Slice { count: exits.count, handling_ns: exits.handling.total_ns() };
                sums.entry(SeriesKey { vm: of.vcpu.vm, reason }).or_default().merge(slice);
            }
        }
        for (key, slice) in sums {
            let series = self.timeline.series(key);
            self.timeline.add_over(series, span, slice);
        }
    }

    /// Tests whether the timeline begins before its time or ends after it, by more than a slice: they are of different
    /// clocks.
    #[must_use]
    pub fn is_of_two_clocks(&self) -> bool {
        let (start_ns, width_ns) = (self.timeline.start_ns(), self.timeline.width_ns());
        let end_ns = start_ns.saturating_add((self.timeline.len() as u64).saturating_mul(width_ns));
        let outside = |span: Span| {
            start_ns.saturating_add(width_ns) < span.first_ns
                || end_ns > span.last_ns.saturating_add(width_ns)
        };
        !self.timeline.is_empty() && self.span.is_some_and(outside)
    }

    /// The vCPUs, ordered.
    #[must_use]
    pub fn vcpus(&self) -> &[VcpuExits] {
        &self.vcpus
    }

    /// The exits of one vCPU, for adding; created if it does not exist.
    pub fn vcpu(&mut self, vcpu: Vcpu) -> &mut VcpuExits {
        let at = match self.vcpus.binary_search_by_key(&vcpu, |exits| exits.vcpu) {
            Ok(at) => at,
            Err(at) => {
                self.vcpus.insert(at, VcpuExits { vcpu, ..VcpuExits::default() });
                at
            }
        };
        &mut self.vcpus[at]
    }

    /// Adds another profile. VMs and vCPUs with equal numbers are the same. Commutative and associative,
    /// except that the first of two different names of a VM is kept.
    pub fn merge(&mut self, other: &Self) {
        self.span = match (self.span, other.span) {
            (Some(ours), Some(theirs)) => Some(ours.join(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        for theirs in &other.vcpus {
            let vcpu = self.same_vcpu(theirs.vcpu);
            let ours = self.vcpu(vcpu);
            merge_maps(&mut ours.reasons, &theirs.reasons);
            merge_maps(&mut ours.accesses, &theirs.accesses);
        }
        for (&vm, name) in &other.names {
            self.names.entry(vm).or_insert_with(|| name.clone());
        }
        for (name, &count) in &other.events {
            let ours = self.events.entry(name.clone()).or_default();
            *ours = ours.saturating_add(count);
        }
        self.timeline.merge(&other.timeline);
        self.losses.merge(&other.losses);
    }

    /// [`Self::merge`] without a copy of the vCPUs that are new here.
    pub fn absorb(&mut self, mut other: Self) {
        for theirs in std::mem::take(&mut other.vcpus) {
            let vcpu = self.same_vcpu(theirs.vcpu);
            self.take_in(vcpu, theirs);
        }
        self.merge(&other);
    }

    /// Adds exits to those of `vcpu`, without a copy if it has none.
    fn take_in(&mut self, vcpu: Vcpu, theirs: VcpuExits) {
        let ours = self.vcpu(vcpu);
        if ours.reasons.is_empty() && ours.accesses.is_empty() {
            *ours = VcpuExits { vcpu, ..theirs };
        } else {
            merge_maps(&mut ours.reasons, &theirs.reasons);
            merge_maps(&mut ours.accesses, &theirs.accesses);
        }
    }

    /// Adds up the exits of the vCPUs that `key` maps to the same, also over time. Names remain of VMs that have vCPUs.
    pub fn regroup(&mut self, key: impl Fn(Vcpu) -> Vcpu) {
        for theirs in std::mem::take(&mut self.vcpus) {
            self.take_in(key(theirs.vcpu), theirs);
        }
        self.timeline.regroup(|vm| key(Vcpu { vm, ..Vcpu::default() }).vm);
        let vms: BTreeSet<_> = self.vcpus.iter().map(|exits| exits.vcpu.vm).collect();
        self.names.retain(|&vm, _| vms.contains(&Some(vm)));
    }

    /// The memory that parsing it counts against a [`parsing::limit`].
    #[must_use]
    pub fn size_when_read(&self) -> usize {
        let of = |exits: &Exits| exits.handling.size_when_read();
        let vcpus = self.vcpus.iter().map(|vcpu| {
            parsing::of_element::<VcpuExits>()
                + vcpu.reasons.len() * parsing::of_entry::<ExitReason, Exits>()
                + vcpu.accesses.len() * parsing::of_entry::<Access, Exits>()
                + vcpu.reasons.values().chain(vcpu.accesses.values()).map(of).sum::<usize>()
        });
        vcpus.sum::<usize>()
            + self.names.len() * parsing::of_entry::<u32, String>()
            + self.events.len() * parsing::of_entry::<String, u64>()
            + self.timeline.size_when_read()
    }

    /// Our key of the vCPU `theirs`: one side may not know the vCPU's number and only have the thread.
    fn same_vcpu(&mut self, theirs: Vcpu) -> Vcpu {
        let same_thread =
            |ours: &Vcpu| ours.thread.is_some() && ours.thread == theirs.thread && ours.vm == theirs.vm;
        let candidates = self.with_one_unknown_number(theirs);
        let found = self.vcpus[candidates.clone()].iter().position(|exits| same_thread(&exits.vcpu));
        let Some(at) = found.map(|at| candidates.start + at) else { return theirs };
        if theirs.number.is_none() {
            return self.vcpus[at].vcpu;
        }
        let known = self.vcpus.remove(at);
        self.take_in(theirs, known);
        theirs
    }

    /// The places of the vCPUs of the same VM with a number, if `theirs` has none, or without one otherwise. A host has
    /// thousands of vCPUs, so do not compare each with all.
    fn with_one_unknown_number(&self, theirs: Vcpu) -> Range<usize> {
        let before = |vm: Option<u32>, has_number: bool| {
            self.vcpus
                .partition_point(|exits| (exits.vcpu.vm, exits.vcpu.number.is_some()) < (vm, has_number))
        };
        let numbered = before(theirs.vm, true);
        match theirs.number {
            Some(_) => before(theirs.vm, false)..numbered,
            None => {
                let of_vm = self.vcpus[numbered..].partition_point(|exits| exits.vcpu.vm == theirs.vm);
                numbered..numbered + of_vm
            }
        }
    }

    /// Exits by reason over all vCPUs.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<ExitReason, Exits> {
        let mut all = BTreeMap::new();
        self.vcpus.iter().for_each(|vcpu| merge_maps(&mut all, &vcpu.reasons));
        all
    }

    /// Exits by port, address or register over all vCPUs.
    #[must_use]
    pub fn accesses(&self) -> BTreeMap<Access, Exits> {
        let mut all = BTreeMap::new();
        self.vcpus.iter().for_each(|vcpu| merge_maps(&mut all, &vcpu.accesses));
        all
    }

    /// Counts over all vCPUs; `lost` is [`Losses::lost_events`].
    #[must_use]
    pub fn counts(&self) -> ExitCounts {
        let rows = self.vcpus.iter().flat_map(|vcpu| &vcpu.reasons);
        let mut counts: ExitCounts = rows.map(|(&reason, exits)| (reason, exits.count)).collect();
        counts.lost = self.losses.lost_events;
        counts
    }

    /// The number of all exits.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts().total()
    }

    /// Tests whether no exit was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vcpus.iter().all(|vcpu| vcpu.reasons.is_empty())
    }

    /// The vCPUs that `keep` selects, with the timeline of their VMs. Event counts and losses are unchanged: they
    /// belong to the whole source.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&Vcpu) -> bool) -> Self {
        let mut part = self.clone();
        part.vcpus.retain(|exits| keep(&exits.vcpu));
        let vms: BTreeSet<_> = part.vcpus.iter().map(|exits| exits.vcpu.vm).collect();
        part.timeline = self.timeline.only(|vm| vms.contains(&vm));
        part.names.retain(|&vm, _| vms.contains(&Some(vm)));
        part
    }
}

/// Parses vCPUs, which a file may have in any order and repeatedly.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VcpuExits>, D::Error> {
    let mut vcpus: Vec<VcpuExits> = parsing::list(deserializer)?;
    vcpus.sort_by_key(|exits| exits.vcpu);
    vcpus.dedup_by(|again, first| {
        let same = again.vcpu == first.vcpu;
        if same {
            merge_maps(&mut first.reasons, &again.reasons);
            merge_maps(&mut first.accesses, &again.accesses);
        }
        same
    });
    Ok(vcpus)
}

fn merge_maps<K: Ord + Copy>(ours: &mut BTreeMap<K, Exits>, theirs: &BTreeMap<K, Exits>) {
    for (&key, exits) in theirs {
        ours.entry(key).or_default().merge(exits);
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
