//! The state of I/O cores, from the I/O daemon and its monitor, if they run.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use iocm::config::SOCKET;
use iocm::control::client::{Client, Sample};
use iocm::control::rates::Rates;
use iocm_monitor::{STATE, State};
use report::top::IoCores;

use super::super::watching::HOST;

/// Reads the rates and the monitor's state while their page is shown.
#[derive(Default)]
pub(super) struct IoLook {
    client: Option<Client>,
    begun: Option<Instant>,
    before: Option<Sample>,
}

impl IoLook {
    /// The monitor's state, and the rates since the last reading.
    pub(super) fn look(&mut self) -> IoCores {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let monitor = State::read(Path::new(STATE)).ok();
        let monitor = monitor.map(|state| {
            let is_alive = state.is_alive(Path::new(HOST));
            (state, is_alive)
        });
        IoCores { rates: self.rates(), monitor, now }
    }

    fn rates(&mut self) -> Option<Rates> {
        if self.client.is_none() {
            self.client = Client::connect(Path::new(SOCKET)).ok();
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let Ok(value) = self.client.as_mut()?.get("") else {
            // The daemon has ended; the next one counts from zero.
            (self.client, self.before) = (None, None);
            return None;
        };
        let time_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let sample = Sample { time_ns, value };
        let before = self.before.replace(sample.clone());
        Some(Rates::between(&before.unwrap_or_else(|| sample.clone()), &sample))
    }
}
