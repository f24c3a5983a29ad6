//! The interval of a figure, by the best method that the recordings allow.

use stats::Interval;
use stats::blocks::{BLOCKS, FEWEST_CELLS, Resampling, offsets};
use stats::poisson::{self, dispersion};
use stats::student::{self, ratio_variance};

use super::Per;
use super::cells::{Cells, tenths};
use super::interval::{Basis, Estimate};
use super::side::{RecordingSums, Side, Sums, Time};
use super::subject::Subject;
use crate::RelativeChange;
use exits::HandlingTime;

/// The minimum number of recordings on each side for Student's t over recordings, whose interval includes the variation
/// between runs.
pub const FEWEST_RECORDINGS: usize = 3;
/// The minimum number of exits on a side for the block bootstrap.
pub const FEWEST_EXITS: u64 = 50;
/// The minimum number of exits on a side to use its own dispersion.
const ENOUGH_TO_TELL: u64 = 20;

/// One row on both sides, and the units of its rates.
pub(super) struct Pair<'a> {
    pub(super) subject: Subject,
    pub(super) before: OneSide<'a>,
    pub(super) after: OneSide<'a>,
    /// The unit of its rates.
    pub(super) per: Per,
}

#[derive(Clone, Copy)]
pub(super) struct OneSide<'a> {
    pub(super) side: &'a Side,
    pub(super) sums: &'a Sums,
    /// Seconds, operations or recordings.
    pub(super) units: f64,
}

/// The numerator and denominator of a ratio.
#[derive(Clone, Copy)]
enum Ratio {
    ExitsByTime,
    HandlingByTime,
    HandlingByExits,
}

