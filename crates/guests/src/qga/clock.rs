//! The difference between a guest's clock and the host's.

/// The number of measurements; the one with the shortest round trip is used.
const QUESTIONS: u32 = 5;

/// The guest's clock minus the host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockDifference(i128);

impl ClockDifference {
    /// Reads the guest's time several times. The guest answered between question and answer, so the error is
    /// at most half of the shortest round trip.
    pub(super) fn measure(mut ask: impl FnMut() -> Result<u64, String>) -> Result<Self, String> {
        let mut best: Option<(u64, i128)> = None;
        for _ in 0..QUESTIONS {
            let before = live::monotonic_ns();
            let guest = ask()?;
            let took = live::monotonic_ns().saturating_sub(before);
            let difference = i128::from(guest) - i128::from(before) - i128::from(took / 2);
            if best.is_none_or(|(least, _)| took < least) {
                best = Some((took, difference));
            }
        }
        best.map(|(_, difference)| Self(difference)).ok_or_else(|| "no question was asked".to_owned())
    }

    /// Converts a time of the host to the guest's clock.
    pub(super) fn guest(self, host_ns: u64) -> u64 {
        u64::try_from((i128::from(host_ns) + self.0).max(0)).unwrap_or(u64::MAX)
    }

    /// Converts a time of the guest to the host's clock.
    pub(super) fn host(self, guest_ns: u64) -> u64 {
        u64::try_from((i128::from(guest_ns) - self.0).max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
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
}
