//! Simulated studies: the coverage of the intervals, and the false alarms of the gates.
//!
//! The methods that were not chosen are simulated too. `cargo test -p study --test all -- study_coverage
//! --nocapture` prints the tables of `stats::contrast`.

use host::Fingerprint;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Poisson, StandardNormal, StudentT};
use stats::contrast::interval_of_changes;
use stats::student::{Error, Moments};
use stats::{Contrast, Interval, Scale, percent};
use study::analysis::synthetic::{Made, study};
use study::analysis::{Findings, analyse};
use study::plan::LEAST_FOR_WIDTH;
use study::{Run, Unit};

const STUDIES: usize = 600;
const TRUE_PERCENT: f64 = 2.0;
const RESAMPLES: usize = 200;

/// Noise of the logarithm of one run's figure.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// Standard deviation of a run, in the baseline and in the arm.
    run: [f64; 2],
    /// Degrees of freedom of its distribution; `None` is normal.
    tails: Option<f64>,
    /// Standard deviation of a block's effect that its arms share.
    block: f64,
    /// Standard deviation of a block's effect on one arm only.
    to_one_arm: f64,
}

const USUAL: Scenario =
    Scenario { name: "blocks differ", run: [0.03; 2], tails: None, block: 0.1, to_one_arm: 0.0 };

const SCENARIOS: [Scenario; 5] = [
    USUAL,
    Scenario { name: "blocks are alike", block: 0.0, ..USUAL },
    Scenario { name: "one arm four times noisier", run: [0.01, 0.04], ..USUAL },
    Scenario { name: "heavy tails (t, 3 degrees)", tails: Some(3.0), ..USUAL },
    Scenario { name: "the arms differ by block", to_one_arm: 0.03, ..USUAL },
];

/// Simulates the logarithms of a figure, for both arms in each block.
fn simulated(scenario: Scenario, blocks: usize, random: &mut ChaCha8Rng) -> Vec<[f64; 2]> {
    (0..blocks)
        .map(|_| {
            let block = scenario.block * normal(random);
            let to_one_arm = scenario.to_one_arm * normal(random);
            let mut run = |arm: usize| {
                let own = match scenario.tails {
                    None => normal(random),
                    Some(freedom) => StudentT::new(freedom).unwrap().sample(random),
                };
                block + scenario.run[arm] * own
            };
            [run(0), (TRUE_PERCENT / 100.0).ln_1p() + to_one_arm + run(1)]
        })
        .collect()
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    random.sample(StandardNormal)
}

fn steps(blocks: &[[f64; 2]]) -> Vec<f64> {
    blocks.iter().map(|block| block[1] - block[0]).collect()
}

/// The interval that the analysis gives for a study with these figures.
fn chosen(blocks: &[[f64; 2]], _: &mut ChaCha8Rng) -> Interval {
    let findings = findings_of(blocks);
    findings.figures[0].points[0].comparisons[0].change.unwrap().interval.unwrap()
}

fn findings_of(blocks: &[[f64; 2]]) -> Findings {
    with_values(blocks, |run, value| {
        run.guests[0].truncate(1);
        run.guests[0][0].value = 1e8 * value.exp();
        run.host.clear();
    })
}

/// A study of these blocks, whose runs get their values by `set`.
fn with_values(blocks: &[[f64; 2]], set: impl Fn(&mut Run, f64)) -> Findings {
    let mut collected = study(&Made {
        blocks: blocks.len() as u32,
        counts: vec![1],
        workloads: vec!["pread"],
        ..Made::default()
    });
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let arm = usize::from(run.cell.arm["apicv"] == "on");
        set(run, blocks[run.cell.block as usize][arm]);
        // Drop the facts: comparing equal ones only takes time.
        run.fingerprint = Fingerprint::default();
        run.guest_facts.clear();
    }
    analyse(&collected, false).unwrap()
}

fn bootstrap(blocks: &[[f64; 2]], random: &mut ChaCha8Rng) -> Interval {
    let steps = steps(blocks);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            (0..steps.len()).map(|_| steps[random.random_range(0..steps.len())]).sum::<f64>()
                / steps.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |fraction: f64| means[(fraction * (RESAMPLES - 1) as f64).round() as usize];
    Interval { low: at(0.025), high: at(0.975) }.map(percent)
}

