//! The sampler on tracepoints that every kernel has: system calls of the test's own thread.
//!
//! Needs tracefs and the privilege to read raw tracepoints; otherwise the tests are skipped.

use live::{EventFormat, Record, ThreadSamples, Tracefs, TracepointSampler};
use std::path::Path;

const CALLS: u64 = 500;

struct Bench {
    enter: EventFormat,
    exit: EventFormat,
    thread: i32,
}

/// The events; `None`, with the reason printed, if they are not available.
fn bench() -> Option<Bench> {
    let formats = Tracefs::find(Path::new("/")).and_then(|tracefs| {
        Ok((tracefs.format("raw_syscalls", "sys_enter")?, tracefs.format("raw_syscalls", "sys_exit")?))
    });
    match formats {
        Ok((enter, exit)) => {
            // SAFETY: gettid has no preconditions.
            let thread = unsafe { libc::gettid() };
            Some(Bench { enter, exit, thread })
        }
        Err(error) => {
            eprintln!("not tested: {error}");
            None
        }
    }
}

impl Bench {
    fn sample(&self, bytes: usize, calls: u64) -> Option<(TracepointSampler, ThreadSamples)> {
        let events = [&self.enter, &self.exit];
        let mut sampler = match TracepointSampler::open(&events, &[self.thread], bytes) {
            Ok(sampler) => sampler,
            Err(error) => {
                eprintln!("not tested: {error}");
                return None;
            }
        };
        sampler.enable().unwrap();
        for _ in 0..calls {
            // SAFETY: getppid has no preconditions; only its system call matters.
            unsafe { libc::getppid() };
        }
        sampler.disable().unwrap();
        let mut drained = sampler.drain().unwrap();
        assert_eq!(drained.len(), 1);
        Some((sampler, drained.remove(0)))
    }

    fn calls_seen(&self, samples: &ThreadSamples) -> u64 {
        let (event, number) = (self.enter.field("common_type").unwrap(), self.enter.field("id").unwrap());
        let is_call = |raw: &[u8]| {
            event.read(raw) == Some(self.enter.id.into())
                && number.read(raw) == Some(libc::SYS_getppid as u64)
        };
        let samples = samples.records().filter(|record| match record {
            Record::Sample(sample) => sample.tid == self.thread && is_call(sample.raw),
            _ => false,
        });
        samples.count() as u64
    }
}

#[test]
fn every_call_is_seen_in_order() {
    let Some(bench) = bench() else { return };
    let Some((mut sampler, samples)) = bench.sample(1 << 20, CALLS) else { return };
    assert_eq!(bench.calls_seen(&samples), CALLS);
    let times: Vec<u64> = samples
        .records()
        .filter_map(|record| if let Record::Sample(sample) = record { Some(sample.time_ns) } else { None })
        .collect();
    assert!(times.is_sorted());
    let total: u64 = samples.totals.iter().map(|total| total.count).sum();
    assert_eq!(times.len() as u64, total);
    assert_eq!(samples.total(bench.enter.id).unwrap().lost.unwrap_or(0), 0);

    let again = sampler.drain().unwrap();
    assert_eq!(again[0].records().count(), 0, "drained twice");
}

#[test]
fn what_finds_no_room_is_counted() {
    let Some(bench) = bench() else { return };
    let Some((_sampler, samples)) = bench.sample(1, CALLS) else { return };
    let recorded = samples.records().filter(|record| matches!(record, Record::Sample(_))).count() as u64;
    let total: u64 = samples.totals.iter().map(|total| total.count).sum();
    assert!(recorded > 0 && recorded < 2 * CALLS, "{recorded} recorded");
    assert!(total >= 2 * CALLS);
    if let Some(lost) = samples.totals.iter().map(|total| total.lost).sum::<Option<u64>>() {
        assert_eq!(recorded + lost, total);
    }
}

#[test]
fn a_thread_that_is_gone_is_named() {
    let Some(bench) = bench() else { return };
    let gone = std::thread::spawn(|| {
        // SAFETY: gettid has no preconditions.
        unsafe { libc::gettid() }
    });
    let thread = gone.join().unwrap();
    let error = TracepointSampler::open(&[&bench.enter], &[thread], 1).unwrap_err();
    assert!(error.to_string().contains(&thread.to_string()), "{error}");
}
