//! The coverage of intervals and the false alarms of tests, by simulation.
//!
//! Each method is simulated with realistic numbers of samples. `cargo test -p stats --test coverage -- --nocapture` prints
//! the tables. An interval is nominal if it contains the true value in 93 to 97 of 100 cases. Cases with another coverage
//! are listed here one by one, and the method's documentation names them.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Binomial, Distribution, Exp, Poisson, StandardNormal, StudentT};
use stats::blocks::{Resampling, offsets};
use stats::contrast::{Count, between_counted, counted};
use stats::contrast::{interval_of_counts, interval_of_level, interval_of_mean};
use stats::contrast::{paired, unpaired};
use stats::student::{Error, Moments, ratio_variance};
use stats::{Contrast, Interval, LEVEL, Scale, holm, permutation, poisson, share};

/// The repeats of each simulation. The standard error of a share of 95 %, or of 5 %, is 0.3 %.
const REPEATS: usize = 4000;
const NOMINAL: std::ops::RangeInclusive<f64> = 93.0..=97.0;
/// The accepted false alarms: 5 % plus three standard errors.
const FALSE_ALARMS: f64 = 5.0 + 3.0 * 0.345;

fn seeded(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    random.sample(StandardNormal)
}

fn poisson_of(mean: f64, random: &mut ChaCha8Rng) -> f64 {
    if mean > 0.0 { Poisson::new(mean).unwrap().sample(random) } else { 0.0 }
}

/// Random figures with this mean and standard deviation. If `freedom` is given, they follow Student's distribution with
/// that many degrees of freedom, which has heavy tails.
fn figures(
    count: usize,
    mean: f64,
    deviation: f64,
    freedom: Option<f64>,
    random: &mut ChaCha8Rng,
) -> Vec<f64> {
    let figure = |_| match freedom {
        None => mean + deviation * normal(random),
        Some(freedom) => mean + deviation * StudentT::new(freedom).unwrap().sample(random),
    };
    (0..count).map(figure).collect()
}

/// The share in percent of repeats in which `holds` is true, among those in which it is not `None`.
fn percent(repeats: usize, mut holds: impl FnMut() -> Option<bool>) -> f64 {
    let all: Vec<bool> = (0..repeats).filter_map(|_| holds()).collect();
    assert!(all.len() * 2 > repeats, "{} of {repeats} say anything", all.len());
    100.0 * all.iter().filter(|&&held| held).count() as f64 / all.len() as f64
}

fn check(what: &str, held: f64, within: std::ops::RangeInclusive<f64>) {
    println!("{what}: {held:.1} % hold the truth");
    assert!(within.contains(&held), "{what}: {held} % of the intervals hold the truth");
}

fn check_alarms(what: &str, alarms: f64) {
    println!("{what}: {alarms:.1} % false alarms");
    assert!(alarms <= FALSE_ALARMS, "{what}: {alarms} % false alarms");
}

#[test]
fn intervals_of_a_mean_and_of_a_level() {
    let mut random = seeded(1);
    for count in [3, 5, 6, 10, 30] {
        let held = percent(REPEATS, || {
            interval_of_mean(&figures(count, 7.0, 2.0, None, &mut random)).map(|found| found.holds(7.0))
        });
        check(&format!("mean of {count}"), held, NOMINAL);
        let held = percent(REPEATS, || {
            let logarithms = figures(count, 2.0, 0.1, None, &mut random);
            Some(interval_of_level(&logarithms, Scale::Ratio)?.holds(2.0_f64.exp()))
        });
        check(&format!("level of {count}"), held, NOMINAL);
    }
    for count in [3, 5, 10] {
        let held = percent(REPEATS, || {
            interval_of_mean(&figures(count, 7.0, 2.0, Some(3.0), &mut random)).map(|found| found.holds(7.0))
        });
        check(&format!("mean of {count} with heavy tails"), held, 93.0..=98.0);
    }
}

/// The verdicts: the interval contains the true change (in percent), and the test reports a difference.
fn verdicts(found: Contrast, truth: f64) -> (bool, bool) {
    (found.interval.unwrap().holds(truth), found.p_value.unwrap() < LEVEL)
}

