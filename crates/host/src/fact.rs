//! A fact with its evidence, or the reason why it is unknown.

/// The evidence of a fact: a place and its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Evidence {
    /// A file as the host names it (`/sys/module/kvm_amd/parameters/avic`), an instruction (`CPUID 8000000Ah EDX`), a
    /// register (`MSR 48Bh`) or a command (`xl info`).
    pub place: String,
    /// Its literal text; for long texts the relevant lines.
    pub text: String,
}

impl Evidence {
    /// Evidence of `text` at `place`.
    #[must_use]
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

/// The kind of an absence, which determines the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AbsenceKind {
    /// The file does not exist: the kernel, the hardware or the configuration does not provide it.
    NotThere,
    /// This user has no permission to read it; root may have.
    Denied,
    /// Reading failed for another reason.
    Unreadable,
    /// The content is not as expected.
    Malformed,
    /// The host is not this machine, and the answer was not kept.
    NotKept,
    /// The question does not apply to this host (a register of the other vendor).
    NotApplicable,
}

/// The reason why a fact is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Absence {
    /// The kind.
    pub kind: AbsenceKind,
    /// A sentence without its full stop: the attempt, the cause, and the next step if there is one.
    pub why: String,
}

/// A value with its evidence, or the reason of its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<T> {
    /// The value.
    pub value: Result<T, Absence>,
    /// The evidence. For an absent fact, whatever was read; often empty.
    pub evidence: Vec<Evidence>,
}

impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self::absent(AbsenceKind::NotApplicable, "it was not looked at")
    }
}

impl<T> Fact<T> {
    /// A known value with one piece of evidence.
    pub fn known(value: T, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { value: Ok(value), evidence: vec![Evidence::new(place, text)] }
    }

    /// An absent fact without evidence.
    pub fn absent(kind: AbsenceKind, why: impl Into<String>) -> Self {
        Self { value: Err(Absence { kind, why: why.into() }), evidence: Vec::new() }
    }

    /// The value, if known.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().ok()
    }

    /// The reason why it is unknown.
    pub fn absence(&self) -> Option<&Absence> {
        self.value.as_ref().err()
    }

    /// Converts the value, with the same evidence.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        Fact { value: self.value.map(change), evidence: self.evidence }
    }

    /// A part of the value, with the same evidence.
    pub fn part<U>(&self, take: impl FnOnce(&T) -> U) -> Fact<U> {
        Fact { value: self.value.as_ref().map(take).map_err(Clone::clone), evidence: self.evidence.clone() }
    }

    /// This fact if it is known, otherwise the other; if both are absent, this fact with its reason.
    #[must_use]
    pub fn or(self, other: impl FnOnce() -> Self) -> Self {
        if self.value.is_ok() {
            return self;
        }
        let other = other();
        if other.value.is_ok() { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_when_nothing_is_known() {
        let first = || Fact::<u32>::absent(AbsenceKind::Denied, "first");
        assert_eq!(first().or(|| Fact::absent(AbsenceKind::NotThere, "second")), first());
        let known = first().or(|| Fact::known(7, "/a", "7"));
        assert_eq!((known.get(), known.evidence.as_slice()), (Some(&7), &[Evidence::new("/a", "7")][..]));
        assert_eq!(known.part(|value| value + 1).map(|value| value * 2).value, Ok(16));
        assert_eq!(first().absence().map(|absence| absence.kind), Some(AbsenceKind::Denied));
    }
}
