//! How a guest's clock stands to the host's.

/// Questions asked; the one that took least time is believed.
const QUESTIONS: u32 = 5;

/// The guest's clock minus the host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockDifference(i128);

impl ClockDifference {
    /// Asks the guest for its time some times. The answer was made between question and answer, so that the error is at
    /// most half of the shortest round trip.
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

    /// A time of the host by the guest's clock.
    pub(super) fn guest(self, host_ns: u64) -> u64 {
        u64::try_from((i128::from(host_ns) + self.0).max(0)).unwrap_or(u64::MAX)
    }

    /// A time of the guest by the host's clock.
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
