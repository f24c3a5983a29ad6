//! The cost of a wake-up by itself, which is a lower bound for the cost of a single request.

use crate::common::run_on;
use crate::{Outcome, SECONDS};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The time between two kicks: about that of eight devices with 5,000 requests per second each.
const EVERY: Duration = Duration::from_micros(80);

/// Microseconds of CPU time per wake-up: a thread on CPU 0 sleeps until another one on CPU 1 writes to its eventfd, and
/// does nothing else.
pub(crate) fn wake_up() -> Outcome<f64> {
    let kick = eventfd(0, EventfdFlags::CLOEXEC)?;
    let kicker = kick.try_clone()?;
    let sleeper = std::thread::spawn(move || sleep(&kick).map_err(|error| error.to_string()));
    let kicking = std::thread::spawn(move || -> Result<(), rustix::io::Errno> {
        run_on(&[1]);
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let begin = Instant::now();
        for number in 1..u32::try_from(SECONDS * 1_000_000).unwrap_or(u32::MAX) / EVERY.subsec_micros() {
            std::thread::sleep((EVERY * number).saturating_sub(begin.elapsed()));
            rustix::io::write(&kicker, &1_u64.to_ne_bytes())?;
        }
        // A value that is larger than any count of kicks marks the end.
        rustix::io::write(&kicker, &(1_u64 << 32).to_ne_bytes()).map(drop)
    });
    kicking.join().map_err(|_| "the thread that kicks failed")??;
    Ok(sleeper.join().map_err(|_| "the thread that sleeps failed")??)
}

fn sleep(kick: &OwnedFd) -> rustix::io::Result<f64> {
    run_on(&[0]);
    let cpu = || {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
    };
    let (began, mut times) = (cpu(), 0_u32);
    loop {
        poll(&mut [PollFd::new(kick, PollFlags::IN)], None)?;
        let mut count = [0; 8];
        rustix::io::read(kick, &mut count)?;
        times += 1;
        if u64::from_ne_bytes(count) >= 1 << 32 {
            return Ok((cpu() - began) / f64::from(times));
        }
    }
}
