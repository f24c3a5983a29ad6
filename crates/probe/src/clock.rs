//! The ticks of the time stamp counter per instruction, on each of a host's CPUs, while the other CPUs are idle and
//! while they are busy. An emulator that derives the TSC from the instruction count must show the same rate everywhere:
//! only then can two measurements in it be compared.

mod instructions;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::threads::{allowed_cpus, pin_to};

/// The largest number of CPUs to measure.
const CPUS: usize = 4;
/// The instructions of one sample. The host's timer interrupts are not subtracted: every measurement includes them.
const SAMPLE: u64 = 208_000;
/// The samples of one measurement; their median is the result.
const SAMPLES: usize = 9;

/// The promise of an emulator about its clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Ticks per instruction.
    pub rate: f64,
    /// The tolerated deviation of a measurement, as a fraction of the rate.
    pub tolerance: f64,
    /// True if the rate is the same while other CPUs are busy.
    pub beside_busy_cpus: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// The host's number of the CPU that executed the loop.
    pub cpu: usize,
    /// The number of other CPUs that were busy meanwhile; the rest were idle.
    pub busy: usize,
    /// The number of instructions in the loop.
    pub length: u32,
    /// Ticks per instruction: the lowest sample, the median and the highest.
    pub rate: [f64; 3],
}

impl Promise {
    /// Tests whether `row` is within the promise. Without [`Promise::beside_busy_cpus`] nothing is promised for a CPU
    /// beside busy ones.
    pub fn holds(&self, row: &Measurement) -> bool {
        let promised = row.busy == 0 || self.beside_busy_cpus;
        !promised || (row.rate[1] / self.rate - 1.0).abs() <= self.tolerance
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, busy, length, rate: [lowest, median, highest] } = self;
        write!(formatter, "CPU {cpu}, {busy} others busy, loop of {length:2}: ")?;
        write!(formatter, "{median:.3} ticks an instruction ({lowest:.3} to {highest:.3})")
    }
}

/// Measures each of the first four CPUs that this thread may use, with the others idle and busy, by loops of 2 and of 26
/// instructions.
///
/// # Errors
/// The kernel refuses to return or to set a thread's CPU affinity.
pub fn measure() -> io::Result<Vec<Measurement>> {
    let allowed = allowed_cpus()?;
    let mut rows = Vec::new();
    for &cpu in allowed.iter().take(CPUS) {
        let others: Vec<usize> = allowed.iter().copied().filter(|&other| other != cpu).collect();
        rows.extend(measure_cpu(cpu, &[])?);
        if !others.is_empty() {
            rows.extend(measure_cpu(cpu, &others)?);
        }
    }
    Ok(rows)
}

fn measure_cpu(cpu: usize, busy: &[usize]) -> io::Result<[Measurement; 2]> {
    let (stop, ready) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let keep_busy = |other| {
            let pinned = pin_to(other);
            ready.fetch_add(1, Ordering::SeqCst);
            while pinned.is_ok() && !stop.load(Ordering::Relaxed) {
                instructions::rounds_of_26(100);
            }
            pinned
        };
        let others: Vec<_> = busy.iter().map(|&other| scope.spawn(move || keep_busy(other))).collect();
        let measured = scope.spawn(|| {
            pin_to(cpu)?;
            while ready.load(Ordering::SeqCst) < busy.len() {
                thread::yield_now();
            }
            let row = |length, rate| Measurement { cpu, busy: busy.len(), length, rate };
            Ok([row(2, rate(2, instructions::rounds_of_2)), row(26, rate(26, instructions::rounds_of_26))])
        });
        let measured =
            measured.join().unwrap_or_else(|_| Err(io::Error::other("the measuring thread panicked")));
        stop.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap_or_else(|_| Err(io::Error::other("a busy thread panicked")))?;
        }
        measured
    })
}

fn rate(length: u64, rounds_of: fn(u64)) -> [f64; 3] {
    let mut samples = [0.0; SAMPLES];
    for sample in &mut samples {
        let begun = instructions::ticks();
        rounds_of(SAMPLE / length);
        *sample = instructions::ticks().wrapping_sub(begun) as f64 / SAMPLE as f64;
    }
    samples.sort_by(f64::total_cmp);
    [samples[0], samples[SAMPLES / 2], samples[SAMPLES - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise { rate: 8.0, tolerance: 0.03, beside_busy_cpus: false };

    fn row(busy: usize, median: f64) -> Measurement {
        Measurement { cpu: 1, busy, length: 2, rate: [median - 0.1, median, median + 0.1] }
    }

    #[test]
    fn a_rate_outside_the_tolerance_breaks_the_promise() {
        assert!(PROMISE.holds(&row(0, 8.2)) && PROMISE.holds(&row(0, 7.8)));
        assert!(
            !PROMISE.holds(&row(0, 8.3)) && !PROMISE.holds(&row(0, 7.7)) && !PROMISE.holds(&row(0, f64::NAN))
        );
    }

    #[test]
    fn what_is_not_promised_cannot_be_broken() {
        assert!(PROMISE.holds(&row(1, 14.4)));
        assert!(!Promise { beside_busy_cpus: true, ..PROMISE }.holds(&row(1, 14.4)));
    }

    #[test]
    fn every_cpu_is_measured_alone_and_beside_the_others() {
        let rows = measure().unwrap();
        let cpus = allowed_cpus().unwrap().len();
        let cases = if cpus > 1 { 4 } else { 2 };
        assert_eq!(rows.len(), cpus.min(CPUS) * cases);
        assert!(rows.iter().all(|row| row.busy == 0 || row.busy == cpus - 1), "{rows:?}");
        assert!(rows.iter().all(|row| row.rate[0] > 0.0 && row.rate[0] <= row.rate[2]), "{rows:?}");
    }

    #[test]
    fn a_row_is_one_line_with_its_case() {
        let text = row(1, 8.0).to_string();
        assert_eq!(text, "CPU 1, 1 others busy, loop of  2: 8.000 ticks an instruction (7.900 to 8.100)");
    }
}
