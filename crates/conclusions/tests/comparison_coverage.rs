//! The coverage of a comparison's 95 % intervals, with simulated recordings whose true change is known.
//!
//! `cargo test -p conclusions --test comparison_coverage -- --nocapture` prints the shares.

use conclusions::RelativeChange;
use conclusions::profile_comparison::{Basis, ComparisonOptions, Estimate, ProfileComparison};
use exits::{ExitReason, Profile, SeriesKey, Slice, Span, Vcpu};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal, Poisson};

const EXPERIMENTS: u32 = 250;
const CELLS: usize = 600;
const WIDTH_NS: u64 = 1 << 20;
const REASON: ExitReason = ExitReason::svm(0x7c);
/// The true ratio of the rates, after to before. The mean times do not change.
const RATIO: f64 = 0.8;

/// A function that returns the exits of each cell, given their mean per cell.
type Load = fn(f64, &mut ChaCha8Rng) -> Vec<u64>;

fn poisson(mean: f64, random: &mut ChaCha8Rng) -> u64 {
    if mean <= 0.0 { 0 } else { Poisson::new(mean).unwrap().sample(random) as u64 }
}

fn steady(mean: f64, random: &mut ChaCha8Rng) -> Vec<u64> {
    (0..CELLS).map(|_| poisson(mean, random)).collect()
}

fn clumps(mean: f64, random: &mut ChaCha8Rng) -> Vec<u64> {
    const SIZE: f64 = 20.0;
    let mut cells = vec![0; CELLS];
    for _ in 0..poisson(mean * CELLS as f64 / SIZE, random) {
        cells[random.random_range(0..CELLS)] += poisson(SIZE, random);
    }
    cells
}

fn on_and_off(mean: f64, random: &mut ChaCha8Rng) -> Vec<u64> {
    const ON: f64 = 5.0;
    const OFF: f64 = 15.0;
    let mut on = random.random_bool(ON / (ON + OFF));
    let mut cells = Vec::new();
    while cells.len() < CELLS {
        let lasts = Exp::new(1.0 / if on { ON } else { OFF }).unwrap().sample(random).round().max(1.0);
        let rate = if on { mean * (ON + OFF) / ON } else { 0.0 };
        cells.extend((0..lasts as usize).map(|_| poisson(rate, random)));
        on = !on;
    }
    cells.truncate(CELLS);
    cells
}

fn recording(cells: &[u64], random: &mut ChaCha8Rng) -> Profile {
    let mut profile = Profile::new();
    profile.span = Some(Span { first_ns: 0, last_ns: CELLS as u64 * WIDTH_NS });
    let times = LogNormal::new(7.0, 1.0).unwrap();
    let vcpu = Vcpu { vm: Some(1), number: Some(0), thread: Some(2) };
    let series = profile.timeline.series(SeriesKey { vm: vcpu.vm, reason: REASON });
    for (&count, at) in cells.iter().zip(0..) {
        let mut slice = Slice { count, handling_ns: 0 };
        let row = profile.vcpu(vcpu).reasons.entry(REASON).or_default();
        row.count += count;
        for _ in 0..count {
            let ns = times.sample(random) as u64;
            row.handling.add(ns);
            slice.handling_ns += ns;
        }
        profile.timeline.add(series, at * WIDTH_NS, slice);
    }
    profile
}

#[derive(Debug, Default)]
struct Shares {
    rate: f64,
    time: f64,
    mean: f64,
    /// The coverage of the interval that assumes independent exits.
    naive: f64,
    blocks: f64,
}

/// Tests whether the interval contains the true change; `None` without an interval.
fn holds(estimate: Option<Estimate>, ratio: f64) -> Option<bool> {
    let truth = (ratio - 1.0) * 100.0;
    let interval = estimate?.interval?;
    Some(interval.holds(truth))
}

/// The share of intervals in percent that contain the true change.
fn share(held: &[Option<bool>]) -> f64 {
    let intervals = held.iter().flatten().count();
    100.0 * held.iter().filter(|&&held| held == Some(true)).count() as f64 / intervals as f64
}

fn shares(load: Load, mean: f64, seed: u64) -> Shares {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let [mut rate, mut time, mut mean_time, mut naive, mut blocks] = [const { Vec::new() }; 5];
    for _ in 0..EXPERIMENTS {
        let (before, after) = (load(mean, &mut random), load(mean * RATIO, &mut random));
        let counts = [&before, &after].map(|cells| cells.iter().sum::<u64>() as f64);
        let [before, after] = [before, after].map(|cells| recording(&cells, &mut random));
        let options = ComparisonOptions { seed, ..ComparisonOptions::default() };
        let found = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &options);
        let Some(row) = found.rows.first() else { continue };
        rate.push(holds(Some(row.rate), RATIO));
        time.push(holds(row.time, RATIO));
        mean_time.push(holds(row.mean, 1.0));
        let half = 1.96 * (1.0 / counts[0] + 1.0 / counts[1]).sqrt();
        naive.push(Some(((counts[1] / counts[0]).ln() - RATIO.ln()).abs() <= half));
        blocks.push(Some(matches!(row.rate.basis, Some(Basis::Blocks { .. }))));
    }
    let [rate, time, mean_time, naive, blocks] =
        [rate, time, mean_time, naive, blocks].map(|held| share(&held));
    let shares = Shares { rate, time, mean: mean_time, naive, blocks };
    println!("mean {mean}: {shares:.1?}");
    shares
}

