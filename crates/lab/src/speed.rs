//! The speed of an emulated host's CPUs: the time that an instruction takes by the emulated clock.

use serde::Serialize;

use crate::definition::{Emulator, Lab};
use crate::error::Error;

/// With QEMU's `-icount`, an instruction takes a power of two of nanoseconds.
const QEMU_MIPS: [u32; 4] = [125, 250, 500, 1000];
/// Bochs accepts any speed. If it is lower than this, timer interrupts leave a guest hardly any time.
const BOCHS_MIPS: std::ops::RangeInclusive<u32> = 10..=1000;

/// The speed in millions of instructions per second of the emulated clock, for each CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Speed(u32);

impl Speed {
    /// The speed of a laboratory's CPUs, in millions of instructions per second; the default is 50 in Bochs
    /// and 125 in QEMU.
    ///
    /// # Errors
    /// [`Error::NoSpeed`] if the emulator does not support this speed.
    pub fn of(lab: &Lab, given: Option<u32>) -> Result<Self, Error> {
        let (default, possible) = match lab.emulator {
            Emulator::Bochs => (50, given.is_none_or(|mips| BOCHS_MIPS.contains(&mips))),
            Emulator::Qemu => (125, given.is_none_or(|mips| QEMU_MIPS.contains(&mips))),
        };
        if possible {
            return Ok(Self(given.unwrap_or(default)));
        }
        let possible = match lab.emulator {
            Emulator::Bochs => format!("{} to {}", BOCHS_MIPS.start(), BOCHS_MIPS.end()),
            Emulator::Qemu => QEMU_MIPS.map(|mips| mips.to_string()).join(", "),
        };
        Err(Error::NoSpeed { lab: lab.name, given: given.unwrap_or(default), possible })
    }

    /// The value of `shift` for QEMU's `-icount`: an instruction takes 2^shift nanoseconds.
    pub(crate) fn icount_shift(self) -> u32 {
        (1000 / self.0).ilog2()
    }

    /// The value of `ips` in Bochs's configuration.
    pub(crate) fn per_second(self) -> u64 {
        u64::from(self.0) * 1_000_000
    }

    /// The frequency of Bochs's TSC, which counts instructions.
    pub(crate) fn tsc_khz(self) -> u64 {
        u64::from(self.0) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_emulator_has_its_speeds() {
        let of = |lab, given| Speed::of(Lab::find(lab).unwrap(), given);
        for (lab, given, mips) in [
            ("intel-apicv", None, 50),
            ("intel-apicv", Some(77), 77),
            ("amd-avic", None, 125),
            ("xen", Some(1000), 1000),
        ] {
            assert_eq!(of(lab, given).unwrap(), Speed(mips));
        }
        for (lab, given, possible) in [
            ("intel-apicv", 9, "10 to 1000"),
            ("xen-apicv", 1001, "10 to 1000"),
            ("amd-svm", 200, "125, 250, 500, 1000"),
        ] {
            let refused = of(lab, Some(given)).unwrap_err().to_string();
            assert!(refused.starts_with(lab) && refused.ends_with(possible), "{refused}");
        }
    }

    #[test]
    fn the_emulators_are_told_the_same_speed() {
        let shifts = QEMU_MIPS.map(|mips| Speed(mips).icount_shift());
        assert_eq!(shifts, [3, 2, 1, 0]);
        assert_eq!((Speed(50).per_second(), Speed(50).tsc_khz()), (50_000_000, 50_000));
    }
}
