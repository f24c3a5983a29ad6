//! Exits one by one, for those who want more than sums.

use exits::{Access, ExitReason, Vcpu};

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
    /// Where the guest was, zero when the recording does not say.
    pub guest_rip: u64,
    /// The last port, address or register that the host handled before the next entry.
    pub access: Option<Access>,
    /// Time to the next entry, nanoseconds; `None` when it is not known.
    pub handling_ns: Option<u64>,
}

/// Takes exits one by one while a recording is read: those of one vCPU in order of time. It is called on
/// several threads, but never on two at once.
pub trait Sink: Send {
    /// Takes one exit.
    fn exit(&mut self, exit: &ExitRecord);
}

/// Takes nothing.
impl Sink for () {
    fn exit(&mut self, _: &ExitRecord) {}
}

impl<F: FnMut(&ExitRecord) + Send> Sink for F {
    fn exit(&mut self, exit: &ExitRecord) {
        self(exit);
    }
}
