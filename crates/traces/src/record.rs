//! Single exits, for users that need more than sums.

use exits::{Access, AccessKind, ExitReason, Vcpu};

/// An exit with the events up to the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// The time of the exit, nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The vCPU. Its number is unknown until its first entry was seen.
    pub vcpu: Vcpu,
    /// The processor that left the guest.
    pub cpu: u16,
    /// The exit reason.
    pub reason: ExitReason,
    /// The guest's instruction pointer, zero if it is not known.
    pub guest_rip: u64,
    /// The last port, address or register that the host handled before the next entry; never a nested guest's exit
    /// ([`Access::Nested`]).
    pub access: Option<Access>,
    /// The time to the next entry, nanoseconds; `None` if it is not known.
    pub handling_ns: Option<u64>,
}

/// A port, address or register that the host handled in an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRecord {
    /// The port, address or register.
    pub access: Access,
    /// The handling time in nanoseconds, as [`exits::Exits::handling`] defines it for accesses; `None` if it is not
    /// known, or if a later access of the same class followed in the same exit.
    pub handling_ns: Option<u64>,
}

impl AccessRecord {
    /// The [`ExitRecord::access`] of an exit with these accesses, in order of time.
    #[must_use]
    pub fn last_of_exit(accesses: &[Self]) -> Option<Access> {
        let mut of_exit = accesses.iter().map(|one| one.access);
        of_exit.rfind(|access| access.kind() != AccessKind::Nested)
    }
}

/// Receives single exits while a recording is read; those of one vCPU are in order of time. Called from several
/// threads, but never from two at the same time.
pub trait Sink: Send {
    /// True if it needs single exits: a recording of sums is then refused.
    const WANTS_EXITS: bool = true;
    /// True if [`Self::exit_with`] needs the accesses; collecting them takes time.
    const WANTS_ACCESSES: bool = false;

    /// Receives an exit.
    fn exit(&mut self, exit: &ExitRecord);

    /// Receives an exit with all its accesses that count, in order of time, or with none if [`Self::WANTS_ACCESSES`]
    /// is false. [`ExitRecord::access`] may be a read that was never completed, which is not among them.
    fn exit_with(&mut self, exit: &ExitRecord, _accesses: &[AccessRecord]) {
        self.exit(exit);
    }

    /// Receives the number of events of any kind that the recorder dropped.
    fn lost(&mut self, _events: u64) {}
}

/// Ignores everything.
impl Sink for () {
    const WANTS_EXITS: bool = false;

    fn exit(&mut self, _: &ExitRecord) {}
}

impl<F: FnMut(&ExitRecord) + Send> Sink for F {
    fn exit(&mut self, exit: &ExitRecord) {
        self(exit);
    }
}
