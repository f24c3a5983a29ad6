//! One side of a comparison: its recordings, summed by subject, and their exits over time.

use std::collections::{BTreeMap, BTreeSet};

use super::Recording;
use stats::blocks::Resampling;

use super::cells::{Cells, Grid};
use super::subject::{Subject, Vms};
use exits::{AccessKind, Exits, Grouping, HandlingTime, Key, Profile, What};

/// The exits of one row on one side.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    /// The number of exits.
    pub(super) count: u64,
    /// Their handling times. In rows of several reasons idle exits are excluded.
    pub(super) times: HandlingTime,
    /// The sums of each recording.
    pub(super) recordings: Vec<RecordingSums>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordingSums {
    pub(super) count: f64,
    pub(super) timed: f64,
    pub(super) time_ns: f64,
}

/// All recordings of one side.
pub(super) struct Side {
    pub(super) rows: BTreeMap<Subject, Sums>,
    pub(super) total: Sums,
    /// Exits in which the guest slept.
    pub(super) idle: Exits,
    /// Accesses that are in no row because there are too many distinct ones.
    pub(super) unsorted: u64,
    /// Exits without their VM. They are missing in rows by VM, and in recordings of which only some VMs are selected; other
    /// rows have them.
    pub(super) without_vcpu: u64,
    /// The duration of each recording, in nanoseconds.
    pub(super) observed_ns: Vec<f64>,
    pub(super) time: Option<Time>,
}

/// The exits of a side over time.
pub(super) struct Time {
    pub(super) grids: Vec<Grid>,
    pub(super) observed: Vec<Vec<f64>>,
    rows: BTreeMap<Subject, Vec<Cells>>,
    total: Vec<Cells>,
    pub(super) draws: Option<Resampling>,
}

impl Time {
    /// The cells of a row for each recording; `None` if its exits over time are unknown.
    pub(super) fn cells(&self, subject: Subject) -> Option<&[Cells]> {
        if subject == Subject::default() {
            return Some(&self.total);
        }
        self.rows.get(&subject).map(Vec::as_slice)
    }
}

