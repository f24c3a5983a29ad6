//! Seeds the kernel's random number generator, which would otherwise be in the same state in all runs from
//! one snapshot.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct rand_pool_info` of include/uapi/linux/random.h with room for one seed.
#[repr(C)]
struct Pool {
    /// The bits of entropy to credit.
    entropy_count: libc::c_int,
    /// The size of `buf` in bytes.
    buf_size: libc::c_int,
    buf: [u8; 32],
}

/// `_IOW('R', 0x03, int [2])`.
const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
/// `_IO('R', 0x07)`.
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

/// Mixes a seed into the kernel's entropy pool, and reseeds its generator.
pub(super) fn seed(seed: u64) -> Result<(), String> {
    reseed(seed).map_err(|error| format!("giving the kernel a random seed: {error}"))
}

fn reseed(seed: u64) -> io::Result<()> {
    let mut pool = Pool { entropy_count: 256, buf_size: 32, buf: [0; 32] };
    for (piece, number) in pool.buf.chunks_exact_mut(8).zip(0..) {
        piece.copy_from_slice(&(seed ^ number).to_le_bytes());
    }
    let device = File::options().write(true).open("/dev/urandom")?;
    // SAFETY: the kernel reads two integers and `buf_size` bytes of `buf`, all of which are in `pool`.
    if unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY as _, &raw const pool) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the request takes no argument.
    if unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG as _) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
