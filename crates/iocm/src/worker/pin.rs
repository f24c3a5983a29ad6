//! Where a worker runs.

use rustix::thread::CpuSet;
use std::io;

/// Has this thread run on these CPUs alone, or on all where none is named.
pub(super) fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    let all = 0..CpuSet::MAX_CPU;
    let wanted: Vec<usize> = if cpus.is_empty() { all.collect() } else { cpus.to_vec() };
    if let Some(beyond) = wanted.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU) {
        let why = format!("there is no CPU {beyond}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    wanted.into_iter().for_each(|cpu| set.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
