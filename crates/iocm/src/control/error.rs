//! Errors of the control tree.

use crate::config::{BadLine, ConfigError};
use std::error::Error;

/// An error of the control tree: an error number for programs, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The kind of error.
    pub errno: Errno,
    /// The object, and why the operation failed.
    pub message: String,
}

macro_rules! errnos {
    ($($(#[$about:meta])* $variant:ident = $name:ident,)*) => {
        /// Error numbers, with the kernel's names.
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
    /// The value is not valid for this attribute.
    Invalid = EINVAL,
    /// The object does not exist.
    Missing = ENOENT,
    /// The object exists already.
    Exists = EEXIST,
    /// The object is in use.
    Busy = EBUSY,
    /// The attribute is read-only or write-only, or the peer or the daemon's user lacks the permission.
    Denied = EACCES,
    /// Objects of this kind do not support it.
    Unsupported = EOPNOTSUPP,
    /// It is a directory.
    IsDirectory = EISDIR,
    /// It is not a directory.
    NotDirectory = ENOTDIR,
    /// It is too long.
    TooLarge = E2BIG,
    /// There is no room, or there are no more files or threads.
    NoSpace = ENOSPC,
    /// The host failed.
    Failed = EIO,
}

impl ControlError {
    /// An error with this message.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// The value is not valid for this attribute.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Errno::Invalid, message)
    }

    /// The object does not exist.
    #[must_use]
    pub fn missing(name: &str) -> Self {
        Self::new(Errno::Missing, format!("There is no {name}"))
    }

    /// An error of this kind, whose message has the whole chain of causes.
    pub(super) fn of(errno: Errno, error: &(dyn Error + 'static)) -> Self {
        Self { errno, message: exits::with_causes(error) }
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
