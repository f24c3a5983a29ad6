//! The machine on which a bench runs: its load, its CPUs, and the CPU time of processes.
#![allow(dead_code, reason = "each bench uses a part of it")]

/// The load average of the machine over the last minute.
pub(crate) fn busy() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Restricts this thread, and what it starts, to these CPUs. Does nothing on a machine that lacks them.
pub(crate) fn run_on(cpus: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The CPU time that a process has used, in seconds.
pub(crate) fn cpu(pid: u32) -> std::io::Result<f64> {
    let mut used = 0.0;
    // Only the scheduler knows the time since the last tick.
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match std::fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            // A thread that has just ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => continue,
            Err(error) => return Err(error),
        };
        used += text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9;
    }
    Ok(used)
}

/// The number of rounds on the command line.
pub(crate) fn rounds() -> u32 {
    std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(3)
}

/// The PARTs on the command line.
pub(crate) fn parts() -> Vec<String> {
    let is_part = |word: &String| !word.starts_with('-') && word.parse::<u32>().is_err();
    std::env::args().skip(1).filter(is_part).collect()
}

/// Keeps those whose names contain a PART of the command line; all, if there is none. Returns whether there was one.
pub(crate) fn keep_chosen<T>(all: &mut Vec<T>, name: impl Fn(&T) -> String) -> bool {
    let parts = parts();
    let chosen = |one: &T| parts.iter().any(|part| name(one).contains(part.as_str()));
    let is_part_of_all = all.iter().any(chosen);
    if is_part_of_all {
        all.retain(chosen);
    }
    is_part_of_all
}
