//! The summary of a recording so far, final at its end.

use std::collections::BTreeMap;

use exits::{Losses, Span};
use serde::{Deserialize, Serialize};

/// A recorder's facts beside the exits. Every batch of a recording holds the newest, so that a cut recording has the
/// last known ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The losses since the start.
    pub losses: Losses,
    /// Names of VMs: those of the header and those that came later.
    pub names: BTreeMap<u32, String>,
    /// The number of occurrences of each event since the start, by its name (`kvm:kvm_exit`). When it is empty, the
    /// exits, if any, are counted as `kvm:kvm_exit`.
    pub events: BTreeMap<String, u64>,
    /// Until when was recorded, nanoseconds of the recording's clock, where that is later than the last exit.
    pub last_ns: Option<u64>,
}

/// Its form in a batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stored {
    /// Exits up to the end of this batch.
    pub(super) exits: u64,
    /// From the beginning to the latest moment that is known of.
    pub(super) span: Option<Span>,
    pub(super) losses: Losses,
    pub(super) names: BTreeMap<u32, String>,
    pub(super) events: BTreeMap<String, u64>,
}

/// The event that an exit is.
pub(super) const EXIT_EVENT: &str = "kvm:kvm_exit";
