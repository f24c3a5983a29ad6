//! Why something cannot be read or changed.

use crate::config::{BadLine, ConfigError};
use std::error::Error;

/// Why something cannot be read or changed: a number for programs, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
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

impl ControlError {
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

    /// An error of this kind, with the whole chain of causes in its message.
    pub(super) fn of(errno: Errno, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self { errno, message }
    }
}

impl From<BadLine> for ControlError {
    fn from(error: BadLine) -> Self {
        Self::of(Errno::Invalid, &error)
    }
}

impl From<ConfigError> for ControlError {
    fn from(error: ConfigError) -> Self {
        Self::of(Errno::Invalid, &error)
    }
}