/// The interval if pairing is ignored.
fn not_paired(blocks: &[[f64; 2]], _: &mut ChaCha8Rng) -> Interval {
    let [before, after] =
        [0, 1].map(|arm| Moments::of(&blocks.iter().map(|block| block[arm]).collect::<Vec<_>>()).unwrap());
    let error = Error::welch([before, after].map(|side| (side.error().error.powi(2), side.error().freedom)));
    error.interval(after.mean - before.mean).unwrap().map(percent)
}

/// The share of intervals that contain the truth, in percent, and their median width in percentage points.
fn coverage(
    method: fn(&[[f64; 2]], &mut ChaCha8Rng) -> Interval,
    scenario: Scenario,
    blocks: usize,
) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut held = 0;
    let mut widths: Vec<f64> = (0..STUDIES)
        .map(|_| {
            let interval = method(&simulated(scenario, blocks, &mut random), &mut random);
            held += usize::from(interval.holds(TRUE_PERCENT));
            interval.width()
        })
        .collect();
    widths.sort_unstable_by(f64::total_cmp);
    (100.0 * held as f64 / STUDIES as f64, widths[STUDIES / 2])
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    println!("| scenario | blocks | pairs, t (chosen) | percentile bootstrap | not paired, Welch |");
    for scenario in SCENARIOS {
        for blocks in [3, 4, 8] {
            let (held, width) = coverage(chosen, scenario, blocks);
            let (held_bootstrap, width_bootstrap) = coverage(bootstrap, scenario, blocks);
            let (held_not, width_not) = coverage(not_paired, scenario, blocks);
            println!(
                "| {} | {blocks} | {held:.0} % ({width:.1}) | {held_bootstrap:.0} % ({width_bootstrap:.1}) | \
                 {held_not:.0} % ({width_not:.1}) |",
                scenario.name
            );
            assert!((92.5..=98.5).contains(&held), "{}, {blocks} blocks: {held} %", scenario.name);
        }
    }
}

/// The simulation is able to detect a method whose intervals are too narrow.
#[test]
fn an_interval_that_is_too_sure_of_itself_is_caught() {
    assert!(coverage(bootstrap, USUAL, 3).0 < 85.0);
}

/// The distribution of event counts: a rate that varies from block to block and from run to run, and chance.
struct Counts {
    /// Expected events of a run, in the baseline and in the arm.
    expected: [f64; 2],
    /// Standard deviations of the logarithm of the rate: of a block, and of a run.
    scatter: [f64; 2],
}

impl Counts {
    fn simulated(&self, blocks: usize, random: &mut ChaCha8Rng) -> Vec<[f64; 2]> {
        (0..blocks)
            .map(|_| {
                let block = self.scatter[0] * normal(random);
                self.expected.map(|expected| {
                    // Correct the mean of the log-normal distribution to the expected value.
                    let [of_block, of_run] = self.scatter.map(|scatter| scatter.powi(2) / 2.0);
                    let run = self.scatter[1] * normal(random);
                    let rate: f64 = expected * (block - of_block + run - of_run).exp();
                    if rate > 0.0 { Poisson::new(rate).unwrap().sample(random) } else { 0.0 }
                })
            })
            .collect()
    }
}

/// The comparison of a host figure with these numbers of events, each in two seconds.
fn of_counts(blocks: &[[f64; 2]]) -> Contrast {
    let findings = with_values(blocks, |run, events| {
        run.guests[0].clear();
        run.host.truncate(1);
        let metric = &mut run.host[0];
        metric.name = "accesses.port".to_owned();
        metric.unit = Unit::PerSecond;
        metric.value = events / 2.0;
        run.took = 2.0;
    });
    findings.figures[0].points[0].comparisons[0].change.unwrap()
}

