//! Two profiles, or two sets of them, side by side: how each reason's rate and handling time changed, and how sure
//! that is.
//!
//! Every figure comes as before, after, and a relative change with a 95 % interval, or with none where nothing can
//! be said. Which interval it is depends on what there is, best first:
//!
//! 1. three recordings or more on each side: Student's t over recordings ([`Basis::Recordings`]);
//! 2. exits known over time, and [`FEWEST_EXITS`] of them on each side: the block bootstrap ([`Basis::Blocks`]);
//! 3. fewer exits: the exact interval for Poisson counts, widened by how much these are clumped
//!    ([`Basis::Poisson`]);
//! 4. for mean times without exits over time: Welch's interval ([`Basis::Times`]).
//!
//! Intervals of one recording a side speak of these recordings only: what differs from run to run (where memory
//! lies, which core the VM has, what else the host does) is the same in all of their time.

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
pub use side::is_idle;
pub use subject::{ComparedVm, Subject};

use crate::{Exits, GroupedTimeline, Grouping, Losses, Profile, Span};
use estimate::{OneSide, Pair};
use side::{Side, Sums};
use subject::Vms;

/// One recording of a side.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'a> {
    /// What it holds.
    pub profile: &'a Profile,
    /// From when to when its exits were counted: its span, or the part of it that was asked for.
    pub observed: Option<Span>,
    /// Its exits over time by the grouping of the comparison, where the profile's own timeline does not tell
    /// them apart: by vCPU, port, address or register.
    pub grouped: Option<&'a GroupedTimeline>,
}

impl<'a> From<&'a Profile> for Recording<'a> {
    fn from(profile: &'a Profile) -> Self {
        Self { profile, observed: profile.span, grouped: None }
    }
}

/// How to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparisonOptions {
    /// What rows are told apart by.
    pub grouping: Grouping,
    /// Operations of the workload before and after (requests, transactions, IPIs); both or neither.
    pub operations: Option<(u64, u64)>,
    /// Decides the draws of the bootstrap. The same seed gives the same intervals.
    pub seed: u64,
}

impl Default for ComparisonOptions {
    fn default() -> Self {
        Self { grouping: Grouping::by_reason(), operations: None, seed: 0 }
    }
}

/// What exits and times are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// One second of a recording.
    Second,
    /// One operation of the workload.
    Operation,
    /// One recording, because one of them does not say how long it lasted.
    Recording,
}

/// What a side consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// How many recordings.
    pub recordings: usize,
    /// How long they lasted together, seconds.
    pub seconds: f64,
    /// Operations of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// VMs with exits, those of all recordings together.
    pub vms: usize,
    /// The most vCPUs with exits in any recording.
    pub vcpus: usize,
    /// Time slices that intervals can be made of.
    pub slices: usize,
    /// Exits in which the guest slept. They are among the exits, and their times in no sum.
    pub idle: Exits,
    /// What is missing or doubtful.
    pub losses: Losses,
}

/// What the comparison as a whole says, from its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Fewer exits, or less time in the host, and no more of the other.
    Less,
    /// More exits, or more time in the host, and no less of the other.
    More,
    /// Fewer exits that take more time, or more that take less.
    Mixed,
    /// Nothing that could be told from no change, or was worth it.
    Same,
    /// There is no interval to tell it by.
    Unsure,
    /// There are no exits.
    Nothing,
}

/// Two sides, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileComparison {
    /// What exits and times are divided by.
    pub per: Per,
    /// The side that changes are relative to.
    pub before: SideSummary,
    /// The other side.
    pub after: SideSummary,
    /// Everything together; times without those of [`SideSummary::idle`].
    pub total: ComparedRow,
    /// The rows, in order.
    pub rows: Vec<ComparedRow>,
    /// The rows that [`Self::keep_top`] took out, in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Remainder>,
    /// The VMs that [`Subject::vm`] numbers.
    pub vms: Vec<ComparedVm>,
    /// What makes the figures worth less.
    pub doubts: Vec<Doubt>,
    /// What it all says.
    pub verdict: Verdict,
    /// The seed of the bootstrap.
    pub seed: u64,
    /// How often the bootstrap drew.
    pub resamples: usize,
}

impl ProfileComparison {
    /// Compares `after` against `before`; a side without recordings has no exits. Rows are ordered by how much
    /// host time they gained.
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
            let over_time = per != Per::Recording;
            let pair = Pair { subject, before: one(0, before), after: one(1, after), over_time };
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
            verdict: verdict(&total),
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

    /// Whether any handling time is known on both sides.
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

fn verdict(total: &ComparedRow) -> Verdict {
    if total.before.exits == 0 && total.after.exits == 0 {
        return Verdict::Nothing;
    }
    let effects = [Some(total.rate), total.time].into_iter().flatten().map(|estimate| estimate.effect());
    let effects: Vec<Effect> = effects.collect();
    match (effects.contains(&Effect::Less), effects.contains(&Effect::More)) {
        (true, true) => Verdict::Mixed,
        (true, false) => Verdict::Less,
        (false, true) => Verdict::More,
        (false, false) if effects.iter().all(|&effect| effect == Effect::Unknown) => Verdict::Unsure,
        (false, false) => Verdict::Same,
    }
}

#[cfg(test)]
#[path = "profile_comparison_tests.rs"]
mod tests;
