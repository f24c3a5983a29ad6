//! The figures of runs: one value for each workload, metric, number of guests, arm and block.

use std::collections::{BTreeMap, BTreeSet};

use conclusions::profile_comparison::FEWEST_EXITS;
use stats::Scale;
use stats::contrast::Count;

use super::facts::{Arm, StoredRun};
use super::finding::Source;
use super::wording;
use crate::sampling::MOST_PLACES;
use crate::workload::{WorkUnit, exits_of_which_work, of_work, work};
use crate::{Better, Cell, Combine, Run, Unit};

/// A block, and the session that made the run. Runs are pairs only if both are the same: between two sessions the host
/// may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Repeat {
    pub(super) block: u32,
    session: u32,
}

impl Repeat {
    fn of(run: &Run) -> Self {
        Self { block: run.cell.block, session: run.session }
    }
}

/// Values by block.
pub(super) type ByBlock = BTreeMap<Repeat, f64>;

/// A figure's values before the comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) workload: String,
    pub(super) metric: String,
    pub(super) source: Source,
    pub(super) unit: Unit,
    pub(super) better: Better,
    combine: Combine,
    /// The values by number of guests and arm.
    pub(super) values: BTreeMap<(u32, usize), ByBlock>,
    /// For a figure that counts events: the base (seconds or work) of each rate, whose product with the rate is the
    /// number of events. Same keys as `values`; empty for other figures.
    pub(super) over: BTreeMap<(u32, usize), ByBlock>,
    /// The figure counts events, and some value is 0 or some arm has few.
    pub(super) is_of_few: bool,
}

impl Series {
    /// The values of an arm at a number of guests.
    pub(super) fn of(&self, guests: u32, arm: usize) -> Option<&ByBlock> {
        self.values.get(&(guests, arm)).filter(|values| !values.is_empty())
    }

    /// The event counts of an arm at a number of guests, if known for each block.
    pub(super) fn counts(&self, guests: u32, arm: usize) -> Option<BTreeMap<Repeat, Count>> {
        let over = self.over.get(&(guests, arm))?;
        let count = |(&repeat, &value): (&Repeat, &f64)| {
            let over = *over.get(&repeat)?;
            Some((repeat, Count { events: value * over, over }))
        };
        self.of(guests, arm)?.iter().map(count).collect()
    }

    /// The event counts, if the figure has few events.
    pub(super) fn counts_of_few(&self, guests: u32, arm: usize) -> Option<BTreeMap<Repeat, Count>> {
        self.counts(guests, arm).filter(|_| self.is_of_few)
    }

    /// The scale on which its values are compared.
    pub(super) fn scale(&self) -> Scale {
        if self.is_of_few {
            return Scale::Difference;
        }
        scale_of(self.unit, self.values.values().flat_map(|blocks| blocks.values().copied()))
    }

    /// The series with only the blocks for which `wanted` is true.
    fn of_blocks(&self, wanted: impl Fn(u32) -> bool) -> Self {
        let chosen = |all: &BTreeMap<(u32, usize), ByBlock>| -> BTreeMap<(u32, usize), ByBlock> {
            let each = all.iter().map(|(&place, blocks)| {
                let blocks = blocks.iter().filter(|(repeat, _)| wanted(repeat.block));
                (place, blocks.map(|(&repeat, &value)| (repeat, value)).collect::<ByBlock>())
            });
            each.filter(|(_, blocks)| !blocks.is_empty()).collect()
        };
        let mut part = Self { values: chosen(&self.values), over: chosen(&self.over), ..self.clone() };
        part.is_of_few = part.has_few();
        part
    }

    fn has_few(&self) -> bool {
        let each = self.values.keys().map(|&(guests, arm)| self.counts(guests, arm));
        let all: Option<Vec<_>> = each.collect();
        all.is_some_and(|all| {
            all.iter().any(|counts| {
                let events = || counts.values().map(|count| count.events);
                events().any(|events| events <= 0.0) || events().sum::<f64>() < FEWEST_EXITS as f64
            })
        })
    }
}

/// The key of a value.
type Place = (String, u32, usize, Repeat);

/// The bases of a run's rates.
#[derive(Clone, Copy)]
struct Over<'a> {
    run: &'a Run,
    /// The amount of work, in the workload's unit.
    work: Option<f64>,
}

/// Values and runs that were not used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unused {
    /// Figures that were infinite or NaN in some run.
    pub(super) not_numbers: BTreeSet<String>,
    /// The number of runs that were ignored because of a later run of the same cell.
    pub(super) repeated: usize,
}

/// The runs of several results of one plan, those of each in blocks after all of the one before, and the first block of
/// each result.
pub(super) fn runs_of_all<'a>(
    results: impl IntoIterator<Item = &'a [StoredRun]>,
) -> (Vec<StoredRun>, Vec<u32>) {
    let (mut all, mut firsts, mut next) = (Vec::new(), Vec::new(), 0_u32);
    for runs in results {
        let first = next;
        firsts.push(first);
        for stored in runs {
            let mut stored = stored.clone();
            let block = stored.run.cell.block.saturating_add(first);
            stored.run.cell.block = block;
            next = next.max(block.saturating_add(1));
            all.push(stored);
        }
    }
    (all, firsts)
}