impl Pair<'_> {
    /// The change of the exits per unit.
    pub(super) fn rate(&self) -> Estimate {
        let counts = self.both(|one| one.sums.count as f64);
        let units = self.both(|one| one.units);
        let change = RelativeChange::between(counts[0] / units[0], counts[1] / units[1]);
        let is_unobserved = self.both(|one| one.side.is_unobserved()).contains(&true);
        if change == RelativeChange::StillNothing || is_unobserved {
            return Estimate::without_interval(change);
        }
        let longer = (units[0] / units[1]).ln();
        if counts[0] > 0.0 && counts[1] > 0.0 {
            let centre = (counts[1] / counts[0]).ln() + longer;
            if let Some(found) = self.by_recordings_or_blocks(Ratio::ExitsByTime, centre, change) {
                return found;
            }
        }
        let ([before, after], measured) = self.dispersions();
        let log =
            poisson::log_ratio(counts[0] / before, counts[1] / after).moved((after / before).ln() + longer);
        Estimate::new(change, log, Basis::Poisson { before, after, measured })
    }

    /// The change of the handling time per unit; `None` if neither side has times.
    pub(super) fn time(&self) -> Option<Estimate> {
        let times = self.both(|one| one.sums.times.total_ns() as f64);
        let units = self.both(|one| one.units);
        if self.both(|one| one.sums.times.count()) == [0, 0] {
            return None;
        }
        let change = RelativeChange::between(times[0] / units[0], times[1] / units[1]);
        if times.contains(&0.0) {
            return Some(Estimate::without_interval(change));
        }
        let centre = (times[1] / units[1]).ln() - (times[0] / units[0]).ln();
        if let Some(found) = self.by_recordings_or_blocks(Ratio::HandlingByTime, centre, change) {
            return Some(found);
        }
        // The sum of a Poisson number of times (a compound Poisson distribution) has a relative variance of (1 + CV²) / n.
        let ([before, after], measured) = self.dispersions();
        let variance = |times: &HandlingTime, dispersion: f64| {
            let count = times.count() as f64 / dispersion;
            (count >= 2.0).then_some(())?;
            Some(((1.0 + variation(times)?) / count, count - 1.0))
        };
        let sides = [variance(&self.before.sums.times, before), variance(&self.after.sums.times, after)];
        Some(by_welch(sides, centre, change, Basis::Poisson { before, after, measured }))
    }

    /// The change of the mean handling time; `None` unless both sides have times.
    pub(super) fn mean(&self) -> Option<Estimate> {
        let means = [self.before.sums.times.mean_ns()?, self.after.sums.times.mean_ns()?];
        let change = RelativeChange::between(means[0], means[1]);
        if means.contains(&0.0) {
            return Some(Estimate::without_interval(change));
        }
        let centre = means[1].ln() - means[0].ln();
        if let Some(found) = self.by_recordings_or_blocks(Ratio::HandlingByExits, centre, change) {
            return Some(found);
        }
        let variance = |times: &HandlingTime| {
            let count = times.count() as f64;
            (count >= 2.0).then_some(())?;
            Some((variation(times)? / count, count - 1.0))
        };
        let sides = [variance(&self.before.sums.times), variance(&self.after.sums.times)];
        Some(by_welch(sides, centre, change, Basis::Times))
    }

    fn both<T>(&self, figure: impl Fn(&OneSide<'_>) -> T) -> [T; 2] {
        [figure(&self.before), figure(&self.after)]
    }

    fn by_recordings_or_blocks(&self, ratio: Ratio, centre: f64, change: RelativeChange) -> Option<Estimate> {
        let (log, basis) = self.by_recordings(ratio).or_else(|| self.by_blocks(ratio))?;
        Some(Estimate::new(change, log.moved(centre), basis))
    }

    fn by_recordings(&self, ratio: Ratio) -> Option<(Interval, Basis)> {
        let [before, after] = self.both(|one| one.sums.recordings.len());
        if before.min(after) < FEWEST_RECORDINGS {
            return None;
        }
        let log = offset([self.variance(&self.before, ratio)?, self.variance(&self.after, ratio)?])?;
        Some((log, Basis::Recordings { before, after }))
    }

    /// The variance of the logarithm of a side's ratio between its recordings, and its degrees of freedom.
    fn variance(&self, one: &OneSide<'_>, ratio: Ratio) -> Option<(f64, f64)> {
        // The operations of a single recording are unknown: they count as equal shares, so that recordings of the same
        // work that take different times do not seem alike.
        let units = one.side.observed_ns.iter().map(|&ns| if self.per == Per::Second { ns } else { 1.0 });
        let recordings = one.sums.recordings.iter().zip(units);
        let parts: Vec<(f64, f64)> =
            recordings.map(|(sums, units)| ratio.of_recording(sums, units)).collect();
        ratio_variance(&parts)
    }

    /// The dispersion of the recordings' exits on each side, which is that of the other side where there are none; `None`
    /// without exits, or with too few recordings to say.
    fn dispersions_between_recordings(&self) -> Option<[f64; 2]> {
        if self.both(|one| one.side.observed_ns.len()).into_iter().min() < Some(FEWEST_RECORDINGS) {
            return None;
        }
        let own = self.both(|one| {
            let (variance, _) = self.variance(one, Ratio::ExitsByTime)?;
            Some(variance * one.sums.count as f64)
        });
        Some([own[0].or(own[1])?, own[1].or(own[0])?])
    }

    fn by_blocks(&self, ratio: Ratio) -> Option<(Interval, Basis)> {
        if self.per == Per::Recording
            || self.both(|one| one.sums.count).into_iter().min() < Some(FEWEST_EXITS)
        {
            return None;
        }
        let before = self.before.resampled(self.subject, ratio)?;
        let after = self.after.resampled(self.subject, ratio)?;
        let found = (after.found / before.found).ln();
        let log = offsets((before.draws, &before.ratios), (after.draws, &after.ratios), found)?;
        Some((log, Basis::Blocks { before: before.slices, after: after.slices }))
    }

    /// The dispersion of exits on each side, and whether it was measured.
    fn dispersions(&self) -> ([f64; 2], bool) {
        let own = self.both(|one| one.dispersion(self.subject, |cells| tenths(cells).to_vec()));
        let slices = self.both(|one| one.dispersion(self.subject, <[f64]>::to_vec));
        let between = self.dispersions_between_recordings();
        let measured = between.is_some() || slices.iter().flatten().next().is_some();
        let pooled = pooled(slices.into_iter().flatten());
        // A reason that occurs in some recordings only may be steady within each of them.
        let [before, after] = between.unwrap_or([1.0; 2]);
        let of = |one: &OneSide<'_>, own: Option<(f64, f64)>, between: f64| {
            let own = own.map_or(1.0, |own| own.0).max(between).max(1.0);
            // A few exits do not show their own dispersion. The dispersion within slices may be that of the other side.
            if one.sums.count >= ENOUGH_TO_TELL { own } else { own.max(pooled) }
        };
        ([of(&self.before, own[0], before), of(&self.after, own[1], after)], measured)
    }

    /// The upper bound of the exits per unit if none was seen.
    pub(super) fn bound_of_none(&self, one: &OneSide<'_>) -> f64 {
        let slices = self.both(|one| one.dispersion(self.subject, <[f64]>::to_vec));
        // Without exits on this side, both are that of the other.
        let between = self.dispersions_between_recordings().map_or(1.0, |[before, _]| before);
        let dispersion = pooled(slices.into_iter().flatten()).max(between).max(1.0);
        poisson::upper_bound_of_none(dispersion) / one.units
    }
}