#[test]
fn independent_exits_are_covered() {
    let shares = shares(steady, 2.0, 11);
    assert!((92.0..=99.0).contains(&shares.rate), "{shares:?}");
    assert!((91.0..=99.5).contains(&shares.time), "{shares:?}");
    assert!((91.0..=99.5).contains(&shares.mean), "{shares:?}");
    assert_eq!(shares.blocks.round(), 100.0);
}

#[test]
fn clumps_are_covered_where_counting_exits_alone_fails() {
    let shares = shares(clumps, 2.0, 12);
    assert!((91.0..=99.0).contains(&shares.rate), "{shares:?}");
    assert!((91.0..=99.5).contains(&shares.time), "{shares:?}");
    assert!(shares.naive < 50.0, "{shares:?}");
    assert!(shares.blocks > 90.0, "{shares:?}");
}

#[test]
fn a_load_that_comes_and_goes_is_covered_where_counting_exits_alone_fails() {
    let shares = shares(on_and_off, 2.0, 13);
    assert!((90.0..=99.0).contains(&shares.rate), "{shares:?}");
    assert!((90.0..=99.5).contains(&shares.time), "{shares:?}");
    assert!(shares.naive < 40.0, "{shares:?}");
}

#[test]
fn few_exits_are_covered_in_clumps_or_not() {
    let alone = shares(steady, 0.04, 14);
    assert!((93.0..=100.0).contains(&alone.rate), "{alone:?}");
    let clumped = shares(clumps, 0.2, 15);
    assert!((93.0..=100.0).contains(&clumped.rate), "{clumped:?}");
    assert!(clumped.naive < 50.0, "{clumped:?}");
    assert!(alone.blocks + clumped.blocks < 50.0);
}

/// The dispersion of a busy side is too coarse for a side with few exits, whose own counts are used.
#[test]
fn few_exits_against_many_are_covered_and_not_lost_in_width() {
    let mut random = ChaCha8Rng::seed_from_u64(17);
    for (few, narrow) in [(0.005, false), (0.05, true)] {
        let (mut held, mut widths) = (Vec::new(), Vec::new());
        for _ in 0..EXPERIMENTS {
            let (before, after) = (on_and_off(4.0, &mut random), on_and_off(few, &mut random));
            let [before, after] = [before, after].map(|cells| recording(&cells, &mut random));
            let options = ComparisonOptions::default();
            let found = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &options);
            held.push(holds(Some(found.total.rate), few / 4.0));
            let interval = found.total.rate.interval.unwrap();
            widths.push(interval.width());
        }
        widths.sort_unstable_by(f64::total_cmp);
        let median = widths[widths.len() / 2];
        println!("{few}: {:.1} %, {median:.2} percentage points wide", share(&held));
        assert!((92.0..=100.0).contains(&share(&held)), "{few}: {}", share(&held));
        assert!(!narrow || median < 3.0, "{median}");
    }
}

#[test]
fn three_recordings_a_side_cover_what_differs_from_run_to_run() {
    let mut random = ChaCha8Rng::seed_from_u64(16);
    let run = LogNormal::new(0.0, 0.1).unwrap();
    let (mut held, mut held_by_one) = (0, 0);
    for _ in 0..EXPERIMENTS {
        let side = |ratio: f64, random: &mut ChaCha8Rng| -> Vec<Profile> {
            let runs = (0..4).map(|_| steady(4.0 * ratio * run.sample(random), random));
            runs.collect::<Vec<_>>().iter().map(|cells| recording(cells, random)).collect()
        };
        let (before, after) = (side(1.0, &mut random), side(RATIO, &mut random));
        let compare = |runs: usize| {
            let [before, after] =
                [&before, &after].map(|side| side[..runs].iter().map(Into::into).collect::<Vec<_>>());
            ProfileComparison::new(&before, &after, &ComparisonOptions::default())
        };
        let (all, one) = (compare(4), compare(1));
        assert!(matches!(all.total.rate.basis, Some(Basis::Recordings { before: 4, after: 4 })));
        assert!(matches!(all.total.rate.change, RelativeChange::Percent(_)));
        held += u32::from(holds(Some(all.total.rate), RATIO) == Some(true));
        held_by_one += u32::from(holds(Some(one.total.rate), RATIO) == Some(true));
    }
    println!("four runs: {held}, one run: {held_by_one} of {EXPERIMENTS}");
    assert!((0.91..=0.99).contains(&(f64::from(held) / f64::from(EXPERIMENTS))), "{held}");
    // The documented limit: a single recording on each side does not show the variation between runs.
    assert!(f64::from(held_by_one) < 0.6 * f64::from(EXPERIMENTS), "{held_by_one}");
}
