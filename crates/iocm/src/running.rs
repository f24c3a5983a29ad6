//! A daemon as a whole process: what is opened, what is given away, what is served, in the order in which that can be.

use crate::config::Config;
use crate::control::{Access, ControlEndpoints, ControlServer, EndpointsError};
use crate::daemon::{Daemon, DaemonError, Opened};
use crate::safety::{Safety, SafetyError, group_of};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// All is opened, and nothing runs.
#[derive(Debug)]
pub struct Ready {
    opened: Opened,
    endpoints: ControlEndpoints,
    safety: Safety,
}

/// A daemon that runs, with its doors. Dropping it ends it, the doors first.
#[derive(Debug)]
pub struct Running {
    _control: ControlServer,
    daemon: Arc<Daemon>,
}

/// Why a daemon cannot run.
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
    /// Opens all that a file names: files, sockets, the control tree.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(config: &Config) -> Result<Self, StartError> {
        let safety = Safety::new(&config.safety)?;
        let group = config.control.group.as_deref().map(group_of).transpose().map_err(SafetyError::from)?;
        let opened = Opened::open(config)?;
        let endpoints = ControlEndpoints::make(&config.control, Access { user: safety.user(), group })?;
        Ok(Self { opened, endpoints, safety })
    }

    /// The control tree's mount. Once privileges are given away, the daemon cannot take it away itself.
    #[must_use]
    pub fn mounted(&self) -> Option<BorrowedFd<'_>> {
        self.endpoints.mounted()
    }

    /// Gives away what is to be, and serves. No thread may have begun before.
    ///
    /// # Errors
    /// [`StartError`]; privileges may be gone then.
    pub fn run(self) -> Result<Running, StartError> {
        let Self { opened, endpoints, safety } = self;
        safety.take_effect()?;
        let daemon = Arc::new(Daemon::serve(opened)?);
        Ok(Running { _control: endpoints.serve(&daemon)?, daemon })
    }
}

impl Running {
    /// The daemon.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }
}
