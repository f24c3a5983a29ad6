//! Both doors of the tree, as a configuration wants them.

use super::access::Access;
use super::mount::{Mount, MountError, Mounted};
use super::socket::{BoundSocket, ControlSocket, SocketError};
use crate::config::ControlConfig;
use crate::daemon::Daemon;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Doors that are there, and behind which nobody answers yet. What is dropped leaves no mount.
#[derive(Debug)]
pub struct Doors {
    socket: Option<BoundSocket>,
    mounted: Option<Mounted>,
}

/// Doors that are answered at, until they are dropped.
#[derive(Debug)]
pub struct OpenDoors {
    _socket: Option<ControlSocket>,
    _mount: Option<Mount>,
}

/// Why a door that was asked for cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is another's error")]
pub enum DoorError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl Doors {
    /// Makes the doors that a configuration wants. One that it does not name is made where that can be done.
    ///
    /// # Errors
    /// [`DoorError`] for one that it names.
    pub fn make(config: &ControlConfig, access: Access) -> Result<Self, DoorError> {
        let socket = config.socket().map(|(path, said)| {
            let bound = BoundSocket::bind(path, access).map_err(DoorError::from);
            if_said(bound, said)
        });
        let mounted = config
            .mount()
            .map(|(path, said)| if_said(Mounted::new(path, access).map_err(DoorError::from), said));
        Ok(Self { socket: socket.transpose()?.flatten(), mounted: mounted.transpose()?.flatten() })
    }

    /// The tree's mount.
    #[must_use]
    pub fn mounted(&self) -> Option<BorrowedFd<'_>> {
        self.mounted.as_ref()?.descriptor()
    }

    /// Answers for a daemon.
    ///
    /// # Errors
    /// [`DoorError`] when the host gives no threads.
    pub fn serve(self, daemon: &Arc<Daemon>) -> Result<OpenDoors, DoorError> {
        let socket = self.socket.map(|socket| socket.serve(daemon)).transpose()?;
        let mount = self.mounted.map(|mounted| mounted.serve(daemon)).transpose()?;
        Ok(OpenDoors { _socket: socket, _mount: mount })
    }
}

fn if_said<T>(made: Result<T, DoorError>, said: bool) -> Result<Option<T>, DoorError> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if said => Err(error),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            tracing::info!("{error}{}", cause.unwrap_or_default());
            Ok(None)
        }
    }
}
