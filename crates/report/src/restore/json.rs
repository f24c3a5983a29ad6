//! Changes in the journal, for programs.

use knobs::{Recorded, Restored};
use serde::Serialize;

use crate::json::Document;

/// The output of `restore --json`.
#[must_use]
pub fn restored(restored: &Restored) -> impl Serialize {
    Document::new(restored)
}

/// The output of `restore --list --json`.
#[must_use]
pub fn kept(recorded: &Recorded) -> impl Serialize {
    Document::new(recorded)
}
