//! The terminal: taken over for the page, and always restored.

use std::io::{Stdout, stdout};
use std::os::fd::AsFd;
use std::path::Path;
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

    /// Restores the terminal, and stops the process until the shell continues it. Does nothing if there is no shell that
    /// could.
    pub(super) fn stop(&mut self, signals: &Signals) -> anyhow::Result<()> {
        // The kernel then ignores SIGTSTP, but SIGSTOP stops any process.
        if !is_under_job_control(Path::new("/proc"), std::process::id()) {
            return Ok(());
        }
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

/// Tests whether another process has job control over this one: whether its group is not orphaned (setpgid(2)). It is if
/// this is the only command of `ssh -t`, or was started by a container's engine or a terminal emulator.
fn is_under_job_control(proc: &Path, process: u32) -> bool {
    let Some([mut parent, group, session]) = place(proc, process) else { return false };
    while let Some([above, of_group, of_session]) = place(proc, parent) {
        if of_session != session {
            return false;
        }
        if of_group != group {
            return true;
        }
        // Such as sudo, or a shell that runs a script.
        parent = above;
    }
    false
}

/// The IDs of a process's parent, group and session. `None` if there is no such process in this container.
fn place(proc: &Path, process: u32) -> Option<[u32; 3]> {
    let stat = std::fs::read(proc.join(process.to_string()).join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before them may contain anything (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1).map(|field| field.parse().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
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

    /// Tests whether process 9 of session 7 would be continued. Each other process is `[ID, parent, group, session]`.
    fn is_continued(parent: u32, group: u32, others: &[[u32; 4]]) -> bool {
        let proc = tempfile::tempdir().unwrap();
        for [id, parent, group, session] in [&[[9, parent, group, 7]][..], others].concat() {
            let folder = proc.path().join(id.to_string());
            std::fs::create_dir(&folder).unwrap();
            let stat = format!("{id} (a) b) S {parent} {group} {session} 34816 {group} 4194304\n");
            std::fs::write(folder.join("stat"), stat).unwrap();
        }
        is_under_job_control(proc.path(), 9)
    }

    #[test]
    fn only_a_process_that_a_shell_would_continue_is_stopped() {
        // A job of a shell; the same below sudo.
        assert!(is_continued(7, 9, &[[7, 5, 7, 7], [5, 1, 5, 5]]));
        assert!(is_continued(8, 8, &[[8, 7, 8, 7], [7, 5, 7, 7], [5, 1, 5, 5]]));
        // The session's only command, below the server of ssh; the same below a shell without job control.
        assert!(!is_continued(5, 9, &[[5, 1, 5, 5]]));
        assert!(!is_continued(7, 7, &[[7, 5, 7, 7], [5, 1, 5, 5]]));
        // In a container, whose engine is outside.
        assert!(!is_continued(0, 9, &[]));
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
