//! The machine on which a bench runs: its load, its CPUs, and the CPU time of processes. Each bench uses a part of it.
#![allow(dead_code, reason = "each bench uses a part of it")]

/// The load average of the machine over the last minute.
pub(crate) fn busy() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Restricts this thread, and what it starts, to these CPUs; on a machine that lacks them it stays where it is.
pub(crate) fn run_on(cpus: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Seconds of CPU that a process has used.
pub(crate) fn cpu(pid: u32) -> std::io::Result<f64> {
    let mut used = 0.0;
    // What ran since the last tick is known by the scheduler alone.
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        used += text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9;
    }
    Ok(used)
}
