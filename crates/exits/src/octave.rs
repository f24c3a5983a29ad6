//! Handling times as counters in the kernel keep them.

/// Times of one octave of the histogram: what a program in the kernel can add to without loops.
///
/// Octave 0 has the times below 32 ns, a bucket each; octave `n` those from `16 << n` ns up to twice that, in 32
/// buckets of equal width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Octave {
    /// Which octave, 0 to 59.
    pub number: u8,
    /// Sum of the times, nanoseconds.
    pub total_ns: u64,
    /// Sum of their squares.
    pub squares_ns2: u128,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// How many lie in each bucket.
    pub buckets: [u32; 32],
}
