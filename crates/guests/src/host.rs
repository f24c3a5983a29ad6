//! The host itself as a guest.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use guest::{WAITING, pipes};

use super::reception::Reception;
use super::waiting::Waiting;
use super::{Armed, Guest, GuestError, process};

/// The host: scripts run as processes of this machine, in a folder for each guest.
#[derive(Debug)]
pub struct HostGuest {
    name: String,
    folder: PathBuf,
}

impl HostGuest {
    /// Makes the host guest `index`, whose scripts start in a folder below `folder`.
    ///
    /// # Errors
    /// If that folder cannot be created.
    pub fn new(index: u32, folder: &Path) -> Result<Self, GuestError> {
        let name = format!("host-{index}");
        let work = folder.join(&name);
        fs::create_dir_all(&work).map_err(|error| GuestError::Start {
            name: name.clone(),
            why: format!("Could not create the folder {} for its scripts: {error}", work.display()),
        })?;
        Ok(Self { name, folder: work })
    }
}

impl Guest for HostGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
    }

    fn address(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }

    fn host_address(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        // A server that outlived this program would keep its port, and serve the clients of the next study.
        let mut command = process::command("sh");
        command.args(["-c", WAITING, "sh", script]).current_dir(&self.folder);
        let reception = Reception::new();
        let line = pipes::start_by(command, &reception, process::spawn).map_err(|error| {
            GuestError::Unreachable {
                name: self.name.clone(),
                why: format!("running setpriv: {error}; install util-linux"),
            }
        })?;
        Ok(Box::new(Waiting::new(&self.name, limit, reception, Box::new(line))?))
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