#[test]
fn contrasts_of_blocks() {
    let mut random = seeded(2);
    for (count, repeats) in [(3, REPEATS), (5, REPEATS), (6, REPEATS), (10, REPEATS), (16, 200)] {
        let mut alarms = 0;
        let held = percent(repeats, || {
            let steps = figures(count, 0.0, 0.05, None, &mut random);
            let (held, alarm) = verdicts(paired(&steps, Scale::Ratio, 1)?, 0.0);
            alarms += usize::from(alarm);
            Some(held)
        });
        if repeats == REPEATS {
            check(&format!("contrast of {count} blocks"), held, NOMINAL);
            check_alarms(&format!("contrast of {count} blocks"), 100.0 * alarms as f64 / repeats as f64);
        } else {
            // Drawing dealings at random is slow. With 200 repeats the standard error of a share of 5 % is 1.5 %.
            assert!(100 * alarms <= 10 * repeats, "{alarms} of {repeats}");
        }
    }
}

#[test]
fn contrasts_of_results_that_share_no_block() {
    let mut random = seeded(3);
    // The coverage with 3 against 10 is below nominal, and permutation tests have too many false alarms if the sides
    // scatter differently: see `unpaired` and `labels_p_value`.
    for (sizes, deviations, repeats, within, most_alarms) in [
        ([3, 3], [0.05, 0.05], REPEATS, 93.0..=98.0, 5.0),
        ([5, 5], [0.05, 0.05], REPEATS, NOMINAL, 5.0),
        ([10, 10], [0.05, 0.05], 200, 91.0..=99.0, 5.0),
        ([3, 10], [0.05, 0.05], 2000, 91.5..=97.0, 5.0),
        ([3, 3], [0.02, 0.08], REPEATS, NOMINAL, 5.0),
        ([5, 5], [0.02, 0.08], REPEATS, NOMINAL, 8.0),
        ([10, 10], [0.02, 0.08], 200, 91.0..=99.0, 7.0),
        ([3, 10], [0.08, 0.02], 2000, 91.5..=97.0, 14.0),
        ([3, 10], [0.02, 0.08], 2000, NOMINAL, 5.0),
    ] {
        let mut alarms = 0;
        let held = percent(repeats, || {
            let sides = [0, 1].map(|side| figures(sizes[side], 0.0, deviations[side], None, &mut random));
            let (held, alarm) = verdicts(unpaired(&sides[0], &sides[1], Scale::Ratio, 1)?, 0.0);
            alarms += usize::from(alarm);
            Some(held)
        });
        let what = format!("{sizes:?} without blocks, scatter {deviations:?}");
        check(&what, held, within);
        let alarms = 100.0 * alarms as f64 / repeats as f64;
        println!("{what}: {alarms:.1} % false alarms");
        let error = 3.0 * (5.0 * 95.0 / repeats as f64).sqrt();
        assert!(alarms <= most_alarms + error, "{what}: {alarms} %");
    }
}

/// Blocks of Off, On, On, Off give two pairs of neighbours each.
#[test]
fn pairs_of_neighbours_and_names_dealt_within_blocks() {
    let mut random = seeded(4);
    for (blocks, drift) in [(2, 0.0), (2, 0.1), (3, 0.1), (4, 0.0), (4, 0.1)] {
        let mut alarms = 0;
        let repeats = 2000;
        let held = percent(repeats, || {
            let runs: Vec<[f64; 4]> = (0..blocks)
                .map(|block| {
                    let at = |slot: usize| drift * (4 * block + slot) as f64 / (4 * blocks - 1) as f64;
                    let shared = 0.1 * normal(&mut random);
                    [0, 1, 2, 3].map(|slot| shared + at(slot) + 0.05 * normal(&mut random))
                })
                .collect();
            let pairs: Vec<f64> = runs.iter().flat_map(|run| [run[1] - run[0], run[2] - run[3]]).collect();
            let dealt: Vec<[f64; 4]> =
                runs.iter().map(|&[off, on, next, last]| [on, next, off, last]).collect();
            alarms += usize::from(permutation::blocks_p_value(&dealt, 1)? < LEVEL);
            Some(Moments::of(&pairs)?.interval()?.holds_zero())
        });
        check(&format!("{} pairs, drift {drift}", 2 * blocks), held, 93.0..=98.0);
        let alarms = 100.0 * alarms as f64 / repeats as f64;
        println!("{blocks} blocks dealt: {alarms:.1} % false alarms");
        assert!(alarms <= 5.0 + 3.0 * 0.49, "{blocks} blocks: {alarms} %");
    }
}

