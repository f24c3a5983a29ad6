//! The coverage of the 95 % interval in simulated experiments with a known true difference.
//!
//! Each scenario is a known kind of disturbance of runs. The two rejected methods are simulated too, to justify the choice:
//! `cargo test -p prove -- coverage --nocapture` prints the table of `difference.rs`.

use crate::{Pair, difference};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal, StandardNormal, StudentT};
use stats::student::Moments;
use stats::{Interval, percent, quantile};

const EXPERIMENTS: usize = 300;
const SAMPLES: usize = 25;
const OFF: f64 = 4720.0;
const TRUE_PERCENT: f64 = -30.0;
const RESAMPLES: usize = 400;

/// The noise of the logarithm of one run, in addition to that of its samples.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// Standard deviation of the run's own effect, off and on.
    run: [f64; 2],
    /// The degrees of freedom of that effect's Student distribution; `None` for a normal distribution.
    tails: Option<f64>,
    /// Standard deviation of the effect that a block's runs share.
    block: f64,
    /// The linear increase from the first run to the last.
    drift: f64,
    /// Standard deviation of the steps of a random walk, one step per run.
    walk: f64,
    /// Standard deviation of a block's effect on one arm only.
    interaction: f64,
}

const QUIET: Scenario = Scenario {
    name: "independent runs",
    run: [0.05, 0.05],
    tails: None,
    block: 0.0,
    drift: 0.0,
    walk: 0.0,
    interaction: 0.0,
};

const SCENARIOS: [Scenario; 5] = [
    QUIET,
    Scenario { name: "one arm noisier", run: [0.08, 0.02], ..QUIET },
    Scenario { name: "heavy tails (t, 3)", tails: Some(3.0), ..QUIET },
    Scenario { name: "blocks and a drift of 10 %", block: 0.1, drift: 0.1, ..QUIET },
    Scenario { name: "random walk", run: [0.02, 0.02], walk: 0.05, ..QUIET },
];

/// One experiment: the medians of its runs, as pairs of neighbours in blocks of Off, On, On, Off.
fn experiment(scenario: Scenario, blocks: u32, random: &mut ChaCha8Rng) -> Vec<Pair> {
    let truth = [OFF.ln(), OFF.ln() + (TRUE_PERCENT / 100.0_f64).ln_1p()];
    let runs = f64::from(4 * blocks - 1);
    let mut walk = 0.0;
    let mut pairs = Vec::new();
    for block in 0..blocks {
        let shared = scenario.block * normal(random);
        let to_one_arm = [0.0, scenario.interaction * normal(random)];
        let medians: Vec<f64> = [0, 1, 1, 0]
            .into_iter()
            .zip(4 * block..)
            .map(|(arm, position)| {
                walk += scenario.walk * normal(random);
                let own = match scenario.tails {
                    None => normal(random),
                    Some(freedom) => StudentT::new(freedom).unwrap().sample(random),
                };
                let drift = scenario.drift * f64::from(position) / runs;
                let centre = truth[arm] + shared + to_one_arm[arm] + walk + drift + scenario.run[arm] * own;
                median_of_samples(centre, random)
            })
            .collect();
        pairs.push(Pair { block, off: medians[0], on: medians[1] });
        pairs.push(Pair { block, off: medians[3], on: medians[2] });
    }
    pairs
}

fn median_of_samples(centre: f64, random: &mut ChaCha8Rng) -> f64 {
    let noise = Normal::new(centre, 0.1).unwrap();
    let mut samples: Vec<u64> = (0..SAMPLES).map(|_| noise.sample(random).exp().round() as u64).collect();
    samples.sort_unstable();
    quantile(&samples, 0.5).unwrap()
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    random.sample(StandardNormal)
}

fn chosen(pairs: &[Pair], _: &mut ChaCha8Rng) -> Interval {
    difference(pairs).unwrap().interval.unwrap()
}

/// Student's t with one replicate for each block instead of two.
fn whole_blocks(pairs: &[Pair], _: &mut ChaCha8Rng) -> Interval {
    let ratios: Vec<f64> = pairs
        .chunks(2)
        .map(|block| block.iter().map(|pair| (pair.on / pair.off).ln()).sum::<f64>() / 2.0)
        .collect();
    Moments::of(&ratios).unwrap().interval().unwrap().map(percent)
}

/// The percentile bootstrap: blocks are drawn with replacement, then each arm's runs within the block.
fn bootstrap(pairs: &[Pair], random: &mut ChaCha8Rng) -> Interval {
    let blocks: Vec<&[Pair]> = pairs.chunks(2).collect();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sum = 0.0;
            for _ in 0..blocks.len() {
                let block = blocks[random.random_range(0..blocks.len())];
                for _ in 0..block.len() {
                    let on = block[random.random_range(0..block.len())].on;
                    let off = block[random.random_range(0..block.len())].off;
                    sum += (on / off).ln();
                }
            }
            sum / pairs.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |fraction: f64| means[(fraction * (RESAMPLES - 1) as f64).round() as usize];
    Interval { low: at(0.025), high: at(0.975) }.map(percent)
}

/// The share of intervals in percent that contain the true difference, and their median width in percentage points.
fn coverage(
    method: fn(&[Pair], &mut ChaCha8Rng) -> Interval,
    scenario: Scenario,
    blocks: u32,
    seed: u64,
) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut widths = Vec::new();
    let mut held = 0;
    for _ in 0..EXPERIMENTS {
        let pairs = experiment(scenario, blocks, &mut random);
        let interval = method(&pairs, &mut random);
        held += usize::from(interval.holds(TRUE_PERCENT));
        widths.push(interval.width());
    }
    widths.sort_unstable_by(f64::total_cmp);
    (100.0 * held as f64 / EXPERIMENTS as f64, widths[EXPERIMENTS / 2])
}

fn row(scenario: Scenario, blocks: u32) -> f64 {
    let (held, width) = coverage(chosen, scenario, blocks, 1);
    let (held_blocks, width_blocks) = coverage(whole_blocks, scenario, blocks, 1);
    let (held_bootstrap, width_bootstrap) = coverage(bootstrap, scenario, blocks, 1);
    println!(
        "| {} | {blocks} | {held:.0} % ({width:.0}) | {held_blocks:.0} % ({width_blocks:.0}) \
         | {held_bootstrap:.0} % ({width_bootstrap:.0}) |",
        scenario.name
    );
    held
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    for scenario in SCENARIOS {
        for blocks in [2, 4, 8] {
            let held = row(scenario, blocks);
            assert!(
                (88.0..=99.0).contains(&held),
                "{}, {blocks} blocks: {held} % of the intervals hold the truth",
                scenario.name
            );
        }
    }
}

/// A known limit of the method, which its documentation states with these figures.
#[test]
fn blocks_that_treat_the_arms_differently_make_it_too_sure() {
    let scenario = Scenario { name: "the arms differ by block", interaction: 0.05, ..QUIET };
    for blocks in [2, 8] {
        let held = row(scenario, blocks);
        assert!((75.0..=95.0).contains(&held), "{blocks} blocks: {held} %");
    }
}

/// Tests the simulation itself: it detects a method that counts each sample as a run.
#[test]
fn an_interval_that_is_too_sure_of_itself_is_caught() {
    let too_sure = |pairs: &[Pair], _: &mut ChaCha8Rng| {
        let repeated: Vec<Pair> = (0..SAMPLES).flat_map(|_| pairs.to_vec()).collect();
        difference(&repeated).unwrap().interval.unwrap()
    };
    let (held, _) = coverage(too_sure, QUIET, 4, 1);
    assert!(held < 50.0, "{held}");
}
