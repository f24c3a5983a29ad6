//! The recordings of a document.

use exits::{Selection, Span};
use serde::Serialize;
use traces::{Recording, Recordings};

/// The recordings, and their selected part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Head {
    files: Vec<Recording>,
    selection: Selected,
    span: Option<Span>,
}

/// The selected part of the recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Selected {
    vms: Vec<String>,
    vcpus: Vec<u32>,
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

impl Head {
    pub(crate) fn new(recordings: &Recordings) -> Self {
        Self {
            files: recordings.files.clone(),
            selection: Selected::new(recordings),
            span: recordings.observed(),
        }
    }
}

impl Selected {
    pub(crate) fn new(recordings: &Recordings) -> Self {
        let Selection { vms, vcpus } = recordings.selection.clone();
        let options = recordings.options;
        Self { vms, vcpus, from_ns: options.from_ns, to_ns: options.to_ns }
    }
}
