//! Bytes that were read ahead.

/// Bytes that were read, but not handed out yet.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that were handed out or skipped. They are not removed each time, which would take
    /// quadratic time.
    passed: usize,
}

impl Ahead {
    /// The bytes that are left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.passed..]
    }

    /// Skips the first `count` bytes, or all.
    pub(super) fn pass(&mut self, count: usize) {
        self.passed = (self.passed + count).min(self.bytes.len());
    }

    /// Replaces the contents.
    pub(super) fn replace(&mut self, rest: &[u8]) {
        self.clear();
        self.bytes.extend_from_slice(rest);
    }

    /// Removes all bytes.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.passed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_is_gone() {
        let mut ahead = Ahead::default();
        ahead.replace(b"records");
        ahead.pass(3);
        assert_eq!(ahead.rest(), b"ords");
        ahead.replace(b"more");
        assert_eq!(ahead.rest(), b"more");
        ahead.pass(9);
        assert!(ahead.rest().is_empty());
        ahead.clear();
        ahead.pass(1);
        assert!(ahead.rest().is_empty());
    }
}