/// What counts as a repeat of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Repeats<'a> {
    /// Each block.
    Blocks,
    /// Each result, by the first block of each.
    Results(&'a [u32]),
}

impl Repeats<'_> {
    /// The values of each repeat. A result without any is no repeat.
    pub(super) fn of<T: Copy>(self, values: &BTreeMap<Repeat, T>) -> Vec<Vec<T>> {
        let mut of_each: BTreeMap<usize, Vec<T>> = BTreeMap::new();
        for (number, (repeat, &value)) in values.iter().enumerate() {
            let number = match self {
                Self::Blocks => number,
                Self::Results(firsts) => firsts.partition_point(|&first| first <= repeat.block),
            };
            of_each.entry(number).or_default().push(value);
        }
        of_each.into_values().collect()
    }
}

/// The figures of [`runs_of_all`] on both sides, of which the second begins with the block `own`. A reason of exits that
/// only one result has seen gets the value 0 in the runs of the others, as within a study.
pub(super) fn series_of_both(
    runs: &[StoredRun],
    own: u32,
    arms: &[Arm],
    workloads: &[String],
) -> Vec<[Series; 2]> {
    let all = series(runs, arms, workloads).0;
    all.iter().map(|one| [one.of_blocks(|block| block < own), one.of_blocks(|block| block >= own)]).collect()
}

/// The figures of `runs`: first those of workloads, in the order of each workload's first run.
pub(super) fn series(runs: &[StoredRun], arms: &[Arm], workloads: &[String]) -> (Vec<Series>, Unused) {
    let mut unused = Unused::default();
    let mut last: BTreeMap<&Cell, &Run> = BTreeMap::new();
    for stored in runs {
        let run = &stored.run;
        match last.get(&run.cell) {
            Some(known) if known.attempt >= run.attempt => unused.repeated += 1,
            Some(_) => {
                unused.repeated += 1;
                last.insert(&run.cell, run);
            }
            None => {
                last.insert(&run.cell, run);
            }
        }
    }
    let mut found: Vec<Series> = Vec::new();
    let mut places: BTreeMap<(Source, String, String, Unit), usize> = BTreeMap::new();
    let mut over: BTreeMap<Place, Over<'_>> = BTreeMap::new();
    let mut in_order: Vec<&Run> = last.into_values().collect();
    let place =
        |run: &Run| workloads.iter().position(|name| *name == run.cell.workload).unwrap_or(usize::MAX);
    in_order.sort_by_key(|run| (place(run), run.position));
    for &run in &in_order {
        let Some(arm) = arms.iter().position(|arm| arm.levels == run.cell.arm) else { continue };
        let guests = run.of_guests();
        let work = work(&run.of_guests_counted());
        let place = (run.cell.workload.clone(), run.cell.guests, arm, Repeat::of(run));
        over.insert(place, Over { run, work: work.map(|(_, amount)| amount) });
        let host = run.host.iter().cloned().chain(of_work(run, work));
        let host = host.map(|metric| (Source::Host, metric));
        for (source, metric) in guests.into_iter().map(|metric| (Source::Workload, metric)).chain(host) {
            if !metric.value.is_finite() {
                unused.not_numbers.insert(format!("{} of {}", metric.name, run.cell.workload));
                continue;
            }
            let key = (source, run.cell.workload.clone(), metric.name.clone(), metric.unit);
            let at = *places.entry(key).or_insert_with(|| {
                found.push(Series {
                    workload: run.cell.workload.clone(),
                    metric: metric.name.clone(),
                    source,
                    unit: metric.unit,
                    better: metric.better,
                    combine: metric.combine,
                    values: BTreeMap::new(),
                    over: BTreeMap::new(),
                    is_of_few: false,
                });
                found.len() - 1
            });
            found[at].values.entry((run.cell.guests, arm)).or_default().insert(Repeat::of(run), metric.value);
        }
    }
    // Drop KVM's counters that are 0 in all runs.
    let counts =
        |series: &Series| series.values.values().flat_map(BTreeMap::values).any(|value| *value != 0.0);
    found.retain(|series| !series.metric.starts_with("kvm.") || counts(series));
    fill_unseen(&mut found);
    found.iter_mut().for_each(|series| fill_over(series, &over));
    found.sort_by_key(|series| series.source);
    (found, unused)
}

