//! The daemon, and how it is started.

use iocm::config::Config;
use iocm::control::client::Client;
use iocm::running::Ready;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Runs the daemon until it is killed.
pub(crate) fn serve(config: &str) {
    iocm::testing::let_requests_panic();
    let running = Ready::open(&Config::parse(config).unwrap()).and_then(Ready::run);
    let _running = running.unwrap();
    loop {
        std::thread::park();
    }
}

/// A daemon that is killed when it is dropped.
pub(crate) struct Daemon(pub(crate) Child);

impl Daemon {
    /// Starts a daemon.
    pub(crate) fn start(config: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        Self(Command::new(program).args(["daemon", config]).spawn().unwrap())
    }

    /// Waits until it accepts connections.
    pub(crate) fn client(&mut self, socket: &Path) -> Client {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match Client::connect(socket) {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            assert!(self.0.try_wait().unwrap().is_none(), "the daemon ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