impl Side {
    pub(super) fn new(recordings: &[Recording<'_>], grouping: &Grouping, vms: &Vms, seed: u64) -> Self {
        let mut side = Self {
            rows: BTreeMap::new(),
            total: Sums::default(),
            idle: Exits::default(),
            unsorted: 0,
            without_vcpu: 0,
            observed_ns: recordings
                .iter()
                .map(|recording| recording.observed.map_or(0.0, |span| span.length_ns() as f64))
                .collect(),
            time: None,
        };
        for (number, recording) in recordings.iter().enumerate() {
            side.add(number, recording.profile, grouping, vms);
        }
        let of_all = |sums: &mut Sums| sums.recordings.resize(recordings.len(), RecordingSums::default());
        side.rows.values_mut().for_each(of_all);
        of_all(&mut side.total);
        side.time = over_time(recordings, grouping, vms, seed);
        side
    }

    /// Tests whether there are no exits because there is no time in which they could have been seen. Such a zero is
    /// not a count.
    pub(super) fn is_unobserved(&self) -> bool {
        self.total.count == 0 && self.observed_ns.iter().all(|&ns| ns == 0.0)
    }

    fn add(&mut self, number: usize, profile: &Profile, grouping: &Grouping, vms: &Vms) {
        if grouping.tells_vms_apart() || profile.vcpus().iter().all(|exits| exits.vcpu.vm.is_some()) {
            self.without_vcpu = self.without_vcpu.saturating_add(profile.losses.exits_without_vcpu);
        }
        let kinds = grouping.access_kinds();
        for vcpu in profile.vcpus() {
            let whose = grouping.whose(vcpu.vcpu);
            if kinds.is_empty() {
                for (&reason, exits) in &vcpu.reasons {
                    let what = grouping.what(reason);
                    let idle = reason.is_sleep();
                    let row = self.rows.entry(vms.subject(profile, Key { whose, what })).or_default();
                    row.add(number, exits, !idle || what != What::Everything);
                    self.total.add(number, exits, !idle);
                    if idle {
                        self.idle.merge(exits);
                    }
                }
                continue;
            }
            for (&access, exits) in &vcpu.accesses {
                if kinds.contains(&access.kind()) {
                    let key = Key { whose, what: What::Access(access) };
                    self.rows.entry(vms.subject(profile, key)).or_default().add(number, exits, true);
                    self.total.add(number, exits, true);
                } else if access.kind() == AccessKind::Other {
                    self.unsorted = self.unsorted.saturating_add(exits.count);
                }
            }
        }
    }
}

impl Sums {
    fn add(&mut self, number: usize, exits: &Exits, timed: bool) {
        self.count = self.count.saturating_add(exits.count);
        if self.recordings.len() <= number {
            self.recordings.resize(number + 1, RecordingSums::default());
        }
        let recording = &mut self.recordings[number];
        recording.count += exits.count as f64;
        if timed {
            self.times.merge(&exits.handling);
            recording.timed += exits.handling.count() as f64;
            recording.time_ns += exits.handling.total_ns() as f64;
        }
    }
}

/// The exits in cells of time; `None` unless all recordings have a duration.
fn over_time(recordings: &[Recording<'_>], grouping: &Grouping, vms: &Vms, seed: u64) -> Option<Time> {
    let grids: Vec<Grid> = recordings
        .iter()
        .map(|recording| {
            let finer = recording.grouped.map_or(0, exits::GroupedTimeline::width_ns);
            Grid::new(recording.observed?, recording.profile.timeline.width_ns().max(finer))
        })
        .collect::<Option<_>>()?;
    let mut rows: BTreeMap<Subject, Vec<Cells>> = BTreeMap::new();
    let mut total = vec![Cells::default(); recordings.len()];
    for (number, (recording, grid)) in recordings.iter().zip(&grids).enumerate() {
        let profile = recording.profile;
        let mut row = |subject, start_ns, width_ns, slices: &[exits::Slice], timed| {
            let cells = rows.entry(subject).or_insert_with(|| vec![Cells::default(); recordings.len()]);
            grid.add(&mut cells[number], start_ns, width_ns, slices, timed);
        };
        let by_access = !grouping.access_kinds().is_empty();
        if let Some(grouped) = recording.grouped {
            let there: BTreeSet<_> = profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect();
            for (key, sleeps, slices) in grouped.of_vms(|vm| there.contains(&vm)) {
                row(vms.subject(profile, key), grouped.start_ns(), grouped.width_ns(), &slices, !sleeps);
                if by_access {
                    grid.add(&mut total[number], grouped.start_ns(), grouped.width_ns(), &slices, true);
                }
            }
        }
        if by_access {
            continue;
        }
        let timeline = &profile.timeline;
        for (series, slices) in timeline.iter() {
            let vcpu = exits::Vcpu { vm: series.vm, number: None, thread: None };
            let key = Key { whose: grouping.whose(vcpu), what: grouping.what(series.reason) };
            let sleeps = series.reason.is_sleep();
            if recording.grouped.is_none() && !grouping.has(exits::Dimension::Vcpu) {
                let timed = !sleeps || key.what != What::Everything;
                row(vms.subject(profile, key), timeline.start_ns(), timeline.width_ns(), &slices, timed);
            }
            grid.add(&mut total[number], timeline.start_ns(), timeline.width_ns(), &slices, !sleeps);
        }
    }
    let observed: Vec<Vec<f64>> =
        grids.iter().map(|grid| grid.observed_ns.iter().map(|&ns| ns as f64).collect()).collect();
    let draws = Resampling::new(&grids.iter().map(Grid::len).collect::<Vec<_>>(), seed);
    Some(Time { grids, observed, rows, total, draws })
}
