//! `exitless top`: the exits of this host's VMs on a page that is updated continuously.

mod counting;
mod io_cores;
mod keys;
mod terminal;
mod vms;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use iocm::config::SOCKET;
use live::Cost;
use ratatui_crossterm::crossterm::event::{self, Event};
use report::top::{Action, Look, Observation, Top};

use self::counting::Counting;
use self::io_cores::IoLook;
use self::terminal::{Continued, Screen};
use super::quantity;
use super::watching::WatchArguments;
use crate::status::Usage;
use crate::{console, interrupt};

/// The shortest interval that leaves time to read the page.
const SHORTEST_NS: u64 = 100_000_000;
/// The longest delay before a signal is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// The interval of updates, at least 100ms: 1s, 500ms; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "1s")]
    interval: u64,
    /// Show the cost of counting, in nanoseconds for each exit.
    #[arg(long)]
    self_cost: bool,
    /// Draw with ASCII characters, as by default if the locale is not UTF-8. Names keep their letters.
    #[arg(long)]
    ascii: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    check(arguments)?;
    let look = Look { colour: console::colour(), ascii: arguments.ascii || !console::shows_unicode() };
    let stop = interrupt::flag()?;
    let _measuring = arguments.self_cost.then(Cost::measure).transpose()?;
    // Before taking over the terminal, so that errors stay readable.
    let Some(counting) = Counting::begin(arguments, false, &stop)? else { return Ok(ExitCode::SUCCESS) };
    let continued = Continued::catch()?;
    let screen = Screen::take_over()?;
    let top = Top::new(counting.source(), arguments.interval);
    let io = IoLook::at(Path::new(SOCKET));
    Session { arguments, counting, io, top, screen, look, stop: &stop, continued }.run()?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &Arguments) -> Result<(), Usage> {
    if !std::io::stdout().is_terminal() {
        let what = "Standard output is not a terminal, which `exitless top` needs; use `exitless stat`, which prints";
        return Err(Usage(what.to_owned()));
    }
    if arguments.interval < SHORTEST_NS {
        return Err(Usage(
            "--interval is shorter than 100 ms; `exitless stat` takes shorter ones".to_owned(),
        ));
    }
    Ok(())
}

/// The time to wait for an event, and whether the wait ends after it. `left` is the rest of the interval.
/// While paused, the interval has no end, and the counts must be kept.
fn step(is_paused: bool, left: Duration) -> (Duration, bool) {
    if is_paused { (LOOK, true) } else { (left.min(LOOK), left.is_zero()) }
}

struct Session<'a> {
    arguments: &'a Arguments,
    counting: Counting,
    io: IoLook,
    top: Top,
    screen: Screen,
    look: Look,
    stop: &'a AtomicBool,
    continued: Continued,
}

impl Session<'_> {
    fn run(mut self) -> anyhow::Result<()> {
        let mut since = Instant::now();
        let mut changed = true;
        loop {
            if changed {
                self.screen.draw(&self.top, self.look)?;
            }
            changed = self.wait(since)?;
            if self.top.has_ended() || self.stop.load(Ordering::Relaxed) {
                return self.screen.give_back();
            }
            // The kernel keeps counting while the page is paused; everything is shown afterwards.
            if self.top.is_paused() {
                continue;
            }
            if self.counting.must_change(self.top.wants_accesses()) {
                self.attach_again()?;
                since = Instant::now();
                changed = true;
            } else if since.elapsed() >= self.interval() {
                since = Instant::now();
                self.observe()?;
                changed = true;
            }
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(self.top.interval_ns())
    }

    /// Waits for a key, a signal, a resize, or the end of the interval; while paused for [`LOOK`] at most.
    /// Returns whether the page must be redrawn.
    fn wait(&mut self, since: Instant) -> anyhow::Result<bool> {
        let mut changed = false;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(changed);
            }
            self.counting.keep()?;
            // Another process stopped this one.
            if self.continued.take() {
                self.screen.take_over_again()?;
                return Ok(true);
            }
            let (step, is_last) = step(self.top.is_paused(), self.interval().saturating_sub(since.elapsed()));
            if event::poll(step)? {
                changed |= self.handle(&event::read()?)?;
                // Handle all pending keys before redrawing.
                if event::poll(Duration::ZERO)? {
                    continue;
                }
                if changed {
                    return Ok(true);
                }
            }
            if is_last {
                return Ok(changed);
            }
        }
    }

    /// Returns whether the page must be redrawn.
    fn handle(&mut self, event: &Event) -> anyhow::Result<bool> {
        match event {
            Event::Key(key) if keys::is_stop(key) => self.screen.stop(&self.continued)?,
            Event::Key(key) => match keys::action(key) {
                Some(action) => {
                    self.top.act(action);
                    if action == Action::IoCores && self.top.shows_io() {
                        self.top.observe_io(self.io.look());
                    }
                }
                None => return Ok(false),
            },
            Event::Resize(..) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn observe(&mut self) -> anyhow::Result<()> {
        let profile = self.counting.take(self.arguments)?;
        let mut vms = self.top.processes();
        vms.extend(profile.vcpus().iter().filter_map(|of| of.vcpu.vm));
        let facts = self.counting.facts(vms.into_iter(), &profile);
        let cost = if self.arguments.self_cost { self.counting.cost()? } else { None };
        let cost_ns_per_exit = cost.and_then(|cost| cost.ns_per_exit());
        if self.top.shows_io() {
            self.top.observe_io(self.io.look());
        }
        self.top.observe(Observation { profile, facts, cost_ns_per_exit });
        Ok(())
    }

    /// Attaches again, with or without accesses, as the page requires. Shows the exits until now; those
    /// during the exchange of programs are lost.
    fn attach_again(&mut self) -> anyhow::Result<()> {
        self.observe()?;
        let begun = Counting::begin(self.arguments, self.top.wants_accesses(), self.stop);
        match begun {
            Ok(Some(counting)) => {
                self.counting = counting;
                self.top.attached_again(self.counting.source());
            }
            Ok(None) => {}
            // Stay on the page before the action.
            Err(error) => {
                self.top.act(Action::Back);
                self.top.say(format!("{error:#}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_page_does_not_wait_for_a_key_to_look_after_the_counts() {
        for left in [Duration::ZERO, Duration::from_secs(1)] {
            assert_eq!(step(true, left), (LOOK, true));
        }
        assert_eq!(step(false, Duration::from_secs(1)), (LOOK, false));
        assert_eq!(step(false, Duration::from_millis(20)), (Duration::from_millis(20), false));
        assert_eq!(step(false, Duration::ZERO), (Duration::ZERO, true));
    }
}