/// Rate ratios from sums over recordings.
#[test]
fn ratios_of_sums_over_recordings() {
    let mut random = seeded(5);
    for count in [3, 4, 10] {
        let held = percent(REPEATS, || {
            let mut side = |rate: f64| -> Vec<(f64, f64)> {
                let seconds = [8.0, 10.0, 12.0];
                let part = |at: usize| {
                    let over: f64 = seconds[at % 3];
                    (poisson_of(rate * over * (0.1 * normal(&mut random)).exp(), &mut random), over)
                };
                (0..count).map(part).collect()
            };
            let sides = [side(50.0), side(40.0)];
            let sums = sides
                .each_ref()
                .map(|side| side.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1)));
            let found = (sums[1].0 / sums[1].1 / (sums[0].0 / sums[0].1)).ln();
            let error = Error::welch([ratio_variance(&sides[0])?, ratio_variance(&sides[1])?]);
            Some(error.interval(found)?.holds(0.8_f64.ln()))
        });
        check(&format!("ratio of {count} recordings a side"), held, 93.0..=98.0);
    }
}

#[test]
fn counts_of_independent_events() {
    const REPEATS: usize = 2000;
    let mut random = seeded(6);
    // At least 95 of 100: counts are whole numbers, so the tails are rarely exactly 2.5 %.
    for (mean, within) in
        [(0.5, 95.0..=100.0), (3.0, 95.0..=99.0), (10.0, 95.0..=98.0), (100.0, NOMINAL), (1e4, NOMINAL)]
    {
        let held = percent(REPEATS, || {
            Some(poisson::count(poisson_of(mean, &mut random) as u64).interval().holds(mean))
        });
        check(&format!("a count of {mean}"), held, within);
    }
    for (mean, within) in [
        (1.0, 99.0..=100.0),
        (3.0, 97.0..=100.0),
        (10.0, 95.0..=99.0),
        (100.0, 94.0..=98.0),
        (999.0, NOMINAL),
        (3000.0, NOMINAL),
    ] {
        for ratio in [1.0, 0.3] {
            let mut alarms = 0;
            let held = percent(REPEATS, || {
                let [before, after] = [mean, mean * ratio].map(|mean| poisson_of(mean, &mut random));
                alarms += usize::from(poisson::p_value(before, after, f64::ln(ratio)) < LEVEL);
                Some(poisson::log_ratio(before, after).holds(f64::ln(ratio)))
            });
            let lowest = if ratio == 1.0 { *within.start() } else { within.start().min(95.0) };
            check(
                &format!("counts of {mean} and {ratio} times that"),
                held,
                lowest..=100.0_f64.min(*within.end() + 2.0),
            );
            check_alarms(&format!("counts of {mean}, ratio {ratio}"), 100.0 * alarms as f64 / REPEATS as f64);
        }
    }
}

#[test]
fn none_seen_is_at_most_the_bound() {
    // With the bound as the mean, no event is seen in 5 of 100 cases.
    assert!(((-poisson::upper_bound_of_none(1.0)).exp() - 0.05).abs() < 1e-12);
}

#[test]
fn shares() {
    let mut random = seeded(7);
    for (all, truth, within) in [
        (10, 0.1, 92.0..=99.0),
        (10, 0.5, 92.0..=99.0),
        (50, 0.02, 91.0..=99.0),
        (50, 0.3, NOMINAL),
        (1000, 0.02, NOMINAL),
        (1000, 0.3, NOMINAL),
    ] {
        let drawn = Binomial::new(all, truth).unwrap();
        let held = percent(REPEATS, || Some(share(drawn.sample(&mut random), all)?.interval().holds(truth)));
        check(&format!("a share of {truth} among {all}"), held, within);
    }
}

