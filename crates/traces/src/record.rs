//! Exits one by one, for those who want more than sums.

use exits::{Access, AccessKind, ExitReason, Vcpu};

/// One exit with what happened until the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// When the guest was left, nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Whose exit it is. The vCPU's number is unknown until its first entry was seen.
    pub vcpu: Vcpu,
    /// The processor that left the guest.
    pub cpu: u16,
    /// Why.
    pub reason: ExitReason,
    /// The guest's instruction pointer, zero when the recording does not have it.
    pub guest_rip: u64,
    /// The last port, address or register that the host handled before the next entry; a nested guest's exit
    /// ([`Access::Nested`]) is none of them.
    pub access: Option<Access>,
    /// Time to the next entry, nanoseconds; `None` when it is not known.
    pub handling_ns: Option<u64>,
}

/// A port, address or register that the host handled for an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRecord {
    /// Which.
    pub access: Access,
    /// The handling time in nanoseconds, as [`exits::Exits::handling`] defines it for accesses; `None` when it is not
    /// known, or when a later access of the same sort took its place.
    pub handling_ns: Option<u64>,
}

impl AccessRecord {
    /// [`ExitRecord::access`] of an exit with these accesses, in order of time.
    #[must_use]
    pub fn last_of_exit(accesses: &[Self]) -> Option<Access> {
        let mut of_exit = accesses.iter().map(|one| one.access);
        of_exit.rfind(|access| access.kind() != AccessKind::Nested)
    }
}

/// Takes exits one by one while a recording is read: those of one vCPU in order of time. It is called on
/// several threads, but never on two at once.
pub trait Sink: Send {
    /// It is useless without the exits: a recording that has sums alone is then refused.
    const WANTS_EXITS: bool = true;
    /// [`Self::exit_with`] needs the accesses; gathering them takes time.
    const WANTS_ACCESSES: bool = false;

    /// Takes one exit.
    fn exit(&mut self, exit: &ExitRecord);

    /// Takes one exit with all of its accesses that count, in order of time, or none where
    /// [`Self::WANTS_ACCESSES`] is not set. [`ExitRecord::access`] alone may be a read that nobody answered.
    fn exit_with(&mut self, exit: &ExitRecord, _accesses: &[AccessRecord]) {
        self.exit(exit);
    }

    /// The recorder says that it dropped so many events, of whichever kind.
    fn lost(&mut self, _events: u64) {}
}

/// Takes nothing.
impl Sink for () {
    const WANTS_EXITS: bool = false;

    fn exit(&mut self, _: &ExitRecord) {}
}

impl<F: FnMut(&ExitRecord) + Send> Sink for F {
    fn exit(&mut self, exit: &ExitRecord) {
        self(exit);
    }
}
