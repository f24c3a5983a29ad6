//! The endpoints of the control tree: the socket and the mount, as the configuration names them.

use super::access::Access;
use super::mount::{Mount, MountError, Mounted};
use super::socket::{BoundSocket, ControlSocket, SocketError};
use crate::config::ControlConfig;
use crate::daemon::Daemon;
use crate::inherited::Inheritance;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Control endpoints that nobody serves yet. Dropping them unmounts the tree and removes the socket.
#[derive(Debug)]
pub struct ControlEndpoints {
    socket: Option<BoundSocket>,
    mounted: Option<Mounted>,
}

/// Control endpoints that are served until they are dropped.
#[derive(Debug)]
pub struct ControlServer {
    _socket: Option<ControlSocket>,
    _mount: Option<Mount>,
}

/// A failure of a control endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is another's error")]
pub enum EndpointsError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl ControlEndpoints {
    /// Creates the endpoints. One with a default path is optional: it is left out if it cannot be created.
    ///
    /// # Errors
    ///
    /// [`EndpointsError`] if the configuration names the endpoint.
    pub fn make(
        config: &ControlConfig,
        access: Access,
        inheritance: &mut Inheritance,
    ) -> Result<Self, EndpointsError> {
        let socket = config.socket().map(|(path, said)| {
            let bound = BoundSocket::bind_with(path, access, inheritance).map_err(EndpointsError::from);
            if_said(bound, said)
        });
        let mounted = config
            .mount()
            .map(|(path, said)| if_said(Mounted::new(path, access).map_err(EndpointsError::from), said));
        Ok(Self { socket: socket.transpose()?.flatten(), mounted: mounted.transpose()?.flatten() })
    }

    /// No endpoints.
    #[must_use]
    pub const fn none() -> Self {
        Self { socket: None, mounted: None }
    }

    /// The mount of the tree.
    #[must_use]
    pub fn mounted(&self) -> Option<BorrowedFd<'_>> {
        self.mounted.as_ref()?.descriptor()
    }

    /// Serves the tree of a daemon. `unmounts`: see [`Mounted::serve`].
    ///
    /// # Errors
    /// [`EndpointsError`] when a thread cannot be started.
    pub fn serve(self, daemon: &Arc<Daemon>, unmounts: bool) -> Result<ControlServer, EndpointsError> {
        let socket = self.socket.map(|socket| socket.serve(daemon)).transpose()?;
        let mount = self.mounted.map(|mounted| mounted.serve(daemon, unmounts)).transpose()?;
        Ok(ControlServer { _socket: socket, _mount: mount })
    }
}

fn if_said<T>(made: Result<T, EndpointsError>, said: bool) -> Result<Option<T>, EndpointsError> {
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
