//! The terminal: taken over for the page, and given back whatever happens.

use std::io::{Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use anyhow::Context as _;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use report::top::{Look, Top, draw};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGSTOP, SIGTSTP};

/// Whether the terminal is ours, for whoever has to give it back.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The signals of job control.
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them. A terminal that goes away sets `end`.
    pub(super) fn catch(end: &Arc<AtomicBool>) -> anyhow::Result<Self> {
        let signals = Self { stop: Arc::default(), go_on: Arc::default() };
        for (signal, flag) in [(SIGTSTP, &signals.stop), (SIGCONT, &signals.go_on), (SIGHUP, end)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).context("Could not catch signals")?;
        }
        Ok(signals)
    }

    /// Whether somebody wants the process to stop until it is continued.
    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Whether the process was stopped without being asked, and goes on.
    pub(super) fn goes_on(&self) -> bool {
        self.go_on.swap(false, Ordering::Relaxed)
    }
}

/// The terminal while it is ours.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Begins with an empty screen; the one before comes back at the end.
    pub(super) fn take_over() -> anyhow::Result<Self> {
        give_back_before_a_panic_is_told();
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

    /// Lets the shell have the terminal until it continues the process.
    pub(super) fn stop(&mut self, signals: &Signals) -> anyhow::Result<()> {
        give_back()?;
        // The whole job, as the terminal does it: a shell that waits for this process would wait for ever.
        kill_current_process_group(Signal::TSTP).context("Could not stop the job")?;
        signal_hook::low_level::raise(SIGSTOP).context("Could not stop")?;
        // From here on it was continued.
        signals.stop.store(false, Ordering::Relaxed);
        signals.go_on.store(false, Ordering::Relaxed);
        self.take()
    }

    /// Whatever became of the terminal meanwhile, everything is drawn again.
    pub(super) fn take_over_again(&mut self) -> anyhow::Result<()> {
        give_back()?;
        self.take()
    }

    pub(super) fn give_back(self) -> anyhow::Result<()> {
        give_back()
    }

    fn take(&mut self) -> anyhow::Result<()> {
        IS_OURS.store(true, Ordering::Relaxed);
        enable_raw_mode().context("Could not take the terminal over")?;
        execute!(stdout(), EnterAlternateScreen, Hide).context("Could not take the terminal over")?;
        self.terminal.clear().context("Could not clear the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = give_back();
    }
}

/// Gives the terminal back once.
fn give_back() -> anyhow::Result<()> {
    if !IS_OURS.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    let screen = execute!(stdout(), LeaveAlternateScreen, Show);
    // Even where nothing can be written any more.
    disable_raw_mode().context("Could not give the terminal back")?;
    screen.context("Could not give the terminal back")
}

/// On the other screen its words would be gone with the page.
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
