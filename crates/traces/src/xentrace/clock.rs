//! Converts TSC ticks to nanoseconds.

/// The frequency that `xenalyze` assumes by default.
pub(super) const ASSUMED_HZ: u64 = 2_400_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// A clock with a constant rate, as the TSC has on every x86 CPU with which Xen runs guests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// Nanoseconds per tick: the integer part, and the fraction in units of 2^-64.
    whole: u64,
    rest: u64,
}

impl Clock {
    /// The clock for a frequency in Hz; zero is treated as one.
    pub(super) fn new(hz: u64) -> Self {
        let hz = hz.max(1);
        let rest = (u128::from(NS_PER_S % hz) << 64).div_ceil(u128::from(hz));
        // Fits: only rounding up could reach 2^64, which is impossible because the remainder is less than `hz`.
        Self { whole: NS_PER_S / hz, rest: u64::try_from(rest).unwrap_or(u64::MAX) }
    }

    /// Nanoseconds since the counter was zero; monotonic in `ticks`.
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        let part = (u128::from(ticks) * u128::from(self.rest)) >> 64;
        let sum = u128::from(ticks) * u128::from(self.whole) + part;
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}

/// Compares times that the scheduler measured in nanoseconds with ticks.
///
/// `TRC_SCHED_SWITCH_INFPREV` and `TRC_SCHED_SWITCH_INFCONT` have the time for which a vCPU has been running, in
/// nanoseconds (`schedule` in `xen/common/sched/core.c`); the records of the vCPU's start and of this event have
/// ticks.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    ns: u64,
    hz: f64,
}

/// Shorter times are too inaccurate, because the clock is not read at the same moment as the record's ticks.
const SHORTEST_NS: u32 = 500_000;
/// Plausible frequencies: the nanoseconds have only 32 bits, so longer times wrap and give nonsense.
const RATES_HZ: std::ops::Range<f64> = 0.4e9..8e9;
/// The total time and the number of samples that are needed for an estimate.
const LEAST_NS: u64 = 20_000_000;
const LEAST_SAMPLES: usize = 8;
/// The largest relative difference of a sample that agrees with the estimate. Half of the time must agree.
const AGREEMENT: f64 = 0.02;

impl Comparison {
    /// Adds a time for which a vCPU ran.
    pub(super) fn add(&mut self, ns: u32, ticks: u64) {
        let hz = ticks as f64 / f64::from(ns) * NS_PER_S as f64;
        if ns >= SHORTEST_NS && RATES_HZ.contains(&hz) {
            self.samples.push(Sample { ns: u64::from(ns), hz });
        }
    }

    /// The frequency in Hz with an error of about 1 %; `None` if there are not enough samples, or they disagree.
    pub(super) fn frequency(mut self) -> Option<u64> {
        let total: u64 = self.samples.iter().map(|sample| sample.ns).sum();
        if self.samples.len() < LEAST_SAMPLES || total < LEAST_NS {
            return None;
        }
        self.samples.sort_by(|one, other| one.hz.total_cmp(&other.hz));
        let mut below = 0;
        let middle = self.samples.iter().find(|sample| {
            below += sample.ns;
            below * 2 >= total
        })?;
        let agrees = |sample: &&Sample| (sample.hz / middle.hz - 1.0).abs() < AGREEMENT;
        let agreed: u64 = self.samples.iter().filter(agrees).map(|sample| sample.ns).sum();
        (agreed * 2 >= total).then_some(middle.hz as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tick_of_a_nanosecond_is_exact() {
        let clock = Clock::new(NS_PER_S);
        assert_eq!([0, 1, u64::MAX].map(|ticks| clock.ns(ticks)), [0, 1, u64::MAX]);
    }

    #[test]
    fn strange_frequencies_saturate() {
        assert_eq!(Clock::new(0).ns(u64::MAX), u64::MAX);
        assert_eq!(Clock::new(u64::MAX).ns(u64::MAX), NS_PER_S);
    }

    proptest! {
        #[test]
        fn as_exact_division_to_a_nanosecond(ticks: u64, hz in 1..10_000_000_000u64) {
            let exact = u128::from(ticks) * u128::from(NS_PER_S) / u128::from(hz);
            let exact = u64::try_from(exact).unwrap_or(u64::MAX);
            prop_assert!(Clock::new(hz).ns(ticks).abs_diff(exact) <= 1);
        }

        #[test]
        fn time_never_goes_back(ticks in 0..u64::MAX, hz in 1..10_000_000_000u64) {
            let clock = Clock::new(hz);
            prop_assert!(clock.ns(ticks) <= clock.ns(ticks + 1));
        }
    }

    fn compared(samples: impl IntoIterator<Item = (u32, f64)>) -> Option<u64> {
        let mut comparison = Comparison::default();
        for (ns, ghz) in samples {
            comparison.add(ns, (f64::from(ns) * ghz) as u64);
        }
        comparison.frequency()
    }

    #[test]
    fn the_middle_of_what_the_scheduler_says() {
        let mut samples: Vec<_> = (0..20).map(|n| (3_000_000, 2.1 + f64::from(n - 10) / 1e4)).collect();
        // A time of more than 32 bits, a short one, and one from before the clock was set.
        samples.extend([(90_000_000, 0.002), (1_000, 3.0), (4_000_000_000, 100.0)]);
        let hz = compared(samples.clone()).unwrap();
        assert!(hz.abs_diff(2_100_000_000) < 1_000_000, "{hz}");
        assert_eq!(compared(samples[..5].to_vec()), None);
        assert_eq!(compared((0..10).map(|_| (600_000, 2.1))), None);
        let scattered = (0..20).map(|n| (3_000_000, 0.5 + f64::from(n) / 4.0));
        assert_eq!(compared(scattered), None);
    }
}
