//! Converts ticks of the recording's clock to nanoseconds.

use super::options::{Facts, TscRate};

/// The length of a tick of `uptime`: those of user space, 100 per second on x86 (`trace_clock_jiffies` in
/// `kernel/trace/trace_clock.c`).
const NS_OF_UPTIME: u64 = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rate {
    Nanoseconds,
    Uptime,
    Tsc(TscRate),
    /// The length of a tick is unknown.
    Ticks,
}

/// The clock of a buffer (`kernel/trace/trace.c`, `trace_clocks`; arch/x86 adds `x86-tsc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    rate: Rate,
    offset_ns: i64,
}

impl Clock {
    /// The clock with this name.
    pub(super) fn new(name: &str, facts: &Facts) -> Self {
        let rate = match (name, facts.tsc_rate) {
            ("local" | "global" | "perf" | "boot" | "tai", _) => Rate::Nanoseconds,
            (name, _) if name.starts_with("mono") => Rate::Nanoseconds,
            ("uptime", _) => Rate::Uptime,
            ("counter", _) | (_, None) => Rate::Ticks,
            // `x86-tsc`; trace-cmd calls it `tsc2nsec` if it wrote the rate.
            (_, Some(rate)) => Rate::Tsc(rate),
        };
        Self { rate, offset_ns: facts.offset_ns }
    }

    /// The time of a tick count in nanoseconds.
    #[inline]
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        let ns = match self.rate {
            Rate::Nanoseconds | Rate::Ticks => ticks,
            Rate::Uptime => ticks.saturating_mul(NS_OF_UPTIME),
            Rate::Tsc(TscRate { multiplier, shift }) => {
                let ns = (u128::from(ticks) * u128::from(multiplier)) >> shift;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        };
        ns.saturating_add_signed(self.offset_ns)
    }

    /// A warning if times of this clock are doubtful.
    pub(super) fn doubt(&self, name: &str) -> Option<String> {
        match self.rate {
            Rate::Nanoseconds | Rate::Tsc(_) => None,
            Rate::Uptime => Some(
                "it was recorded by the clock `uptime`, which ticks every 10 ms: handling times are multiples \
                 of that"
                    .to_owned(),
            ),
            Rate::Ticks if name == "counter" => Some(
                "it was recorded by the clock `counter`, which counts events: handling times are numbers of \
                 events, not nanoseconds"
                    .to_owned(),
            ),
            Rate::Ticks => Some(format!(
                "it was recorded by the clock `{name}` and does not say how long a tick is: handling times are \
                 ticks, not nanoseconds (`trace-cmd record --tsc2nsec` or `-C mono` gives nanoseconds)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_all_clocks() {
        let facts = Facts::default();
        let rated = Facts {
            tsc_rate: Some(TscRate { multiplier: 1 << 31, shift: 32 }),
            offset_ns: -5,
            ..Facts::default()
        };
        for name in ["local", "global", "perf", "mono", "mono_raw", "boot", "tai"] {
            let clock = Clock::new(name, &facts);
            assert_eq!((clock.ns(7), clock.doubt(name)), (7, None), "{name}");
        }
        assert_eq!(Clock::new("mono", &rated).ns(100), 95);
        assert_eq!(Clock::new("mono", &rated).ns(3), 0);
        for name in ["x86-tsc", "tsc2nsec"] {
            assert_eq!(Clock::new(name, &rated).ns(u64::MAX), (u64::MAX >> 1) - 5);
            assert_eq!(Clock::new(name, &rated).doubt(name), None);
        }
        assert!(Clock::new("x86-tsc", &facts).doubt("x86-tsc").unwrap().contains("--tsc2nsec"));
        assert!(Clock::new("counter", &rated).doubt("counter").unwrap().contains("numbers of events"));
        assert_eq!(Clock::new("uptime", &facts).ns(2790), 27_900_000_000);
        assert!(Clock::new("uptime", &facts).doubt("uptime").is_some());
    }
}
