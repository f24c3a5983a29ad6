//! The terminal: taken over for the page, and always restored.

use std::io::{Stdout, stdout};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::Context as _;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use report::top::{Look, Top, draw};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGSTOP, SIGTSTP};

/// The interval at which to check for the terminal's hang-up.
const LOOK: Duration = Duration::from_millis(500);

/// Set while the terminal is taken over and must be restored.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The signals of job control.
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Signals {
    /// Catches the signals.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let signals = Self { stop: Arc::default(), go_on: Arc::default() };
        for (signal, flag) in [(SIGTSTP, &signals.stop), (SIGCONT, &signals.go_on)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).context("Could not catch signals")?;
        }
        Ok(signals)
    }

    /// Tests whether SIGTSTP arrived since the last call.
    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Tests whether SIGCONT arrived since the last call: something else stopped and continued the process.
    pub(super) fn goes_on(&self) -> bool {
        self.go_on.swap(false, Ordering::Relaxed)
    }
}

/// The terminal while it is taken over.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes over the terminal with an empty screen; at the end the previous one is restored.
    pub(super) fn take_over() -> anyhow::Result<Self> {
        give_back_before_a_panic_is_told();
        end_on_hang_up();
        let terminal =
            Terminal::new(CrosstermBackend::new(stdout())).context("Could not use the terminal")?;
        let mut screen = Self { terminal };
        screen.take()?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, top: &Top, look: Look) -> anyhow::Result<()> {
        self.terminal.draw(|frame| draw(frame, top, look)).context("Could not draw on the terminal")?;
        Ok(())
    }

    /// Restores the terminal, and stops the process until the shell continues it.
    pub(super) fn stop(&mut self, signals: &Signals) -> anyhow::Result<()> {
        give_back()?;
        // Stop the whole job, as the terminal does: otherwise a shell that waits for this process would wait
        // forever.
        kill_current_process_group(Signal::TSTP).context("Could not stop the job")?;
        signal_hook::low_level::raise(SIGSTOP).context("Could not stop")?;
        // The process has been continued.
        signals.stop.store(false, Ordering::Relaxed);
        signals.go_on.store(false, Ordering::Relaxed);
        self.take()
    }

    /// Sets up the terminal again and redraws everything: others may have changed the terminal.
    pub(super) fn take_over_again(&mut self) -> anyhow::Result<()> {
        give_back()?;
        self.take()
    }

    pub(super) fn give_back(self) -> anyhow::Result<()> {
        give_back()
    }

    fn take(&mut self) -> anyhow::Result<()> {
        IS_OURS.store(true, Ordering::Relaxed);
        enable_raw_mode().context("Could not take over the terminal")?;
        execute!(stdout(), EnterAlternateScreen, Hide).context("Could not take over the terminal")?;
        self.terminal.clear().context("Could not clear the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to report an error to.
        let _ = give_back();
    }
}

/// Restores the terminal, unless that has been done already.
fn give_back() -> anyhow::Result<()> {
    if !IS_OURS.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    let screen = execute!(stdout(), LeaveAlternateScreen, Show);
    // Do this even if writing failed.
    disable_raw_mode().context("Could not restore the terminal")?;
    screen.context("Could not restore the terminal")
}

/// Ends the process soon after the terminal hangs up. Reads of the terminal then return no bytes, and crossterm repeats
/// them until there are some: no signal would end its wait. The kernel removes the programs that count exits.
fn end_on_hang_up() {
    std::thread::spawn(|| {
        while !has_hung_up(&stdout()) {
            std::thread::sleep(LOOK);
        }
        std::process::exit(0);
    });
}

fn has_hung_up(terminal: &impl AsFd) -> bool {
    // Hang-ups and errors are reported even if nothing is asked for (poll(2)).
    let mut polled = [PollFd::new(terminal, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec::default()));
    found.is_ok() && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Restores the terminal before a panic is reported, because the message would vanish with the alternate
/// screen.
fn give_back_before_a_panic_is_told() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = give_back();
            tell(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn a_terminal_whose_other_end_is_closed_has_hung_up() {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open(name.as_c_str(), flags, Mode::empty()).unwrap();
        assert!(!has_hung_up(&terminal));
        drop(near);
        assert!(has_hung_up(&terminal));
    }
}