/// Counts of two seconds each, some of them 0. The rate scatters by block and by run, in addition to the Poisson noise.
fn counts(expected: [f64; 2], scatter: [f64; 2], blocks: usize, random: &mut ChaCha8Rng) -> [Vec<Count>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for _ in 0..blocks {
        let block = scatter[0] * normal(random) - scatter[0].powi(2) / 2.0;
        for (side, expected) in sides.iter_mut().zip(expected) {
            let run = scatter[1] * normal(random) - scatter[1].powi(2) / 2.0;
            side.push(Count { events: poisson_of(expected * (block + run).exp(), random), over: 2.0 });
        }
    }
    sides
}

#[test]
fn counts_of_few_and_none() {
    let mut random = seeded(8);
    for scatter in [[0.0; 2], [0.3, 0.1], [0.5, 0.5]] {
        for expected in [0.7, 3.0, 12.0, 100.0] {
            for (blocks, repeats) in [(3, 2000), (5, 2000), (6, 2000), (10, 1000)] {
                let mut alarms = 0;
                let mut levels = 0;
                let held = percent(repeats, || {
                    let [before, after] = counts([expected; 2], scatter, blocks, &mut random);
                    levels += usize::from(interval_of_counts(&before)?.holds(expected / 2.0));
                    let (held, alarm) = verdicts(counted(&before, &after, true, 1)?, 0.0);
                    alarms += usize::from(alarm);
                    Some(held)
                });
                let [alarms, levels] = [alarms, levels].map(|count| 100.0 * count as f64 / repeats as f64);
                println!(
                    "| {expected} | {scatter:?} | {blocks} | {held:.1} % | {alarms:.1} % | {levels:.1} % |"
                );
                let what = format!("counts of {expected}, scatter {scatter:?}, {blocks} blocks");
                let error = 3.0 * (5.0 * 95.0 / repeats as f64).sqrt();
                assert!(held >= 95.0 - error, "{what}: {held} % hold the truth");
                // The documentation of `interval_of_counts` has its lower coverage with much scatter.
                let least = if scatter[1] > 0.1 { 85.0 } else { 93.0 };
                assert!(
                    levels >= least - error,
                    "{what}: {levels} % of the intervals of one side hold the truth"
                );
                assert!(alarms <= 5.0 + error, "{what}: {alarms} % false alarms");
            }
        }
    }
}

/// A factor with the same effect on small counts in two results.
#[test]
fn changes_of_few_counts_that_share_no_block() {
    let mut random = seeded(14);
    for scatter in [[0.0; 2], [0.3, 0.1], [0.5, 0.5]] {
        for expected in [[1.0, 0.0], [3.0, 0.7], [20.0, 0.0], [100.0, 30.0]] {
            for (blocks, repeats) in [(3, 2000), (6, 1000), (10, 500)] {
                let mut alarms = 0;
                let held = percent(repeats, || {
                    let mut change = || {
                        let [before, after] = counts(expected, scatter, blocks, &mut random);
                        counted(&before, &after, true, 1)
                    };
                    let (held, alarm) = verdicts(between_counted(&change()?, &change()?), 0.0);
                    alarms += usize::from(alarm);
                    Some(held)
                });
                let what = format!("changes of {expected:?}, scatter {scatter:?}, {blocks} blocks");
                let error = 3.0 * (5.0 * 95.0 / repeats as f64).sqrt();
                check(&what, held, 95.0 - error..=100.0);
                let alarms = 100.0 * alarms as f64 / repeats as f64;
                assert!(alarms <= 5.0 + error, "{what}: {alarms} % false alarms");
            }
        }
    }
}

/// The purpose of the method: events that disappeared are distinguished from chance.
#[test]
fn what_is_gone_is_seen() {
    let mut random = seeded(9);
    for (expected, scatter) in [(20.0, [0.3, 0.3]), (200.0, [0.5, 0.5])] {
        let seen = percent(1000, || {
            let [before, after] = counts([expected, 0.0], scatter, 3, &mut random);
            let (held, told) = verdicts(counted(&before, &after, true, 1)?, 0.0);
            Some(told && !held)
        });
        println!("gone from {expected}, {scatter:?}, 3 blocks: seen in {seen:.1} %");
        assert!(seen > 90.0, "{expected} {scatter:?}: {seen} %");
    }
}

