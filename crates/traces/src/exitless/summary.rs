//! The summary of a recording so far; the last one is final.

use std::collections::BTreeMap;

use exits::{Losses, Span};
use serde::{Deserialize, Serialize};

/// Facts besides the exits. Every batch contains the current ones, and names that no earlier batch has, so that a truncated
/// recording has those up to its end. The last one has all names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The losses since the start.
    pub losses: Losses,
    /// The names of the VMs in the header and of those that appeared later.
    pub names: BTreeMap<u32, String>,
    /// The number of occurrences of each event since the start, by name (`kvm:kvm_exit`). If it is empty, the number
    /// of exits is used as that of `kvm:kvm_exit`.
    pub events: BTreeMap<String, u64>,
    /// The end of the recording, nanoseconds of its clock, if that is later than the last exit.
    pub last_ns: Option<u64>,
}

/// The form in a batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stored {
    /// The number of exits up to and including this batch.
    pub(super) exits: u64,
    /// The span from the start to the latest known time.
    pub(super) span: Option<Span>,
    pub(super) losses: Losses,
    pub(super) names: BTreeMap<u32, String>,
    pub(super) events: BTreeMap<String, u64>,
}

/// The name of the event that each exit is.
pub(super) const EXIT_EVENT: &str = "kvm:kvm_exit";
