//! Conversion between a guest's clocks and the host's.

/// The number of measurements; the one with the shortest round trip is used.
const QUESTIONS: u32 = 5;

/// The resolution of /proc/uptime, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// The guest's clock minus the host's CLOCK_MONOTONIC, and the largest error of this difference, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockDifference {
    ns: i128,
    error_ns: u64,
}

impl ClockDifference {
    /// Reads the guest's time several times. The guest reads its clock between request and answer, so the error is at
    /// most half of the shortest round trip.
    pub(super) fn measure(mut ask: impl FnMut() -> Result<u64, String>) -> Result<Self, String> {
        let mut best: Option<Self> = None;
        for _ in 0..QUESTIONS {
            let before = live::monotonic_ns();
            let guest = ask()?;
            let took = live::monotonic_ns().saturating_sub(before);
            let ns = i128::from(guest) - i128::from(before) - i128::from(took / 2);
            let error_ns = took.div_ceil(2);
            if best.is_none_or(|best| error_ns < best.error_ns) {
                best = Some(Self { ns, error_ns });
            }
        }
        best.ok_or_else(|| "no question was asked".to_owned())
    }

    /// Converts a time of the host to the guest's clock.
    pub(super) fn guest(self, host_ns: u64) -> u64 {
        u64::try_from((i128::from(host_ns) + self.ns).max(0)).unwrap_or(u64::MAX)
    }

    /// Converts a time of the guest to the host's clock.
    pub(super) fn host(self, guest_ns: u64) -> u64 {
        u64::try_from((i128::from(guest_ns) - self.ns).max(0)).unwrap_or(u64::MAX)
    }
}

/// A guest's real time, which can be set at any moment, between two readings of its uptime, which cannot. In
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    before: u64,
    real: u64,
    after: u64,
}

/// The time between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Elapsed {
    pub(super) ns: u64,
    /// The real time was set in between, so this is the difference of uptimes.
    pub(super) set: bool,
}

impl Reading {
    /// Reads `UPTIME TIME UPTIME`, where uptimes are as in /proc/uptime.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let [before, real, after] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
        // /proc/uptime always has two digits after the point.
        let uptime = |text: &str| text.replace('.', "").parse::<u64>().ok()?.checked_mul(TICK_NS);
        Some(Self { before: uptime(before)?, real: real.parse().ok()?, after: uptime(after)? })
    }

    /// The time since an earlier reading: by the real time, which is finer, unless the uptimes contradict it.
    pub(super) fn since(self, earlier: Self) -> Elapsed {
        let least = self.before.saturating_sub(earlier.after.saturating_add(TICK_NS));
        let most = self.after.saturating_add(TICK_NS).saturating_sub(earlier.before);
        let real = self.real.checked_sub(earlier.real).filter(|real| (least..=most).contains(real));
        Elapsed { ns: real.unwrap_or(least.midpoint(most)), set: real.is_none() }
    }
}

/// The start and the end of a script by the host's clock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// The guest's real time was set after the measurement of [`ClockDifference`].
    pub(super) set: bool,
}