const CELLS: usize = 600;

type Load = fn(f64, &mut ChaCha8Rng) -> Vec<f64>;

fn steady(mean: f64, random: &mut ChaCha8Rng) -> Vec<f64> {
    (0..CELLS).map(|_| poisson_of(mean, random)).collect()
}

fn clumps(mean: f64, random: &mut ChaCha8Rng) -> Vec<f64> {
    const SIZE: f64 = 20.0;
    let mut cells = vec![0.0; CELLS];
    for _ in 0..poisson_of(mean * CELLS as f64 / SIZE, random) as usize {
        cells[random.random_range(0..CELLS)] += poisson_of(SIZE, random);
    }
    cells
}

fn on_and_off(mean: f64, random: &mut ChaCha8Rng) -> Vec<f64> {
    let mut on = random.random_bool(0.25);
    let mut cells = Vec::new();
    while cells.len() < CELLS {
        let lasts: f64 = Exp::new(if on { 0.2 } else { 1.0 / 15.0 }).unwrap().sample(random);
        let lasts = lasts.round().max(1.0);
        let rate = if on { 4.0 * mean } else { 0.0 };
        cells.extend((0..lasts as usize).map(|_| poisson_of(rate, random)));
        on = !on;
    }
    cells.truncate(CELLS);
    cells
}

fn drawn_in_blocks(sides: [&[f64]; 2], seed: u64) -> Option<Interval> {
    let draws = Resampling::new(&[CELLS], seed)?;
    let rates = sides.map(|cells| draws.sums(|_| cells));
    let [before, after] = sides.map(|cells| cells.iter().sum::<f64>());
    let found = (after / before).ln();
    Some(offsets((&draws, &rates[0]), (&draws, &rates[1]), found)?.moved(found))
}

#[test]
fn blocks_of_time() {
    const REPEATS: usize = 400;
    let mut random = seeded(10);
    for (name, load) in [("steady", steady as Load), ("clumps", clumps), ("on and off", on_and_off)] {
        let mut naive = 0;
        let held = percent(REPEATS, || {
            let (before, after) = (load(2.0, &mut random), load(1.6, &mut random));
            let sums = [&before, &after].map(|cells| cells.iter().sum::<f64>());
            naive += usize::from(poisson::log_ratio(sums[0], sums[1]).holds(0.8_f64.ln()));
            Some(drawn_in_blocks([&before, &after], random.random())?.holds(0.8_f64.ln()))
        });
        println!("{name}: {:.1} % of those that count events alone", 100.0 * naive as f64 / REPEATS as f64);
        // The standard error with 400 repeats is 1.1 %.
        check(&format!("{name} in blocks of time"), held, 92.0..=98.5);
    }
}

/// With Holm's correction, a family of comparisons of equal arms has a false alarm in 5 of 100 cases.
#[test]
fn families_of_comparisons() {
    let mut random = seeded(11);
    for family in [1, 10, 100] {
        let alarms = percent(REPEATS, || {
            let p_values: Vec<f64> = (0..family).map(|_| random.random()).collect();
            Some(holm(&p_values).into_iter().any(|p_value| p_value < LEVEL))
        });
        check_alarms(&format!("{family} comparisons by Holm"), alarms);
    }
}

/// Tests the simulation itself: it detects intervals that are too narrow.
#[test]
fn an_interval_that_is_too_sure_of_itself_is_caught() {
    let mut random = seeded(12);
    let held = percent(REPEATS, || {
        let moments = Moments::of(&figures(3, 0.0, 1.0, None, &mut random))?;
        let half = stats::normal::QUANTILE * moments.error().error;
        Some(Interval::around(moments.mean, half)?.holds_zero())
    });
    assert!(held < 85.0, "{held}");
    let held = percent(400, || {
        let sums = [2.0, 2.0].map(|mean| clumps(mean, &mut random).iter().sum::<f64>());
        Some(poisson::log_ratio(sums[0], sums[1]).holds_zero())
    });
    assert!(held < 50.0, "{held}");
}
