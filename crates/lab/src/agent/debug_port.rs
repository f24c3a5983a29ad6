//! The debug port 0xe9, which Bochs (`port_e9_hack`) and QEMU (`isa-debugcon`) pass to the host byte by byte.

use std::arch::asm;
use std::io;

const PORT: u16 = 0xe9;

/// Write access to the port for this process.
#[derive(Debug)]
pub(super) struct DebugPort(());

impl DebugPort {
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: ioperm only widens what this process may do with one port that has no effect on memory.
        match unsafe { libc::ioperm(PORT.into(), 1, 1) } {
            0 => Ok(Self(())),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl io::Write for DebugPort {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: `rep outsb` reads exactly `bytes.len()` bytes from the slice, and `open` got leave for the port.
        unsafe {
            asm!("rep outsb", inout("rcx") bytes.len() => _, inout("rsi") bytes.as_ptr() => _, in("dx") PORT,
                 options(readonly, nostack, preserves_flags));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
