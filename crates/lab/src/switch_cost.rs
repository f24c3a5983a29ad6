//! The cost of a switch between guest and host, which the laboratories' emulators charge for each VM exit with the entry
//! after it: none by itself, since an emulator's switch is no work that a clock of instructions sees. It is read and set
//! from inside, at I/O port 0xe8.

use std::arch::asm;
use std::io;

const PORT: u16 = 0xe8;
/// What a machine without the port reads.
const ABSENT: u32 = u32::MAX;

/// The cost in cycles of the laboratory's clock; none outside of laboratories with a clock.
///
/// # Errors
/// When this process may not use the port, which takes root.
pub fn get() -> io::Result<Option<u32>> {
    let cycles: u32;
    allow()?;
    // SAFETY: `allow` got leave for the port, which nothing else answers at, and reading it changes nothing.
    unsafe { asm!("in eax, dx", in("dx") PORT, out("eax") cycles, options(nomem, nostack, preserves_flags)) };
    Ok((cycles != ABSENT).then_some(cycles))
}

/// Sets the cost in cycles of the laboratory's clock.
///
/// # Errors
/// When this process may not use the port, or the machine is no laboratory with a clock.
pub fn set(cycles: u32) -> io::Result<()> {
    let refused = || {
        let problem = format!(
            "this machine takes no cost of {cycles} cycles for a switch; it is no laboratory with a clock"
        );
        io::Error::new(io::ErrorKind::Unsupported, problem)
    };
    get()?.ok_or_else(refused)?;
    // SAFETY: `get` got leave for the port, and has found the device that takes the value.
    unsafe { asm!("out dx, eax", in("dx") PORT, in("eax") cycles, options(nomem, nostack, preserves_flags)) };
    if get()? == Some(cycles) { Ok(()) } else { Err(refused()) }
}

fn allow() -> io::Result<()> {
    // SAFETY: ioperm only widens what this process may do, with four ports that have no effect on memory.
    match unsafe { libc::ioperm(PORT.into(), 4, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
