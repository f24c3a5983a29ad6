//! Why something cannot be read or changed.

use crate::config::{BadLine, ConfigError};
use crate::daemon::DaemonError;
use crate::device::ResizeError;
use crate::device::block::StorageError;
use crate::device::net::NetError;
use crate::pool::PoolError;
use crate::post::PostError;
use crate::worker::WorkerError;
use std::error::Error;
use std::io;

/// Why something cannot be read or changed: a number for programs, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of error.
    pub errno: Errno,
    /// What was tried, and why it cannot be.
    pub message: String,
}

macro_rules! errnos {
    ($($(#[$about:meta])* $variant:ident = $name:ident,)*) => {
        /// Kinds of errors, as the kernel calls them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Errno { $($(#[$about])* $variant,)* }

        impl Errno {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its number.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self { $(Self::$variant => libc::$name,)* }
            }

            /// Its name: `EINVAL`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }
        }
    };
}

errnos! {
    /// What is written is not what is wanted there.
    Invalid = EINVAL,
    /// There is no such thing.
    Missing = ENOENT,
    /// It is there already.
    Exists = EEXIST,
    /// It cannot be now.
    Busy = EBUSY,
    /// It cannot be read, or not written, or not by this peer or by the daemon's user.
    Denied = EACCES,
    /// Things of this kind do not have it.
    Unsupported = EOPNOTSUPP,
    /// It is a directory.
    IsDirectory = EISDIR,
    /// It is none.
    NotDirectory = ENOTDIR,
    /// It is too much.
    TooLarge = E2BIG,
    /// There is no room, or no more files or threads.
    NoSpace = ENOSPC,
    /// The host failed.
    Failed = EIO,
}

impl Refusal {
    /// A refusal.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// What is written is not what is wanted there.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Errno::Invalid, message)
    }

    /// There is nothing of this name.
    #[must_use]
    pub fn missing(name: &str) -> Self {
        Self::new(Errno::Missing, format!("There is no {name}"))
    }

    fn of(errno: Errno, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self { errno, message }
    }
}

/// What kind of error the host's is.
fn of_host(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Errno::Missing,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Errno::Denied,
        Some(libc::EADDRINUSE | libc::EEXIST) => Errno::Exists,
        Some(libc::EBUSY) => Errno::Busy,
        Some(libc::EINVAL) => Errno::Invalid,
        Some(libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EDQUOT | libc::ENOMEM | libc::EFBIG) => {
            Errno::NoSpace
        }
        _ if error.kind() == io::ErrorKind::InvalidInput => Errno::Invalid,
        _ => Errno::Failed,
    }
}

/// What kind of error a network device's is.
fn of_net(error: &NetError) -> Errno {
    match error {
        NetError::Tap { source, .. }
        | NetError::Namespace { source, .. }
        | NetError::NoTap { source, .. } => of_host(source),
        NetError::Address(_) => Errno::Exists,
        _ => Errno::Invalid,
    }
}

impl From<BadLine> for Refusal {
    fn from(error: BadLine) -> Self {
        Self::of(Errno::Invalid, &error)
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::of(Errno::Invalid, &error)
    }
}

impl From<WorkerError> for Refusal {
    fn from(error: WorkerError) -> Self {
        let errno = match &error {
            WorkerError::Cannot { source, .. } => of_host(source),
            WorkerError::Gone => Errno::Missing,
        };
        Self::of(errno, &error)
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        let errno = match error {
            PoolError::Worker(error) => return error.into(),
            PoolError::Last(_) => Errno::Busy,
            PoolError::NoWorker(_) | PoolError::NoQueue(_) => Errno::Missing,
        };
        Self::of(errno, &error)
    }
}

impl From<PostError> for Refusal {
    fn from(error: PostError) -> Self {
        let (PostError::Socket { source, .. } | PostError::Thread { source, .. }) = &error;
        Self::of(of_host(source), &error)
    }
}

impl From<DaemonError> for Refusal {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Config(error) => error.into(),
            DaemonError::Worker(error) => error.into(),
            DaemonError::Pool(error) => error.into(),
            DaemonError::Post(error) => error.into(),
            DaemonError::Exists(_) => Self::of(Errno::Exists, &error),
            DaemonError::Net { ref source, .. } => Self::of(of_net(source), &error),
            DaemonError::Storage { ref source, .. } => {
                let errno = match source {
                    StorageError::Open { source, .. } | StorageError::Size { source, .. } => of_host(source),
                    StorageError::Kind { .. } | StorageError::Format { .. } => Errno::Invalid,
                };
                Self::of(errno, &error)
            }
        }
    }
}

impl From<ResizeError> for Refusal {
    fn from(error: ResizeError) -> Self {
        let errno = match &error {
            ResizeError::Unsized => Errno::Unsupported,
            ResizeError::Size { .. } | ResizeError::Fixed { .. } => Errno::Invalid,
            ResizeError::File { source, .. } => of_host(source),
        };
        Self::of(errno, &error)
    }
}