/// Sets [`Series::over`] if the figure counts events.
fn fill_over(series: &mut Series, all: &BTreeMap<Place, Over<'_>>) {
    let is_negative = series.values.values().flat_map(BTreeMap::values).any(|value| *value < 0.0);
    let of = |over: &Over<'_>| match (series.source, series.unit, series.combine) {
        // A negative number is no number of events.
        _ if is_negative => None,
        (Source::Host, Unit::PerSecond, _) => Some(over.run.host_seconds(&series.metric)),
        (Source::Host, Unit::PerOperation, _) => over.work,
        // A plain number that is not added up over the guests may be no number of events.
        (Source::Workload, Unit::Count, Combine::Sum) => Some(1.0),
        _ => None,
    };
    for (&(guests, arm), blocks) in &series.values {
        let places = blocks.keys().filter_map(|&repeat| {
            let over = of(all.get(&(series.workload.clone(), guests, arm, repeat))?)?;
            (over.is_finite() && over > 0.0).then_some((repeat, over))
        });
        series.over.insert((guests, arm), places.collect());
    }
    series.is_of_few = series.has_few();
}

/// Families of figures of which a run stores only those that are not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// Exits, and the time in which they are handled, by reason.
    Exits,
    /// Exits for each unit of work, by reason.
    ExitsOfWork(WorkUnit),
    /// Accesses by port, and by page of addresses.
    Accesses,
    /// Interrupts that are not of devices, by their label in `/proc/interrupts`.
    Interrupts,
}

impl Family {
    /// The family that a metric belongs to.
    fn of(metric: &str) -> Option<Self> {
        if let Some((unit, reason)) = exits_of_which_work(metric) {
            return (reason != "total").then_some(Self::ExitsOfWork(unit));
        }
        let is_of_a_label = |metric: &str| {
            metric.strip_prefix("interrupts.").is_some_and(|label| !matches!(label, "total" | "devices"))
        };
        match metric {
            _ if wording::exit_reason(metric).is_some() => Some(Self::Exits),
            _ if wording::accessed(metric).is_some() => Some(Self::Accesses),
            _ if is_of_a_label(metric) => Some(Self::Interrupts),
            _ => None,
        }
    }

    /// The family of which a run with this value is known to have stored all figures that are not zero.
    fn shown_by(metric: &str, value: f64) -> Option<Self> {
        match metric {
            "accesses.port" => Some(Self::Accesses),
            "interrupts.total" => Some(Self::Interrupts),
            // KVM's statistics give a total but no reasons, so only a total of 0 shows that there are none.
            "exits.total" | EXITS_OF_PROBE => (value == 0.0).then_some(Self::Exits),
            _ => Self::of(metric).filter(|family| matches!(family, Self::Exits | Self::ExitsOfWork(_))),
        }
    }
}

/// The micro VM's exits of all reasons for each operation.
const EXITS_OF_PROBE: &str = "exits";

/// Adds the value 0 for a reason, port, address or label that is missing from a run in which its family was counted: by
/// the host, or by the micro VM, whose exits are for each operation.
fn fill_unseen(found: &mut [Series]) {
    type InWorkload = (u32, usize, Repeat);
    let may_lack = |series: &Series| series.source == Source::Host || series.unit == Unit::PerOperation;
    let mut shown: BTreeMap<(Source, String, Family), BTreeSet<InWorkload>> = BTreeMap::new();
    let mut places: BTreeMap<(String, InWorkload), usize> = BTreeMap::new();
    for series in found.iter().filter(|series| may_lack(series)) {
        for (&(guests, arm), blocks) in &series.values {
            for (&repeat, &value) in blocks {
                let cell = (guests, arm, repeat);
                if let Some(family) = Family::shown_by(&series.metric, value) {
                    let key = (series.source, series.workload.clone(), family);
                    shown.entry(key).or_default().insert(cell);
                }
                if Family::of(&series.metric) == Some(Family::Accesses) {
                    *places.entry((series.workload.clone(), cell)).or_default() += 1;
                }
            }
        }
    }
    for ((_, workload, _), cells) in shown.iter_mut().filter(|((.., family), _)| *family == Family::Accesses)
    {
        // A run with this many places has left out others, which may not be 0.
        cells
            .retain(|cell| places.get(&(workload.clone(), *cell)).is_none_or(|&places| places < MOST_PLACES));
    }
    for series in found.iter_mut().filter(|series| may_lack(series)) {
        let Some(family) = Family::of(&series.metric) else { continue };
        let key = (series.source, series.workload.clone(), family);
        for &(guests, arm, repeat) in shown.get(&key).into_iter().flatten() {
            series.values.entry((guests, arm)).or_default().entry(repeat).or_insert(0.0);
        }
    }
}

/// The scale on which values of this unit are compared.
pub(crate) fn scale_of(unit: Unit, values: impl IntoIterator<Item = f64>) -> Scale {
    let are_positive = values.into_iter().all(|value| value.is_finite() && value > 0.0);
    if unit != Unit::Percent && are_positive { Scale::Ratio } else { Scale::Difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_nothing_are_not_made_ratios() {
        assert_eq!(scale_of(Unit::BytesPerSecond, [1.0, 2.0]), Scale::Ratio);
        assert_eq!(scale_of(Unit::Percent, [1.0, 2.0]), Scale::Difference);
        assert_eq!(scale_of(Unit::PerSecond, [0.0, 2.0]), Scale::Difference);
        assert_eq!(scale_of(Unit::Seconds, [-1.0, 2.0]), Scale::Difference);
    }
}
