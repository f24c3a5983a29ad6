//! The debug port 0xe9: Bochs copies what is written to it to its standard output, and returns bytes of its
//! standard input to readers. Emulated time stands still until there is something to read.

use std::arch::asm;
use std::io;

const PORT: u16 = 0xe9;

/// Write access to the port for this process.
#[derive(Debug)]
pub(super) struct DebugPort(());

impl DebugPort {
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: ioperm only grants access to one port, which has no effect on memory.
        match unsafe { libc::ioperm(PORT.into(), 1, 1) } {
            0 => Ok(Self(())),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl io::Write for DebugPort {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: `rep outsb` reads exactly `bytes.len()` bytes of the slice, and `open` has been granted the
        // port.
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

impl io::Read for DebugPort {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `rep insb` writes exactly `bytes.len()` bytes of the slice, and `open` has been granted the
        // port.
        unsafe {
            asm!("rep insb", inout("rcx") bytes.len() => _, inout("rdi") bytes.as_mut_ptr() => _, in("dx") PORT,
                 options(nostack, preserves_flags));
        }
        Ok(bytes.len())
    }
}
