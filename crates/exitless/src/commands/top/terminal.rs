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
use signal_hook::consts::SIGCONT;

/// The interval at which to check for the terminal's hang-up.
const LOOK: Duration = Duration::from_millis(500);

/// Set while the terminal is taken over and must be restored.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Set when the process is continued.
pub(super) struct Continued(Arc<AtomicBool>);

impl Continued {
    /// Catches SIGCONT.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let continued = Self(Arc::default());
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued.0)).context("Could not catch signals")?;
        Ok(continued)
    }

    /// Tests whether SIGCONT arrived since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
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

    /// Restores the terminal, and stops the process until the shell continues it. Goes on at once if there is no shell that
    /// could.
    pub(super) fn stop(&mut self, continued: &Continued) -> anyhow::Result<()> {
        give_back()?;
        stop_job()?;
        continued.take();
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

/// Stops the whole job, as the terminal does: otherwise a shell that waits for this process would wait forever. SIGTSTP must
/// keep its default action, which the kernel omits where nobody could continue the job (setpgid(2), orphaned process groups):
/// in a container, or if this is the only command of `ssh -t`. SIGSTOP would stop it there, too. sudo stops its own job with
/// the signal that stopped its command, so this also holds below sudo.
fn stop_job() -> anyhow::Result<()> {
    kill_current_process_group(Signal::TSTP).context("Could not stop the job")
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
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, setsid, waitid};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use signal_hook::consts::SIGTSTP;

    use super::*;

    /// Set in a process that this test runs, to where it is stopped.
    const PLACE: &str = "TEST_OF_STOP_JOB_IN";

    #[test]
    fn a_job_is_stopped_as_by_a_terminal_and_goes_on_where_nobody_could_continue_it() {
        if let Ok(place) = std::env::var(PLACE) {
            if place == "session" {
                setsid().unwrap();
            }
            let _continued = Continued::catch().unwrap();
            return stop_job().unwrap();
        }
        let name = "commands::top::terminal::tests::\
                    a_job_is_stopped_as_by_a_terminal_and_goes_on_where_nobody_could_continue_it";
        for (place, expected) in [("group", Some(SIGTSTP)), ("session", None)] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", name]).env(PLACE, place).stdout(Stdio::null());
            if place == "group" {
                command.process_group(0);
            }
            let mut process = command.spawn().unwrap();
            let pid = Pid::from_child(&process);
            let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            let status = waitid(WaitId::Pid(pid), options).unwrap().unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            assert!(process.wait().unwrap().success(), "{place}");
            assert_eq!(status.stopping_signal(), expected, "{place}");
        }
    }

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
