//! The reason why a table has no rows, and what to do.

use exits::{AccessKind, Table};
use traces::{Format, Recordings};

use crate::format::count;
use crate::recordings::{nothing_in_window, nothing_read, words::window};

/// The source of exits, by the advice to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The running hypervisor: everything that the table needs was requested from it.
    Live,
    /// `exitless record`, which records everything unless told otherwise.
    Own,
    /// Xen's trace buffers.
    Xentrace,
    /// KVM's tracepoints.
    Kvm,
}

impl Source {
    fn of(recordings: &Recordings) -> Self {
        match recordings.files.first().map(|file| file.origin.format) {
            Some(Format::Live) => Self::Live,
            Some(Format::Exits | Format::Profile) => Self::Own,
            Some(Format::Xentrace) => Self::Xentrace,
            _ => Self::Kvm,
        }
    }
}

/// The text that replaces the rows of `table`.
pub(crate) fn why_empty(recordings: &Recordings, table: &Table) -> String {
    let profile = &recordings.profile;
    let source = Source::of(recordings);
    if !table.grouping().access_kinds().is_empty() && !profile.is_empty() {
        return without_accesses(source, table);
    }
    if let Some(why) = nothing_in_window(recordings) {
        return format!("The recording has {why}.");
    }
    if let Some(window) = window(recordings.options) {
        return format!("No VM was left in the time asked for ({window}).");
    }
    if let Some(why) = nothing_read(recordings) {
        return why;
    }
    let how = match source {
        Source::Live | Source::Own => {
            return "There is no exit to report: no VM had one in this time. Did one run?".to_owned();
        }
        Source::Xentrace => "xentrace -D -e 0xaf000",
        Source::Kvm => "perf kvm stat record -a -o perf.data",
    };
    let found: Vec<_> =
        profile.events.iter().map(|(name, &number)| format!("{name} {}", count(number))).collect();
    let found = match found.is_empty() {
        true => "no event at all".to_owned(),
        false => format!("these events: {}", found.join(", ")),
    };
    format!(
        "There is no exit to report: the recording has {found}. Was a VM running while it was made? Record all of \
         them with `{how}` while they run."
    )
}

fn without_accesses(source: Source, table: &Table) -> String {
    let why = match source {
        Source::Live => "no exit in this time was for one of these.".to_owned(),
        Source::Own => "no exit was for one of these, or they were left out by --no-accesses.".to_owned(),
        Source::Xentrace => "the exits came with no record of an access of this kind. \
            `xentrace -D -e 0xaf000` writes all that Xen has."
            .to_owned(),
        Source::Kvm => {
            let events: Vec<_> = table.grouping().access_kinds().into_iter().filter_map(event).collect();
            format!(
                "the exits that were asked for came with no event {}. `trace-cmd record -e kvm` records all events \
                 of KVM.",
                events.join(" or "),
            )
        }
    };
    format!("There is nothing to list: {why}")
}

/// The event that reports accesses of this kind.
fn event(kind: AccessKind) -> Option<&'static str> {
    match kind {
        AccessKind::Port => Some("kvm:kvm_pio"),
        AccessKind::Mmio => Some("kvm:kvm_mmio"),
        AccessKind::Msr => Some("kvm:kvm_msr"),
        AccessKind::Apic => Some("kvm:kvm_apic"),
        AccessKind::IncompleteIpi => Some("kvm:kvm_avic_incomplete_ipi"),
        AccessKind::Unaccelerated => Some("kvm:kvm_avic_unaccelerated_access"),
        AccessKind::Nested => Some("kvm:kvm_nested_vmexit"),
        _ => None,
    }
}
