//! Measures time and memory of commands that take turns.

use std::io;
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A command to be measured.
pub(crate) struct Contender {
    name: String,
    words: Vec<String>,
}

impl Contender {
    pub(crate) fn new(name: &str, words: &[&str]) -> Self {
        Self { name: name.to_owned(), words: words.iter().map(|&word| word.to_owned()).collect() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Tests whether the command exists and succeeds.
    pub(crate) fn trial(&self) -> Result<(), String> {
        let status = self.command().status().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{status}")) }
    }
}

/// The measurements of one command.
#[derive(Default)]
pub(crate) struct Measured {
    wall_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
    memory_mb: Vec<f64>,
}

impl Measured {
    pub(crate) fn wall_ms(&self) -> f64 {
        median(&self.wall_ms)
    }

    pub(crate) fn cpu_ms(&self) -> f64 {
        median(&self.cpu_ms)
    }

    /// The peak resident memory.
    pub(crate) fn memory_mb(&self) -> f64 {
        self.memory_mb.iter().copied().fold(0.0, f64::max)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs all commands `runs` times, in turn.
pub(crate) fn in_turn(contenders: &[Contender], runs: usize) -> Result<Vec<Measured>, String> {
    let mut all: Vec<_> = contenders.iter().map(|_| Measured::default()).collect();
    for _ in 0..runs {
        for (contender, measured) in contenders.iter().zip(&mut all) {
            let began = Instant::now();
            let child =
                contender.command().spawn().map_err(|error| format!("{}: {error}", contender.name))?;
            let (cpu_ms, memory_mb) = wait(child).map_err(|error| format!("{}: {error}", contender.name))?;
            measured.wall_ms.push(began.elapsed().as_secs_f64() * 1e3);
            measured.cpu_ms.push(cpu_ms);
            measured.memory_mb.push(memory_mb);
        }
    }
    Ok(all)
}

/// Waits for a child, and returns its CPU time (ms) and peak resident memory (MB).
fn wait(child: Child) -> io::Result<(f64, f64)> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    let mut status = 0;
    let pid = child.id() as libc::pid_t;
    // SAFETY: both pointers are to memory of the right type that lives until the call returns.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    if status != 0 {
        return Err(io::Error::other(format!("it ended with status {status:#x}")));
    }
    // SAFETY: wait4() succeeded, so it filled the structure.
    let usage = unsafe { usage.assume_init() };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    Ok((ms(usage.ru_utime) + ms(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0))
}
