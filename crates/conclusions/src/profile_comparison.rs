//! Comparison of two profiles, or two sets of profiles: the changes of each reason's rate and handling time, with
//! intervals.
//!
//! Every figure has a value before, a value after, and a relative change with a 95 % interval if one can be
//! computed. The method depends on the data, best first:
//!
//! 1. three recordings or more on each side: Student's t over recordings ([`Basis::Recordings`]);
//! 2. exits known over time, and [`FEWEST_EXITS`] of them on each side: the block bootstrap ([`Basis::Blocks`]);
//! 3. fewer exits: the exact interval for Poisson counts, widened by the dispersion of the counts ([`Basis::Poisson`]);
//! 4. for mean times without exits over time: Welch's interval ([`Basis::Times`]).
//!
//! Intervals of one recording on each side only apply to these recordings. They do not include variation between runs
//! (memory layout, the VM's cores, other load on the host), which is constant within a recording.

mod cells;
mod doubt;
mod estimate;
mod interval;
mod order;
mod row;
mod side;
mod subject;

use serde::{Deserialize, Serialize};

pub use doubt::{Doubt, Which};
pub use estimate::{FEWEST_EXITS, FEWEST_RECORDINGS};
pub use interval::{Basis, Effect, Estimate};
pub use order::{ComparisonOrder, UnknownComparisonOrder};
pub use row::{ComparedRow, Figures, Remainder, Sum};
pub use subject::{ComparedVm, Subject};

use estimate::{OneSide, Pair};
use exits::{Exits, GroupedTimeline, Grouping, Losses, Profile, Span};
use side::{Side, Sums};
use subject::Vms;

/// One recording of a side.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'a> {
    /// The exits.
    pub profile: &'a Profile,
    /// The period in which the exits were counted: the profile's span, or the selected part of it.
    pub observed: Option<Span>,
    /// The exits over time by the grouping of the comparison, if the profile's own timeline does not have it: by vCPU,
    /// port, address or register.
    pub grouped: Option<&'a GroupedTimeline>,
}

impl<'a> From<&'a Profile> for Recording<'a> {
    fn from(profile: &'a Profile) -> Self {
        Self { profile, observed: profile.span, grouped: None }
    }
}

/// The settings of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparisonOptions {
    /// The grouping of rows.
    pub grouping: Grouping,
    /// Operations of the workload before and after (requests, transactions, IPIs); both or neither.
    pub operations: Option<(u64, u64)>,
    /// The seed of the bootstrap. The same seed gives the same intervals.
    pub seed: u64,
}

impl Default for ComparisonOptions {
    fn default() -> Self {
        Self { grouping: Grouping::by_reason(), operations: None, seed: 0 }
    }
}

/// The unit by which exits and times are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// One second of a recording.
    Second,
    /// One operation of the workload.
    Operation,
    /// One recording, because the duration of a recording is unknown.
    Recording,
}

/// A summary of one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// The number of recordings.
    pub recordings: usize,
    /// Their total duration in seconds.
    pub seconds: f64,
    /// Operations of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// The maximum number of VMs in a recording.
    pub vms: usize,
    /// The maximum number of vCPUs with exits in a recording.
    pub vcpus: usize,
    /// The number of time slices that intervals are computed from.
    pub slices: usize,
    /// Exits in which the guest slept. They count as exits, but their times are not included in sums.
    pub idle: Exits,
    /// Missing or doubtful data.
    pub losses: Losses,
}

/// The verdict on the whole comparison, from its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overall {
    /// Fewer exits or less time in the host, and no increase of the other.
    Less,
    /// More exits or more time in the host, and no decrease of the other.
    More,
    /// Fewer exits but more time, or more exits but less time.
    Mixed,
    /// No significant or relevant change.
    Same,
    /// There is no interval.
    Unsure,
    /// There are no exits, or one side has none and no time in which they could have been seen.
    Nothing,
}

/// Two sides, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileComparison {
    /// The unit by which exits and times are divided.
    pub per: Per,
    /// The side that changes are relative to.
    pub before: SideSummary,
    /// The other side.
    pub after: SideSummary,
    /// The total; its times exclude [`SideSummary::idle`].
    pub total: ComparedRow,
    /// The rows, in order.
    pub rows: Vec<ComparedRow>,
    /// The sum of the rows that [`Self::keep_top`] removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Remainder>,
    /// The VMs, to which [`Subject::vm`] is an index.
    pub vms: Vec<ComparedVm>,
    /// Doubts about the figures.
    pub doubts: Vec<Doubt>,
    /// The verdict.
    pub verdict: Overall,
    /// The seed of the bootstrap.
    pub seed: u64,
    /// The number of bootstrap resamples.
    pub resamples: usize,
}