/// For arms with the same rate of few or no events: the share of significant differences, and the coverage of the
/// interval. For an arm without events: the share of significant differences.
#[test]
fn counts_of_few_and_none_are_as_sure_as_they_say() {
    println!("| expected | scatter | blocks | held | p below 0.05 |");
    let mut random = ChaCha8Rng::seed_from_u64(11);
    for scatter in [[0.0; 2], [0.3, 0.1], [0.5, 0.5]] {
        for expected in [0.7, 3.0, 12.0] {
            for blocks in [3, 4, 8] {
                let counts = Counts { expected: [expected; 2], scatter };
                let (mut held, mut below) = (0, 0);
                for _ in 0..STUDIES {
                    let change = of_counts(&counts.simulated(blocks, &mut random));
                    held += usize::from(change.interval.unwrap().holds_zero());
                    below += usize::from(change.p_value.unwrap() < 0.05);
                }
                let percent = |count: usize| 100.0 * count as f64 / STUDIES as f64;
                println!(
                    "| {expected} | {scatter:?} | {blocks} | {:.1} % | {:.1} % |",
                    percent(held),
                    percent(below)
                );
                assert!(percent(held) > 93.0, "{expected} {scatter:?} {blocks}: {held}");
                assert!(percent(below) < 6.5, "{expected} {scatter:?} {blocks}: {below}");
            }
        }
    }
    for (expected, scatter) in [(20.0, [0.3, 0.3]), (200.0, [0.5, 0.5])] {
        let counts = Counts { expected: [expected, 0.0], scatter };
        let seen = (0..STUDIES).filter(|_| {
            let change = of_counts(&counts.simulated(3, &mut random));
            change.p_value.unwrap() < 0.05 && !change.interval.unwrap().holds_zero()
        });
        let seen = 100.0 * seen.count() as f64 / STUDIES as f64;
        println!("gone from {expected}, {scatter:?}, 3 blocks: seen in {seen:.1} %");
        assert!(seen > 90.0, "{expected} {scatter:?}: {seen} %");
    }
}

/// The whole analysis of studies with equal arms: the number of comparisons with a p value below the level, and the
/// number that pass all gates.
#[test]
fn arms_that_are_alike_are_told_apart_no_more_often_than_the_level_says() {
    for blocks in [4, 6, 8] {
        let (mut made, mut below, mut found) = (0, 0, 0);
        for seed in 0..60 {
            let made_up = Made { is_aa: true, blocks, counts: vec![1, 2], seed, ..Made::default() };
            let alarms = analyse(&study(&made_up), false).unwrap().false_alarms.unwrap();
            made += alarms.comparisons;
            below += alarms.below;
            found += alarms.found;
        }
        let percent = |count: usize| 100.0 * count as f64 / made as f64;
        println!(
            "{blocks} blocks: {made} comparisons, {:.1} % below 0.05, {:.1} % pass all gates",
            percent(below),
            percent(found)
        );
        assert!(percent(below) < 6.5 && percent(found) < percent(below), "{blocks} blocks");
        assert!(below > 0);
    }
}

/// The share of intervals that contain the truth, in percent, for studies that end as soon as their interval is `width`
/// points wide, but not before `least` blocks.
fn coverage_where_width_ends_it(least: usize, width: f64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut held = 0;
    for _ in 0..STUDIES {
        let mut pairs: Vec<[f64; 2]> = Vec::new();
        let interval = loop {
            pairs.extend(simulated(USUAL, 1, &mut random).iter().map(|pair| pair.map(f64::exp)));
            if pairs.len() < least {
                continue;
            }
            let interval = interval_of_changes(&pairs, Scale::Ratio).unwrap();
            if interval.width() <= width || pairs.len() == 60 {
                break interval;
            }
        };
        held += usize::from(interval.holds(TRUE_PERCENT));
    }
    100.0 * held as f64 / STUDIES as f64
}

#[test]
fn a_study_that_ends_when_its_interval_is_narrow_holds_the_truth() {
    for width in [12.0, 7.0, 4.5] {
        let held = coverage_where_width_ends_it(LEAST_FOR_WIDTH as usize, width);
        let early = coverage_where_width_ends_it(3, width);
        println!("{width} points: {held:.1} % from {LEAST_FOR_WIDTH} blocks on, {early:.1} % from 3");
        assert!((92.0..=97.0).contains(&held), "{width}: {held}");
        assert!(early < held, "{width}: {early} from 3 blocks, {held} from {LEAST_FOR_WIDTH}");
    }
}
