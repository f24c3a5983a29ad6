//! Writes recordings for tests in the format of Xen and xentrace.

use super::record::WINDOW_HEADER;

/// A recording that is written window by window.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    window_at: usize,
}

impl Written {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn words(mut self, words: impl IntoIterator<Item = u32>) -> Self {
        self.bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        if self.bytes.len() > self.window_at + 12 {
            let length = (self.bytes.len() - self.window_at - 12) as u32;
            self.bytes[self.window_at + 8..self.window_at + 12].copy_from_slice(&length.to_le_bytes());
        }
        self
    }

    /// Starts a window with records of this CPU.
    pub(super) fn window(mut self, cpu: u32) -> Self {
        self.window_at = self.bytes.len();
        self.words([WINDOW_HEADER, cpu, 0])
    }

    /// Adds a record with ticks.
    pub(super) fn at(self, ticks: u64, event: u32, words: &[u32]) -> Self {
        let header = event | (words.len() as u32) << 28 | 1 << 31;
        self.words([header, ticks as u32, (ticks >> 32) as u32].into_iter().chain(words.iter().copied()))
    }

    /// Adds a record without ticks.
    pub(super) fn then(self, event: u32, words: &[u32]) -> Self {
        self.words(std::iter::once(event | (words.len() as u32) << 28).chain(words.iter().copied()))
    }

    /// Adds an exit of SVM in 64-bit mode.
    pub(super) fn exit(self, ticks: u64, code: u32) -> Self {
        self.at(ticks, 0x0008_1103, &[code, 0x1000, 0])
    }

    pub(super) fn entry(self, ticks: u64) -> Self {
        self.at(ticks, 0x0008_1001, &[])
    }

    /// Adds a change of a runstate from `before` to `after`: 0 running, 1 runnable, 2 blocked, 3 offline.
    pub(super) fn change(self, ticks: u64, domain: u32, vcpu: u32, before: u32, after: u32) -> Self {
        self.at(ticks, 0x0002_1001 | before << 8 | after << 4, &[domain << 16 | vcpu])
    }

    /// Adds a switch: a vCPU leaves in state `after`, and another one enters.
    pub(super) fn switch(self, ticks: u64, from: (u32, u32), after: u32, to: (u32, u32)) -> Self {
        self.change(ticks, from.0, from.1, 0, after).change(ticks + 1, to.0, to.1, 1, 0)
    }

    pub(super) fn lost(self, ticks: u64, count: u32, domain: u32, vcpu: u32, since: u64) -> Self {
        self.at(ticks, 0x0001_f001, &[count, vcpu << 16 | domain, since as u32, (since >> 32) as u32])
    }
}
