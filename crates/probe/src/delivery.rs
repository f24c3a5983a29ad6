//! A check that the processor delivers virtual interrupts as its manual says (SDM vol. 3, "APIC Virtualization and Virtual
//! Interrupts"). It tests the cases that emulators got wrong: measurements on an emulator that fails it mean nothing.

use crate::error::Error;
use crate::measure::Measure;
use crate::memory::Command;
use crate::payload::{self, Part};
use crate::vm::MicroVm;

/// The number of interrupts that the guest masks, each for [`HELD_MILLISECONDS`].
const HELD: u32 = 4;
/// Long enough for several timer interrupts of the host, which come every 1 to 10 ms.
const HELD_MILLISECONDS: u64 = 25;
/// IPIs to a vCPU that leaves and enters the guest all the time. Only some of them, by chance, arrive during a VM
/// entry.
const IPIS: u32 = 200;
/// The time for which the guest faults in a loop. The check needs a host interrupt between a fault and the first
/// instruction of its handler; the guest is there a quarter of the time, and many host interrupts come in this time.
const FAULTING_MILLISECONDS: u64 = 200;
/// The TSC's frequency in kHz if KVM does not report it: that of the slowest lab.
const SLOWEST_TSC: u32 = 50_000;

impl MicroVm {
    /// Delivers, in the current arm, interrupts to a stack that has never been touched, interrupts while RFLAGS.IF is clear,
    /// interrupts to a vCPU that leaves the guest all the time, and faults during which host interrupts come. Needs two host
    /// CPUs, and a VM in which no run was long enough to reach the end of the sample buffer, where that stack is.
    ///
    /// # Errors
    /// [`Error::Delivery`]; [`Error::GuestFault`] if a vector arrives that was never sent; [`Error::Hung`] if one that
    /// was sent does not arrive. The VM cannot be used after the last two.
    pub fn verify_delivery(&mut self) -> Result<(), Error> {
        let per_millisecond = u64::from(self.tsc_khz().unwrap_or(SLOWEST_TSC));
        let command = |part, samples, peer| Command {
            routine: payload::address_of(part, self.config.apic),
            warm_up: 0,
            samples,
            peer,
            delay: HELD_MILLISECONDS * per_millisecond,
        };
        let untouched = [(0, command(Part::UntouchedStack, 1, 0))];
        let masked = [(0, command(Part::Masked, HELD, 0))];
        let exiting = [
            (0, command(Part::Measure(Measure::IpiRunning), IPIS, 1)),
            (1, command(Part::TargetExiting, 0, 0)),
        ];
        let delay = FAULTING_MILLISECONDS * per_millisecond;
        let faults = [(0, Command { delay, ..command(Part::Faulting, 1, 0) })];
        self.execute(Measure::SelfIpi, &untouched)?;
        if self.memory.samples(1)? != [1] {
            let what = "an interrupt that left the guest while it was delivered came back as another";
            return Err(Error::Delivery { what: what.to_owned() });
        }
        self.execute(Measure::SelfIpi, &masked)?;
        let early = self.memory.samples(HELD)?.into_iter().filter(|&came| came != 0).count();
        if early != 0 {
            let what = format!("{early} of {HELD} interrupts came while the guest had RFLAGS.IF clear");
            return Err(Error::Delivery { what });
        }
        self.execute(Measure::SelfIpi, &faults)?;
        let misplaced = self.memory.samples(1)?.into_iter().sum::<u64>();
        if misplaced != 0 {
            let what =
                format!("{misplaced} faults came from the handler's stack: an exit behind a fault went back");
            return Err(Error::Delivery { what });
        }
        self.execute(Measure::IpiRunning, &exiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn this_machines_kvm_delivers_as_the_manual_says() {
        match MicroVm::new(&Config::default()) {
            Ok(mut vm) if vm.allowed_cpus.len() > 1 => vm.verify_delivery().unwrap(),
            Ok(_) => eprintln!("not tested: one CPU only"),
            Err(error @ (Error::NoKvm { .. } | Error::KvmDenied { .. } | Error::OpenKvm { .. })) => {
                eprintln!("not tested: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