impl ClockDifference {
    /// The times of a script that read its start time at `told`. By the host's clock, the start time was sent at
    /// `sent_ns`, and the script was known to have ended at `over_ns`, so its times are limited to that range.
    pub(super) fn times(
        self,
        [told, began]: [Reading; 2],
        ended: Option<Reading>,
        (sent_ns, over_ns): (u64, u64),
    ) -> Times {
        let waited = began.since(told);
        // If the script did not report its end, the host's time has to do.
        let took = ended.map_or(Elapsed::default(), |ended| ended.since(began));
        let supposed = self.host(told.real);
        let told_ns = supposed.min(over_ns.saturating_sub(waited.ns.saturating_add(took.ns))).max(sent_ns);
        let began_ns = told_ns.saturating_add(waited.ns).min(over_ns);
        let ended_ns = ended.map_or(over_ns, |_| began_ns.saturating_add(took.ns).min(over_ns));
        // Without being set, each clock drifts by up to 500 ppm (adjtimex(2)).
        let doubt = self.error_ns.saturating_add(took.ns / 1000).saturating_add(TICK_NS);
        Times { began_ns, ended_ns, set: waited.set || took.set || supposed.abs_diff(told_ns) > doubt }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_turned_there_and_back() {
        let ahead = 1_700_000_000_000_000_000;
        let clock = ClockDifference::measure(|| Ok(live::monotonic_ns() + ahead)).unwrap();
        let now = live::monotonic_ns();
        assert_eq!(clock.host(clock.guest(now)), now);
        assert!(clock.guest(now).abs_diff(now + ahead) < 1_000_000_000);
        assert_eq!(clock.host(0), 0);
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_a_guest_says_of_its_clocks_is_read() {
        let reading = Reading::parse("12.07 1700000000000000001 12.08");
        assert_eq!(
            reading,
            Some(Reading { before: 12_070_000_000, real: 1_700_000_000_000_000_001, after: 12_080_000_000 })
        );
        for text in ["", "12.07 5", "12.07 x 12.08", "1 2 3 4", "99999999999999999999.00 1 1.00"] {
            assert_eq!(Reading::parse(text), None, "{text}");
        }
    }

    /// A reading at a second after the guest's boot, with the real time `ahead` of the uptime.
    fn at(second: u64, ahead: u64) -> Reading {
        Reading { before: second * SECOND, real: second * SECOND + ahead, after: second * SECOND + TICK_NS }
    }

    #[test]
    fn a_script_took_what_the_uptime_says_if_the_clock_was_set() {
        let clock = ClockDifference { ns: 0, error_ns: 0 };
        let times = |ahead: [u64; 3], sent, over| {
            let [told, began, ended] = [at(100, ahead[0]), at(101, ahead[1]), at(111, ahead[2])];
            let times = clock.times([told, began], Some(ended), (sent * SECOND, over * SECOND));
            (times.began_ns, times.ended_ns, times.set)
        };
        let fine = 1_234_567;
        assert_eq!(
            times([0, fine, 2 * fine], 99, 112),
            (101 * SECOND + fine, 111 * SECOND + 2 * fine, false)
        );
        assert_eq!(times([7 * SECOND; 3], 107, 119), (108 * SECOND, 118 * SECOND, false));
        assert_eq!(times([3 * SECOND, 3 * SECOND, 0], 99, 120), (104 * SECOND, 114 * SECOND, true));
        assert_eq!(times([0, 0, 50 * SECOND], 99, 112), (101 * SECOND, 111 * SECOND, true));
        assert_eq!(times([0, 9 * SECOND, 9 * SECOND], 99, 112), (101 * SECOND, 111 * SECOND, true));
        // The clock was set before the script read it: only the host's own times show that.
        assert_eq!(times([0; 3], 103, 120), (104 * SECOND, 114 * SECOND, true));
        assert_eq!(times([9 * SECOND; 3], 99, 112), (102 * SECOND, 112 * SECOND, true));
    }

    proptest! {
        #[test]
        fn whatever_a_guest_says_lies_between_what_the_host_saw(
            numbers in prop::array::uniform9(any::<u64>()), sent in any::<u32>(), took in any::<u32>(),
            ended in any::<bool>(), ns in any::<i64>(), error_ns in any::<u64>(),
        ) {
            let [a, b, c, d, e, f, g, h, i] = numbers;
            let [told, began, end] = [[a, b, c], [d, e, f], [g, h, i]]
                .map(|[before, real, after]| Reading { before, real, after });
            let (sent, over) = (u64::from(sent), u64::from(sent) + u64::from(took));
            let clock = ClockDifference { ns: ns.into(), error_ns };
            let times = clock.times([told, began], ended.then_some(end), (sent, over));
            prop_assert!(sent <= times.began_ns && times.began_ns <= times.ended_ns && times.ended_ns <= over);
        }
    }
}
