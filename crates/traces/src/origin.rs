//! The origin of a recording, and the place where it is damaged.

use exits::Hypervisor;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The formats of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// `perf.data`, written to a file.
    PerfData,
    /// `perf.data`, written to a pipe.
    PerfPipe,
    /// `trace.dat` of trace-cmd.
    TraceDat,
    /// The text of tracefs or of `trace-cmd report`.
    TracefsText,
    /// The binary output of xentrace.
    Xentrace,
    /// Not a recording: the running kernel.
    Live,
    /// Our own recording of single exits: [`crate::exitless`].
    Exits,
    /// Our own recording of sums: [`crate::exitless::write_profile`].
    Profile,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PerfData => "perf.data",
            Self::PerfPipe => "perf.data (pipe mode)",
            Self::TraceDat => "trace.dat",
            Self::TracefsText => "tracefs text",
            Self::Xentrace => "xentrace",
            Self::Live => "live",
            Self::Exits => "exitless recording",
            Self::Profile => "exitless profile",
        })
    }
}

/// The facts that a recording contains about itself. Most formats have few.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its kind.
    pub format: Format,
    /// The version of the format or of the tool, as written in the recording.
    pub version: Option<String>,
    /// The host's name.
    pub host: Option<String>,
    /// The ID of the host's boot, with which the clock of its times began.
    #[serde(default)]
    pub boot: Option<String>,
    /// The hypervisor whose exits it has.
    #[serde(default)]
    pub hypervisor: Hypervisor,
    /// Xen's version.
    #[serde(default)]
    pub xen_version: Option<String>,
    /// The kernel's release; on Xen that of the control domain.
    pub kernel: Option<String>,
    /// The CPU's model name.
    pub processor: Option<String>,
    /// The command that made the recording.
    pub command: Option<String>,
    /// The size of the recording in bytes, uncompressed.
    pub bytes: u64,
}

impl Origin {
    /// An origin with only the format.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let hypervisor = if format == Format::Xentrace { Hypervisor::Xen } else { Hypervisor::Kvm };
        Self {
            format,
            version: None,
            host: None,
            boot: None,
            hypervisor,
            xen_version: None,
            kernel: None,
            processor: None,
            command: None,
            bytes: 0,
        }
    }

    /// Xen with its version; `None` for KVM, and if only the format identifies Xen.
    #[must_use]
    pub fn xen(&self) -> Option<String> {
        match (self.hypervisor, &self.xen_version) {
            (Hypervisor::Kvm, _) => None,
            (Hypervisor::Xen, Some(version)) => Some(format!("Xen {version}")),
            (Hypervisor::Xen, None) => (self.format != Format::Xentrace).then(|| "Xen".to_owned()),
        }
    }
}

/// The place where a recording becomes invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The offset in bytes from the start; in the uncompressed recording if it is compressed.
    pub offset: u64,
    /// The defect at that place.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged at byte {}: {}; everything whole before it was read", self.offset, self.what)
    }
}
