//! The execution of a measure: gives the vCPUs their commands, waits for them, and kicks those that hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::layout::{self, block};
use crate::measure::Measure;
use crate::memory::Command;
use crate::payload::{self, Part};
use crate::run::Run;
use crate::statistics;
use crate::vcpu::{CommandEnd, Report};
use crate::vm::MicroVm;

/// The vCPU that measures.
const SENDER: u16 = 0;
/// The intervals at which the watchdog checks the progress, and (`KICK_AGAIN`) at which a kick is repeated.
const WATCH: Duration = Duration::from_millis(50);
const KICK_AGAIN: Duration = Duration::from_millis(2);
/// The time that a kicked vCPU may take to leave KVM_RUN.
const KICK_PATIENCE: Duration = Duration::from_secs(5);

impl MicroVm {
    /// Takes `samples` samples after `warm_up` iterations that are discarded. If the measure needs a second
    /// vCPU, that is `target`, by default vCPU 1; otherwise `target` is ignored.
    ///
    /// A preparatory routine touches the pages and enables the local APICs before the statistics are read. So
    /// they count only the iterations, the end of the run (one port write per vCPU) and the host's own
    /// interrupts.
    pub fn run(
        &mut self,
        measure: Measure,
        warm_up: u32,
        samples: u32,
        target: Option<u16>,
    ) -> Result<Run, Error> {
        if !(1..=layout::MAX_SAMPLES).contains(&samples) {
            return Err(Error::SampleCount { asked: samples });
        }
        let target = self.target_of(measure, target)?;
        if let Some(why) = self.unsupported(measure) {
            return Err(Error::Unsupported { measure, why });
        }
        let command = |part, peer, delay| Command {
            routine: payload::address_of(part, self.config.apic),
            warm_up,
            samples,
            peer,
            delay,
        };
        let delay = match measure {
            Measure::IpiHalted => self.config.settle_cycles,
            Measure::TimerFire => self.config.timer_delta_cycles,
            _ => 0,
        };
        let mut prepare = vec![(SENDER, command(Part::Prepare, SENDER, 0))];
        let mut work = vec![(SENDER, command(Part::Measure(measure), target.unwrap_or(SENDER), delay))];
        if let Some(target) = target {
            prepare.push((target, Command { samples: 0, ..command(Part::Prepare, SENDER, 0) }));
            let receive =
                if measure == Measure::IpiHalted { Part::TargetHalted } else { Part::TargetRunning };
            work.push((target, command(receive, SENDER, 0)));
        }
        self.execute(measure, &prepare)?;
        let before = self.read_statistics(&work)?;
        self.execute(measure, &work)?;
        let after = self.read_statistics(&work)?;
        let mut counted = BTreeMap::new();
        for (before, after) in before.iter().zip(&after) {
            statistics::add_difference(&mut counted, before, after);
        }
        Ok(Run {
            measure,
            arm: self.arm,
            target,
            warm_up,
            cycles: self.memory.samples(samples)?,
            statistics: counted,
        })
    }

    fn target_of(&self, measure: Measure, target: Option<u16>) -> Result<Option<u16>, Error> {
        if !measure.needs_target() {
            return Ok(None);
        }
        let last = self.config.vcpus - 1;
        let target = target.unwrap_or(1);
        if !(1..=last).contains(&target) {
            return Err(Error::Target { target, last });
        }
        match self.allowed_cpus.len() {
            allowed @ ..2 => Err(Error::TooFewCpus { measure, allowed }),
            _ => Ok(Some(target)),
        }
    }

    /// The reason why this VM cannot perform `measure`; `None` if it can.
    fn unsupported(&self, measure: Measure) -> Option<String> {
        match measure {
            Measure::TimerArm | Measure::TimerFire if !self.tsc_deadline => Some(
                "this KVM's local APIC timer has no TSC-deadline mode (KVM_CAP_TSC_DEADLINE_TIMER)"
                    .to_owned(),
            ),
            Measure::PioKernel | Measure::MmioEventfd => self.eventfds.as_ref().err().cloned(),
            _ => None,
        }
    }

