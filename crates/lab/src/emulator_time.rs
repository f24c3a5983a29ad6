//! The time that an emulator has had: less than the elapsed time if other processes need the CPUs too.

use std::fs;
use std::time::{Duration, Instant};

/// An emulator gets at least this fraction (1/10) of the elapsed time credited, so that limits also end one
/// that only sleeps.
const LEAST: u32 = 10;
/// The unit of times in `/proc/PID/stat` (USER_HZ, proc(5)): clock ticks per second, the same on all
/// architectures that labs run on.
const TICKS: u64 = 100;

/// The time that an emulator has had since its start: its CPU time. Limits on it work however busy the
/// machine is.
#[derive(Debug, Clone, Copy)]
pub struct EmulatorTime {
    process: u32,
    begun: Instant,
}

impl EmulatorTime {
    pub(crate) fn of(process: u32) -> Self {
        Self { process, begun: Instant::now() }
    }

    /// The CPU time of all threads, or a tenth of the elapsed time if that is more.
    #[must_use]
    pub fn spent(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process));
        let used = stat.ok().and_then(|stat| cpu_time(&stat)).unwrap_or_default();
        used.max(self.begun.elapsed() / LEAST)
    }

    /// Returns a test of whether the emulator has had less than `limit` since this call.
    pub(crate) fn limit(self, limit: Duration) -> impl Fn() -> bool {
        let end = self.spent().saturating_add(limit);
        move || self.spent() < end
    }
}

/// The sum of `utime` and `stime` in `/proc/PID/stat` (proc(5)).
fn cpu_time(stat: &str) -> Option<Duration> {
    // The name before it may contain spaces and parentheses.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let sum = ticks()?.checked_add(ticks()?)?;
    Some(Duration::from_millis(sum.saturating_mul(1000 / TICKS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_summed_whatever_the_name() {
        let stat = "7 (a) 9 (b) R 1 7 7 0 -1 4194304 100 0 0 0 1234 66 5 5 20 0 3 0 100 1 1 1";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(13)));
        assert_eq!(cpu_time("7 (a) R 1"), None);
        assert_eq!(cpu_time(""), None);
    }

    #[test]
    fn a_process_that_sleeps_has_a_tenth_of_the_time_and_one_that_works_has_more() {
        let begun = Instant::now();
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut worker =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let [sleeping, working] = [&sleeper, &worker].map(|child| EmulatorTime::of(child.id()));
        // On a busy machine this takes longer.
        while working.spent() < Duration::from_millis(200) || working.spent() < begun.elapsed() / LEAST * 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (slept, passed) = (sleeping.spent(), begun.elapsed());
        for child in [&mut sleeper, &mut worker] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(slept <= passed / LEAST, "{slept:?} of {passed:?}");
    }
}