/// The weighted mean of dispersions.
fn pooled(dispersions: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, weight) =
        dispersions.fold((0.0, 0.0), |sum, (found, weight)| (sum.0 + found * weight, sum.1 + weight));
    if weight > 0.0 { sum / weight } else { 1.0 }
}

/// A ratio of one side, and its bootstrap resamples.
struct Resampled<'a> {
    draws: &'a Resampling,
    ratios: Vec<f64>,
    found: f64,
    slices: usize,
}

/// The cells of each recording, by its index.
type Series<'a> = dyn Fn(usize) -> &'a [f64] + 'a;

impl<'a> OneSide<'a> {
    /// The dispersion over the parts of the recordings, with the number of exits as its weight; `None` if the exits over
    /// time are unknown.
    fn dispersion(&self, subject: Subject, parts: impl Fn(&[f64]) -> Vec<f64>) -> Option<(f64, f64)> {
        let time = self.side.time.as_ref()?;
        let recordings = time.cells(subject)?.iter().zip(&time.observed);
        let found: Vec<(f64, f64)> = recordings
            .filter(|(cells, observed)| observed.len() >= FEWEST_CELLS && !cells.counts.is_empty())
            .filter_map(|(cells, observed)| {
                Some((dispersion(&parts(&cells.counts), &parts(observed))?, cells.counts.iter().sum()))
            })
            .collect();
        let weight = found.iter().map(|found| found.1).sum();
        (weight > 0.0).then(|| (pooled(found.into_iter()), weight))
    }

    fn resampled(&self, subject: Subject, ratio: Ratio) -> Option<Resampled<'a>> {
        let time = self.side.time.as_ref()?;
        let draws = time.draws.as_ref()?;
        let cells = time.cells(subject)?;
        if !is_spread_out(cells) {
            return None;
        }
        let counts = |number: usize| cells[number].counts.as_slice();
        let timed = |number: usize| cells[number].timed.as_slice();
        let handling = |number: usize| cells[number].handling_ns.as_slice();
        let observed = |number: usize| time.observed[number].as_slice();
        let all = |of: &Series<'a>| (0..cells.len()).flat_map(of).sum::<f64>();
        let (top, bottom): (&Series<'a>, &Series<'a>) = match ratio {
            Ratio::ExitsByTime => (&counts, &observed),
            Ratio::HandlingByTime => (&handling, &observed),
            Ratio::HandlingByExits => (&handling, &timed),
        };
        let ratios = draws.sums(top).into_iter().zip(draws.sums(bottom)).map(|(top, bottom)| top / bottom);
        let ratios = ratios.collect();
        Some(Resampled { draws, ratios, found: all(top) / all(bottom), slices: time.cell_count() })
    }
}

impl Ratio {
    /// The numerator and denominator of a recording with so many units of its rates.
    fn of_recording(self, sums: &RecordingSums, units: f64) -> (f64, f64) {
        match self {
            Self::ExitsByTime => (sums.count, units),
            Self::HandlingByTime => (sums.time_ns, units),
            Self::HandlingByExits => (sums.time_ns, sums.timed),
        }
    }
}

/// Tests whether at least half of the tenths of the recordings have exits. Otherwise most blocks would be empty.
fn is_spread_out(cells: &[Cells]) -> bool {
    let some = |cells: &Cells| tenths(&cells.counts).iter().filter(|&&count| count > 0.0).count();
    2 * cells.iter().map(some).sum::<usize>() >= BLOCKS * cells.len()
}

/// Welch's interval, relative to the difference of two logarithms, from the variance and degrees of freedom of each.
fn offset(sides: [(f64, f64); 2]) -> Option<Interval> {
    student::Error::welch(sides).interval(0.0)
}

/// The estimate by Welch, from the variance and degrees of freedom of each side's logarithm.
fn by_welch(sides: [Option<(f64, f64)>; 2], centre: f64, change: RelativeChange, basis: Basis) -> Estimate {
    let [before, after] = sides;
    let log = before.zip(after).and_then(|(before, after)| offset([before, after]));
    match log {
        Some(log) => Estimate::new(change, log.moved(centre), basis),
        None => Estimate::without_interval(change),
    }
}

/// The squared coefficient of variation.
fn variation(times: &HandlingTime) -> Option<f64> {
    let mean = times.mean_ns().filter(|&mean| mean > 0.0)?;
    Some((times.standard_deviation_ns()? / mean).powi(2))
}

impl Time {
    /// The number of cells of all recordings.
    pub(super) fn cell_count(&self) -> usize {
        self.grids.iter().map(super::cells::Grid::len).sum()
    }
}
