//! Findings of `exitless vm lint` for programs.

use doctor::{Section, Tally};
use serde::Serialize;

use crate::json::Document;

/// Findings by section, with their tally.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    /// The subject: a file, a process, a domain, or the host.
    subject: &'a str,
    summary: Tally,
    /// The reason why the definition was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<&'a str>,
    sections: &'a [Section],
    /// Parts of a definition that were not understood.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    doubts: &'a [String],
}

/// The findings as a document, with the parts of a definition that were not understood.
#[must_use]
pub fn json<'a>(subject: &'a str, sections: &'a [Section], doubts: &'a [String]) -> impl Serialize {
    Document::new(Fields {
        subject,
        summary: Tally::of(sections.iter().flat_map(|section| &section.findings)),
        not_judged: doctor::not_judged(sections),
        sections,
        doubts,
    })
}
