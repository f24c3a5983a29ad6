//! Handling times as the BPF programs count them.

/// The times in one octave of the histogram. A BPF program can add to it without loops.
///
/// Octave 0 has the times below 32 ns, one bucket each. Octave `n` has those from `16 << n` ns up to twice that, in
/// 32 buckets of equal width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Octave {
    /// The number of the octave, 0 to 59.
    pub number: u8,
    /// Sum of the times, nanoseconds.
    pub total_ns: u64,
    /// Sum of their squares.
    pub squares_ns2: u128,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// The count of each bucket.
    pub buckets: [u32; 32],
}
