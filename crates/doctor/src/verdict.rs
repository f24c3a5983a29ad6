//! The verdict of a rule: the part of a finding that depends on the host or definition.

use crate::{Evidence, Finding, Fix, State};

/// The verdict of a rule.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) state: State,
    pub(crate) found: String,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) fixes: Vec<Fix>,
}

impl Verdict {
    pub(crate) fn of(state: State, found: impl Into<String>) -> Self {
        Self { state, found: found.into(), evidence: Vec::new(), fixes: Vec::new() }
    }

    pub(crate) fn pass(found: impl Into<String>) -> Self {
        Self::of(State::Pass, found)
    }

    pub(crate) fn warn(found: impl Into<String>) -> Self {
        Self::of(State::Warn, found)
    }

    pub(crate) fn fail(found: impl Into<String>) -> Self {
        Self::of(State::Fail, found)
    }

    pub(crate) fn skip(why: impl Into<String>) -> Self {
        Self::of(State::Skip(why.into()), "")
    }

    /// Adds evidence: a place and its value.
    pub(crate) fn seen(mut self, place: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(Evidence { place: place.into(), value: value.into() });
        self
    }

    /// Adds a fix that only people can make.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.fixes.push(Fix::Advice(advice.into()));
        self
    }

    /// The finding of a rule with this verdict.
    pub(crate) fn finding(self, name: &str, title: &str, why: &str, source: &str) -> Finding {
        Finding {
            rule: name.to_owned(),
            title: title.to_owned(),
            state: self.state,
            found: self.found,
            why: why.to_owned(),
            evidence: self.evidence,
            fixes: self.fixes,
            source: source.to_owned(),
            children: Vec::new(),
        }
    }
}
