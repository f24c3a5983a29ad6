//! A check that the processor delivers virtual interrupts as its manual says (SDM vol. 3, "APIC Virtualization and Virtual
//! Interrupts"), at the moments where emulators were found to go wrong: what an emulator must pass before measurements
//! on it mean anything.

use crate::error::Error;
use crate::measure::Measure;
use crate::memory::Command;
use crate::payload::{self, Part};
use crate::vm::MicroVm;

/// Interrupts that are held back, each for [`HELD_MILLISECONDS`].
const HELD: u32 = 4;
/// Long enough for several of the host's own interrupts: a tick comes every 1 to 10 ms.
const HELD_MILLISECONDS: u64 = 25;
/// IPIs to a vCPU that leaves and enters the guest all the time. Whether any arrives while KVM enters it is chance.
const IPIS: u32 = 200;
/// Faults in a row, through many of the host's own interrupts: each has to meet the moment between a fault and the first
/// instruction of its handler, where the guest is one time in four.
const FAULTING_MILLISECONDS: u64 = 200;
/// The TSC's frequency in kHz if KVM does not tell it: the slowest that a laboratory has.
const SLOWEST_TSC: u32 = 50_000;

impl MicroVm {
    /// Delivers interrupts to a stack that has never been touched, against RFLAGS.IF, and to a vCPU that leaves the
    /// guest all the time, and faults that the host's interrupts follow, in the arm of the moment. Needs two host CPUs, and a VM that has run nothing large.
    ///
    /// # Errors
    /// [`Error::Delivery`], [`Error::GuestFault`] where a vector came that was never sent, or [`Error::Hung`] where one
    /// that was sent never came. The VM is of no use after the last two.
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
