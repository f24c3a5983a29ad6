//! What the kernel's log says of virtualization and interrupts.

use crate::Fact;

/// Lines of the kernel's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Those that concern KVM, IOMMUs, APICs, lockdown and warnings of these, oldest first. The log is a ring: an
    /// early line that is not there need not mean that it was never written.
    pub lines: Fact<Vec<LogLine>>,
    /// Whether the log begins with the kernel's first message, so that a line's absence means something.
    pub whole: bool,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Microseconds since boot.
    pub microseconds: u64,
    /// The message without its time.
    pub text: String,
}

impl KernelLog {
    /// The first line that contains the text, case counting.
    #[must_use]
    pub fn line_with(&self, text: &str) -> Option<&LogLine> {
        self.lines.get()?.iter().find(|line| line.text.contains(text))
    }
}
