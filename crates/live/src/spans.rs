//! The unread bytes of a ring buffer.

use std::ops::Range;

/// The unread bytes as at most two ranges of the ring, in order; the second one begins at 0.
///
/// `head` and `tail` count all bytes ever written and read, as in `struct perf_event_mmap_page`. `None` if they are
/// impossible for a ring of `size` bytes: then nothing in it can be trusted.
pub(crate) fn unread(size: usize, tail: u64, head: u64) -> Option<[Range<usize>; 2]> {
    let length = usize::try_from(head.checked_sub(tail)?).ok()?;
    if size == 0 || length > size {
        return None;
    }
    let start = usize::try_from(tail % size as u64).ok()?;
    let first = length.min(size - start);
    Some([start..start + first, 0..length - first])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn straight_and_wrapped() {
        assert_eq!(unread(16, 4, 12), Some([4..12, 0..0]));
        assert_eq!(unread(16, 28, 36), Some([12..16, 0..4]));
        assert_eq!(unread(16, 16, 32), Some([0..16, 0..0]));
        assert_eq!(unread(16, 5, 5), Some([5..5, 0..0]));
    }

    #[test]
    fn impossible_positions() {
        assert_eq!(unread(16, 5, 4), None);
        assert_eq!(unread(16, 0, 17), None);
        assert_eq!(unread(0, 0, 0), None);
    }

    proptest! {
        #[test]
        fn a_wrapped_record_reads_as_written(size in 1..64usize, tail in 0..1000u64, length in 0..64usize) {
            let length = length % (size + 1);
            let written: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut ring = vec![0xff; size];
            for (at, byte) in written.iter().enumerate() {
                ring[((tail + at as u64) % size as u64) as usize] = *byte;
            }
            let spans = unread(size, tail, tail + length as u64).unwrap();
            let read: Vec<u8> = spans.into_iter().flat_map(|span| ring[span].to_vec()).collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn spans_stay_inside(size in 0..100usize, tail: u64, head: u64) {
            if let Some(spans) = unread(size, tail, head) {
                prop_assert!(spans.iter().all(|span| span.start <= span.end && span.end <= size));
            }
        }
    }
}
