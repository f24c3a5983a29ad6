//! The part of a kernel's release that determines the numbering of its events.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Major and minor version of a Linux kernel; `6.12.107-cloud` is 6.12.
///
/// Vendor kernels contain later code under an earlier version, so a table chosen by version is a guess;
/// information from the running kernel itself has priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelVersion {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl KernelVersion {
    /// Version `major.minor`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The error of a text that does not begin with `MAJOR.MINOR`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kernel release; expected something like 6.12.0-amd64, as `uname -r` prints")]
pub struct BadKernelVersion(pub String);

impl FromStr for KernelVersion {
    type Err = BadKernelVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadKernelVersion(text.to_owned());
        let (major, rest) = text.trim().split_once('.').ok_or_else(bad)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        match (major.parse(), rest[..end].parse()) {
            (Ok(major), Ok(minor)) => Ok(Self { major, minor }),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases_of_distributions() {
        let read = |text: &str| text.parse::<KernelVersion>().unwrap();
        assert_eq!(read("6.12.107+deb13-cloud-amd64"), KernelVersion::new(6, 12));
        assert_eq!(read("5.15.0-204.146.1.el8uek.x86_64"), KernelVersion::new(5, 15));
        assert_eq!(read("7.0-rc1\n"), KernelVersion::new(7, 0));
        assert!(KernelVersion::new(5, 15) < KernelVersion::new(6, 0));
        assert!("linux".parse::<KernelVersion>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            let _ = text.parse::<KernelVersion>();
        }
    }
}