    /// The cumulative statistics of the vCPUs that have a command. On kernels without binary statistics, the VM's
    /// exits from debugfs: idle vCPUs add none. Empty if KVM has neither.
    fn read_statistics(&self, commands: &[(u16, Command)]) -> Result<Vec<BTreeMap<String, u64>>, Error> {
        if let Some(file) = &self.exits_file {
            let exits = statistics::exits_in(file);
            return Ok(vec![exits.map_err(|source| Error::Statistics { vcpu: SENDER, source })?]);
        }
        let mut all = Vec::new();
        for (vcpu, _) in commands {
            if let Some(statistics) = self.vcpus[usize::from(*vcpu)].statistics() {
                let values = statistics.read_cumulative();
                all.push(values.map_err(|source| Error::Statistics { vcpu: *vcpu, source })?);
            }
        }
        Ok(all)
    }

    /// Makes the vCPUs execute their commands, and waits until all have finished. After an error the VM is
    /// stopped.
    pub(crate) fn execute(&mut self, measure: Measure, commands: &[(u16, Command)]) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped { measure });
        }
        for (vcpu, command) in commands {
            self.memory.command(*vcpu, command)?;
        }
        // Cleared below, when all vCPUs have returned; an error keeps it set.
        self.stopped = true;
        // The sender is first in the list and is entered last: in the guest it waits for the target.
        for (vcpu, _) in commands.iter().rev() {
            self.vcpus[usize::from(*vcpu)].enter()?;
        }
        let wanted = commands.first().map_or(0, |(_, one)| u64::from(one.warm_up) + u64::from(one.samples));
        self.wait(measure, commands.iter().map(|(vcpu, _)| *vcpu).collect(), wanted)?;
        self.stopped = false;
        Ok(())
    }

    fn wait(&self, measure: Measure, mut running: BTreeSet<u16>, wanted: u64) -> Result<(), Error> {
        let watch = WATCH.min(self.config.patience);
        let mut progress = 0;
        let mut since = Instant::now();
        while !running.is_empty() {
            match self.reports.recv_timeout(watch) {
                Ok(Report { vcpu, outcome: CommandEnd::Done }) => {
                    running.remove(&vcpu);
                    since = Instant::now();
                }
                Ok(report) => {
                    running.remove(&report.vcpu);
                    let error = self.failure(measure, report)?;
                    self.kick_out(running);
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.memory.read_u64(layout::block_of(SENDER) + block::PROGRESS)?;
                    if now != progress {
                        progress = now;
                        since = Instant::now();
                    } else if since.elapsed() >= self.config.patience {
                        return Err(Error::Hung {
                            measure,
                            arm: self.arm,
                            after: since.elapsed(),
                            done: progress,
                            wanted,
                            whereabouts: self.kick_out(running),
                        });
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let vcpu = running.first().copied().unwrap_or(SENDER);
                    return Err(Error::ThreadGone { vcpu });
                }
            }
        }
        Ok(())
    }

    fn failure(&self, measure: Measure, Report { vcpu, outcome }: Report) -> Result<Error, Error> {
        let field = |field| self.memory.read_u64(layout::block_of(vcpu) + field);
        Ok(match outcome {
            CommandEnd::Fault => Error::GuestFault {
                measure,
                vcpu,
                vector: field(block::FAULT_VECTOR)?,
                code: field(block::FAULT_CODE)?,
                rip: field(block::FAULT_RIP)?,
            },
            CommandEnd::Unexpected { reason, rip } => Error::UnexpectedExit { measure, vcpu, reason, rip },
            // Not expected: `wait` handles `Done`, and vCPUs are kicked only after a failure.
            CommandEnd::Done | CommandEnd::Kicked { .. } => Error::ThreadGone { vcpu },
        })
    }

    /// Kicks the vCPUs out of KVM_RUN, and returns where each was, for people.
    fn kick_out(&self, mut running: BTreeSet<u16>) -> String {
        let mut whereabouts = Vec::new();
        let begin = Instant::now();
        while !running.is_empty() && begin.elapsed() < KICK_PATIENCE {
            for vcpu in &running {
                if let Err(error) = self.vcpus[usize::from(*vcpu)].kick() {
                    tracing::warn!(vcpu, %error, "a vCPU could not be kicked out of KVM_RUN");
                }
            }
            if let Ok(Report { vcpu, outcome }) = self.reports.recv_timeout(KICK_AGAIN) {
                running.remove(&vcpu);
                whereabouts.push(match outcome {
                    CommandEnd::Kicked { rip } => format!("vCPU {vcpu} was at {}", payload::place(rip)),
                    other => format!("vCPU {vcpu} ended by itself ({other:?})"),
                });
            }
        }
        whereabouts.extend(running.iter().map(|vcpu| format!("vCPU {vcpu} does not leave KVM_RUN")));
        whereabouts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The micro VM, or `None` with the reason printed where there is no usable KVM.
    fn vm(patience: Duration) -> Option<MicroVm> {
        match MicroVm::new(&Config { patience, ..Config::default() }) {
            Ok(vm) => Some(vm),
            Err(error @ (Error::NoKvm { .. } | Error::KvmDenied { .. } | Error::OpenKvm { .. })) => {
                eprintln!("not tested: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn command(vm: &MicroVm, part: Part) -> Command {
        let routine = payload::address_of(part, vm.config.apic);
        Command { routine, warm_up: 3, samples: 4, peer: 1, delay: 0 }
    }

    #[test]
    fn a_guest_that_spins_is_kicked_out_and_located() {
        let Some(mut vm) = vm(Duration::from_millis(200)) else { return };
        let spin = [(0, command(&vm, Part::SpinForEver)), (1, command(&vm, Part::TargetRunning))];
        let error = vm.execute(Measure::Floor, &spin).unwrap_err();
        let Error::Hung { done: 0, wanted: 7, whereabouts, .. } = &error else { panic!("{error}") };
        assert!(whereabouts.contains("vCPU 0 was at spin_for_ever"), "{whereabouts}");
        assert!(whereabouts.contains("vCPU 1 was at target_running"), "{whereabouts}");
        assert!(matches!(vm.run(Measure::Floor, 0, 1, None), Err(Error::Stopped { .. })));
    }

    #[test]
    fn an_exception_in_the_guest_is_reported_and_the_other_vcpu_is_stopped() {
        let Some(mut vm) = vm(Duration::from_secs(30)) else { return };
        let fault = [(0, command(&vm, Part::UndefinedOpcode)), (1, command(&vm, Part::TargetRunning))];
        let error = vm.execute(Measure::Eoi, &fault).unwrap_err();
        let place = payload::address_of(Part::UndefinedOpcode, vm.config.apic);
        assert!(
            matches!(error, Error::GuestFault { vcpu: 0, vector: 6, rip, .. } if rip == place),
            "{error}"
        );
    }

    #[test]
    fn a_page_fault_has_its_error_code() {
        let Some(mut vm) = vm(Duration::from_secs(30)) else { return };
        let nowhere = Command { routine: 1 << 40, ..command(&vm, Part::Prepare) };
        let error = vm.execute(Measure::Eoi, &[(0, nowhere)]).unwrap_err();
        assert!(matches!(error, Error::GuestFault { vector: 14, rip, .. } if rip == 1 << 40), "{error}");
    }

    #[test]
    fn a_vm_that_is_dropped_in_a_hang_ends_its_threads() {
        let Some(mut vm) = vm(Duration::from_millis(100)) else { return };
        let spin = [(0, command(&vm, Part::SpinForEver))];
        vm.execute(Measure::Floor, &spin).unwrap_err();
        drop(vm);
    }
}
