//! A fact, or why it is not known; and what says so.

/// What a fact rests on: a place and its very text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Evidence {
    /// A file as the host names it (`/sys/module/kvm_amd/parameters/avic`), an instruction (`CPUID 8000000Ah EDX`), a
    /// register (`MSR 48Bh`) or a command (`xl info`).
    pub place: String,
    /// What it says, as it says it; of long texts the lines that matter.
    pub text: String,
}

impl Evidence {
    /// `text` at `place`.
    #[must_use]
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

/// What kind of absence it is; each asks for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AbsenceKind {
    /// The file is not there: the kernel, the hardware or the configuration does not offer it.
    NotThere,
    /// This user may not read it; root may.
    Denied,
    /// Reading failed otherwise.
    Unreadable,
    /// It was read and says something else than expected.
    Malformed,
    /// The host that is looked at is not this machine, and nobody kept the answer.
    NotKept,
    /// The question has no meaning on this host (a register of the other vendor).
    NotApplicable,
}

/// Why a fact is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Absence {
    /// The kind.
    pub kind: AbsenceKind,
    /// A sentence without its full stop: what was tried, the cause, and the next step where there is one.
    pub why: String,
}

/// A value or the reason of its absence, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<T> {
    /// The value.
    pub value: Result<T, Absence>,
    /// What says so. Of an absent fact what was read all the same, often nothing.
    pub evidence: Vec<Evidence>,
}

impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self::absent(AbsenceKind::NotApplicable, "it was not looked at")
    }
}

impl<T> Fact<T> {
    /// A known value and the one text it rests on.
    pub fn known(value: T, place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { value: Ok(value), evidence: vec![Evidence::new(place, text)] }
    }

    /// An absent one without evidence.
    pub fn absent(kind: AbsenceKind, why: impl Into<String>) -> Self {
        Self { value: Err(Absence { kind, why: why.into() }), evidence: Vec::new() }
    }

    /// The value, when it is known.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().ok()
    }

    /// Why it is not known.
    pub fn absence(&self) -> Option<&Absence> {
        self.value.as_ref().err()
    }

    /// Another value out of this one, resting on the same.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        Fact { value: self.value.map(change), evidence: self.evidence }
    }

    /// A part of this one, resting on the same.
    pub fn part<U>(&self, take: impl FnOnce(&T) -> U) -> Fact<U> {
        Fact { value: self.value.as_ref().map(take).map_err(Clone::clone), evidence: self.evidence.clone() }
    }

    /// This one where it is known; else the other, and where that is absent too, this one's reason.
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
