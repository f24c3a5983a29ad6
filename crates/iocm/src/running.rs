//! The daemon as a process, in the order that its privileges require: open files, drop privileges, serve.

use crate::accounts::group_of;
use crate::config::{Config, DeviceConfig};
use crate::control::{Access, ControlEndpoints, ControlServer, EndpointsError};
use crate::daemon::{BoundDevices, Daemon, DaemonError};
use crate::inherited::{Inheritance, InheritedSocket};
use crate::safety::{Safety, SafetyError};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A daemon with open files, before its first thread.
#[derive(Debug)]
pub struct Ready {
    bound: BoundDevices,
    endpoints: ControlEndpoints,
    safety: Safety,
}

/// A running daemon and its control endpoints. Dropping it stops both, the endpoints first.
#[derive(Debug)]
pub struct Running {
    control: Option<ControlServer>,
    daemon: Arc<Daemon>,
}

/// A failure to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is another's error")]
pub enum StartError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Control(#[from] EndpointsError),
    #[error(transparent)]
    Safety(#[from] SafetyError),
}

impl Ready {
    /// Looks up the names of users, groups and capabilities in a configuration. It opens no disk, socket or interface:
    /// a running daemon may hold those.
    ///
    /// # Errors
    /// [`StartError`] when a name does not exist.
    pub fn check(config: &Config) -> Result<(), StartError> {
        looked_up(config)?;
        for device in &config.devices {
            device.sockets().or(&config.sockets).access().map_err(DaemonError::from)?;
        }
        Ok(())
    }

    /// Opens everything that the configuration names: files, sockets, the control tree. Raises the soft limit of open files
    /// to the hard one: each queue that is served has up to six.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(config: &Config) -> Result<Self, StartError> {
        Self::open_with(config, Inheritance::default())
    }

    /// The same with the sockets of a service manager.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open_with(config: &Config, mut inheritance: Inheritance) -> Result<Self, StartError> {
        files::allow_open_files();
        let (safety, access) = looked_up(config)?;
        let bound = BoundDevices::open(config, &mut inheritance)?;
        let endpoints = ControlEndpoints::make(&config.control, access, &mut inheritance)?;
        inheritance.close_rest();
        Ok(Self { bound, endpoints, safety })
    }

    /// Opens one device for one front-end, without a control socket and a control tree: a back-end program as in QEMU's
    /// docs/interop/vhost-user.rst. The front-end connects through `socket` if there is one, and else through the
    /// device's own socket.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open_one(device: &DeviceConfig, socket: Option<InheritedSocket>) -> Result<Self, StartError> {
        files::allow_open_files();
        device.check().map_err(DaemonError::from)?;
        let config = Config::default();
        let safety = Safety::new(&config.safety)?;
        let bound = BoundDevices::open_one(&config, device, socket)?;
        Ok(Self { bound, endpoints: ControlEndpoints::none(), safety })
    }

    /// The mount of the control tree. Without privileges the daemon cannot unmount it itself.
    #[must_use]
    pub fn mounted(&self) -> Option<BorrowedFd<'_>> {
        self.endpoints.mounted()
    }

    /// Drops privileges, and serves. The process must have only one thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the privileges may be gone then.
    pub fn run(self) -> Result<Running, StartError> {
        let Self { bound, endpoints, safety } = self;
        safety.take_effect()?;
        let daemon = Arc::new(Daemon::serve(bound)?);
        let control = endpoints.serve(&daemon, !safety.is_filtered())?;
        Ok(Running { control: Some(control), daemon })
    }
}

/// The privileges that a configuration keeps, and who may use its control endpoints.
fn looked_up(config: &Config) -> Result<(Safety, Access), StartError> {
    let safety = Safety::new(&config.safety)?;
    let group = config.control.group.as_deref().map(group_of).transpose().map_err(SafetyError::from)?;
    let access = Access { user: safety.user(), group };
    Ok((safety, access))
}

impl Running {
    /// The daemon.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.control.take());
        // A thread that is answering for the control tree may hold the daemon for longer than this process lives.
        self.daemon.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingFeatures;
    use crate::testing::{BlockDriver, FrontEnd};
    use std::os::unix::net::UnixStream;

    #[test]
    fn devices_end_with_it_although_somebody_holds_the_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let device = |name: &str| {
            let socket = directory.path().join(name);
            let text = format!("[[device]]\nname = \"{name}\"\ntype = \"block\"\nsocket = {socket:?}\n");
            Config::parse(&text).unwrap()
        };
        let held = Arc::new(Daemon::start(&device("first")).unwrap());
        let running = Running { control: None, daemon: Arc::clone(&held) };
        let socket = directory.path().join("first");
        let driver = BlockDriver::new(16, RingFeatures::default());
        let mut front = FrontEnd::new(UnixStream::connect(&socket).unwrap()).unwrap();
        front.negotiate(&driver.driver, 0).unwrap();
        drop(running);
        assert!(front.ask(1).is_err() && !socket.exists());
        let outcome = held.add_device(&device("second").devices[0]);
        assert!(matches!(outcome, Err(DaemonError::Ended(_))), "{outcome:?}");
        assert!(!directory.path().join("second").exists());
    }
}
