//! The page of I/O cores: placement, load, and the monitor's last decision.

use iocm::control::rates::Rates;
use iocm_monitor::State;

use crate::iocm::{monitor, rates};

/// The state of I/O cores.
#[derive(Debug, Clone, Default)]
pub struct IoCores {
    /// The rates of the I/O daemon's workers in the last interval; `None` without a daemon that answers.
    pub rates: Option<Rates>,
    /// The monitor's state, and true if it still runs; `None` without a monitor.
    pub monitor: Option<(State, bool)>,
    /// The current time, in seconds since 1970.
    pub now: f64,
}

impl IoCores {
    /// The lines of the page at a width.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let mut text = String::new();
        match &self.rates {
            Some(rates) => text += &rates::terminal(rates, width, false),
            None => text += "No I/O daemon answers; `exitless iocm serve` starts one.\n",
        }
        text.push('\n');
        match &self.monitor {
            Some((state, is_alive)) => text += &monitor::terminal(state, *is_alive, self.now, width),
            None => text += "No monitor runs; `exitless iocm monitor` starts one.\n",
        }
        text.lines().map(str::to_owned).collect()
    }
}
