//! A loader of eBPF programs that does not read the kernel's type information.

use aya::EbpfLoader;
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use std::error::Error;
use std::thread;

/// A loader. aya 0.14 parses the kernel's whole type information when it creates one: 60 million instructions and
/// tens of MiB at each start of a collector. Our programs get their offsets differently, so the loader is created in
/// a thread that may not open files. If that thread cannot be set up, type information is parsed. (aya 0.16 parses it
/// only for programs that need it, but requires Rust 1.98.)
pub(crate) fn without_types() -> EbpfLoader<'static> {
    let make = || {
        if let Err(error) = open_no_files() {
            tracing::debug!("The loader of eBPF programs reads the kernel's types: {error}");
        }
        EbpfLoader::new()
    };
    let made = thread::Builder::new().spawn(make).ok().and_then(|thread| thread.join().ok());
    made.unwrap_or_default()
}

/// Makes the kernel refuse to open files for this thread.
fn open_no_files() -> Result<(), Box<dyn Error>> {
    let calls = [libc::SYS_open, libc::SYS_openat].map(|call| (call, Vec::new()));
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter =
        SeccompFilter::new(calls.into_iter().collect(), SeccompAction::Allow, refused, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into().map_err(|error: BackendError| error)?;
    Ok(apply_filter(&program)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The number of bytes that this process has read.
    fn read() -> u64 {
        let text = fs::read_to_string("/proc/self/io").unwrap();
        text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }

    #[test]
    fn a_loader_is_made_without_reading_the_kernels_types() {
        let Ok(types) = fs::metadata("/sys/kernel/btf/vmlinux") else {
            println!("not tested: this kernel tells no types");
            return;
        };
        let before = read();
        drop(without_types());
        let read = read() - before;
        assert!(read < types.len() / 10, "{read} of {} bytes", types.len());
    }
}
