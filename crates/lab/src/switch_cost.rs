//! The cost of a world switch, which the laboratories' emulators charge for each VM exit and the next entry.
//! Otherwise a switch would cost nothing, because it takes no instructions by an emulator's clock. It is read
//! and set from inside, at I/O port 0xe8.

use std::arch::asm;
use std::io;

const PORT: u16 = 0xe8;
/// The value that reading returns on a machine without the port.
const ABSENT: u32 = u32::MAX;

/// The largest cost that QEMU's device accepts, in instructions.
pub const LARGEST: u32 = 0xff_ffff;

/// The cost as a number of instructions; `None` outside of laboratories with a clock.
///
/// # Errors
/// If this process may not access the port, which needs root.
pub fn get() -> io::Result<Option<u32>> {
    let cycles: u32;
    allow()?;
    // SAFETY: `allow` has been granted access to the port. Only this device uses it, and reading has no side
    // effect.
    unsafe { asm!("in eax, dx", in("dx") PORT, out("eax") cycles, options(nomem, nostack, preserves_flags)) };
    Ok((cycles != ABSENT).then_some(cycles))
}

/// Sets the cost as a number of instructions, at most [`LARGEST`].
///
/// # Errors
/// If it is larger than that, if this process may not access the port, or if the machine is not a laboratory
/// with a clock.
pub fn set(cycles: u32) -> io::Result<()> {
    let refused = || {
        let problem = format!(
            "this machine does not accept a cost of {cycles} instructions for a switch; it is not a lab with a clock"
        );
        io::Error::new(io::ErrorKind::Unsupported, problem)
    };
    if cycles > LARGEST {
        let problem = format!("a switch costs at most {LARGEST} instructions");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    get()?.ok_or_else(refused)?;
    // SAFETY: `get` has been granted access to the port, and has found the device that accepts the value.
    unsafe { asm!("out dx, eax", in("dx") PORT, in("eax") cycles, options(nomem, nostack, preserves_flags)) };
    if get()? == Some(cycles) { Ok(()) } else { Err(refused()) }
}

fn allow() -> io::Result<()> {
    // SAFETY: ioperm() only grants access to four ports, which have no effect on memory.
    match unsafe { libc::ioperm(PORT.into(), 4, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