impl ProfileComparison {
    /// Compares `after` with `before`. A side without recordings has no exits. Rows are sorted by
    /// [`ComparisonOrder::Time`].
    #[must_use]
    pub fn new(before: &[Recording<'_>], after: &[Recording<'_>], options: &ComparisonOptions) -> Self {
        let recordings = [before, after];
        let vms = Vms::new(before, after);
        let sides = recordings.map(|side| Side::new(side, &options.grouping, &vms, options.seed));
        let seconds = [0, 1].map(|side: usize| sides[side].observed_ns.iter().sum::<f64>() / 1e9);
        let (per, units) = units(options, &sides, seconds);
        let none = Sums::default();
        let one = |side: usize, sums| OneSide { side: &sides[side], sums, units: units[side] };
        let row = |subject, before, after| {
            let pair = Pair { subject, before: one(0, before), after: one(1, after), per };
            ComparedRow::new(&pair, [&sides[0].total, &sides[1].total])
        };
        let total = row(Subject::default(), &sides[0].total, &sides[1].total);
        let subjects: std::collections::BTreeSet<_> =
            sides.iter().flat_map(|side| side.rows.keys().copied()).collect();
        let rows = subjects.into_iter().map(|subject| {
            let sums = |side: usize| sides[side].rows.get(&subject).unwrap_or(&none);
            row(subject, sums(0), sums(1))
        });
        let rows = rows.collect();
        let summary = |side: usize| {
            let operations = options.operations.map(|(before, after)| [before, after][side]);
            SideSummary::new(recordings[side], &sides[side], seconds[side], operations)
        };
        let mut comparison = Self {
            per,
            before: summary(0),
            after: summary(1),
            verdict: verdict(&total, &sides),
            total,
            rows,
            rest: None,
            vms: vms.vms,
            doubts: Vec::new(),
            seed: options.seed,
            resamples: stats::blocks::RESAMPLES,
        };
        comparison.doubts = doubt::all(&comparison, [&sides[0], &sides[1]]);
        comparison.sort(ComparisonOrder::default());
        comparison
    }

    /// Tests whether handling times are known on both sides.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.total.mean.is_some()
    }
}

fn units(options: &ComparisonOptions, sides: &[Side; 2], seconds: [f64; 2]) -> (Per, [f64; 2]) {
    match options.operations {
        Some((before, after)) if before > 0 && after > 0 => {
            (Per::Operation, [before, after].map(|operations| operations as f64))
        }
        _ if sides.iter().all(|side| !side.observed_ns.is_empty() && !side.observed_ns.contains(&0.0)) => {
            (Per::Second, seconds)
        }
        _ => (Per::Recording, [0, 1].map(|side: usize| sides[side].observed_ns.len().max(1) as f64)),
    }
}

impl SideSummary {
    /// The mean duration of its recordings in seconds.
    #[must_use]
    pub fn mean_seconds(&self) -> f64 {
        self.seconds / self.recordings.max(1) as f64
    }

    fn new(recordings: &[Recording<'_>], side: &Side, seconds: f64, operations: Option<u64>) -> Self {
        let mut losses = Losses::default();
        recordings.iter().for_each(|recording| losses.merge(&recording.profile.losses));
        let with_exits =
            |profile: &Profile| profile.vcpus().iter().filter(|vcpu| !vcpu.reasons.is_empty()).count();
        let vms: std::collections::BTreeSet<_> = recordings
            .iter()
            .enumerate()
            .flat_map(|(number, recording)| {
                recording.profile.vcpus().iter().map(move |vcpu| (number, vcpu.vcpu.vm))
            })
            .collect();
        let most_vms =
            (0..recordings.len()).map(|number| vms.iter().filter(|vm| vm.0 == number).count()).max();
        Self {
            recordings: recordings.len(),
            seconds,
            operations,
            vms: most_vms.unwrap_or(0),
            vcpus: recordings.iter().map(|recording| with_exits(recording.profile)).max().unwrap_or(0),
            slices: side.time.as_ref().map_or(0, side::Time::cell_count),
            idle: side.idle.clone(),
            losses,
        }
    }
}

fn verdict(total: &ComparedRow, sides: &[Side; 2]) -> Overall {
    let is_empty = total.before.exits == 0 && total.after.exits == 0;
    if is_empty || sides.iter().any(Side::is_unobserved) {
        return Overall::Nothing;
    }
    let effects = [Some(total.rate), total.time].into_iter().flatten().map(|estimate| estimate.effect());
    let effects: Vec<Effect> = effects.collect();
    match (effects.contains(&Effect::Less), effects.contains(&Effect::More)) {
        (true, true) => Overall::Mixed,
        (true, false) => Overall::Less,
        (false, true) => Overall::More,
        (false, false) if effects.iter().all(|&effect| effect == Effect::Unknown) => Overall::Unsure,
        (false, false) => Overall::Same,
    }
}

#[cfg(test)]
#[path = "profile_comparison_tests.rs"]
mod tests;
