//! The state of I/O cores, from the I/O daemon and its monitor, if they run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iocm::control::client::{Client, Sample};
use iocm::control::rates::Rates;
use iocm_monitor::{STATE, State};
use report::top::IoCores;

use super::super::watching::HOST;

/// The time limit for the daemon's answer: the page stands still meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reads the rates and the monitor's state while their page is shown.
pub(super) struct IoLook {
    /// The daemon's control socket.
    socket: PathBuf,
    client: Option<Client>,
    begun: Option<Instant>,
    before: Option<Sample>,
}

impl IoLook {
    /// Will ask the daemon at this socket.
    pub(super) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), client: None, begun: None, before: None }
    }

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
            self.client = Client::connect_within(&self.socket, PATIENCE).ok();
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let Ok(value) = self.client.as_mut()?.get("") else {
            // The daemon has ended, or hangs; the next one counts from zero.
            (self.client, self.before) = (None, None);
            return None;
        };
        let time_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let sample = Sample { time_ns, value };
        let before = self.before.replace(sample.clone());
        Some(Rates::between(&before.unwrap_or_else(|| sample.clone()), &sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_that_does_not_answer_does_not_stop_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        let _silent = UnixListener::bind(&socket).unwrap();
        let mut look = IoLook::at(&socket);
        assert!(look.rates().is_none());
        // An answer that comes later would be taken for that of another request.
        assert!(look.client.is_none());
    }
}
