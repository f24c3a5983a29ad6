//! The micro VM and the tracepoints on its threads, driven by the schedule.

use std::path::Path;

use exits::with_causes;
use live::{ExitCounter, Options, Tracefs};
use probe::measure::Measure;
use probe::run::{Arm, Run};
use probe::{ArmEvidence, Arms, Config, MicroVm};

use super::schedule::{Machine, Seen};
use crate::{Plan, Tracing};

/// An upper bound of the exits of one operation. An IPI without virtualization causes the most: 4.
const EXITS_PER_OPERATION: usize = 8;
/// Room for exits caused by host interrupts, and by the micro VM's setup before and after a run.
const SPARE_EXITS: usize = 500;

/// The real [`Machine`].
pub(super) struct Rig {
    config: Config,
    vm: MicroVm,
    /// True after a failed run that left the guest unusable.
    stopped: bool,
    tracefs: Result<Tracefs, String>,
    options: Options,
    counter: Option<ExitCounter>,
}

impl Rig {
    pub(super) fn new(plan: &Plan, root: &Path) -> Result<Self, probe::Error> {
        let config = Config {
            vcpus: plan.vcpus,
            irqchip: plan.irqchip,
            apic: plan.apic,
            pin: plan.pin,
            sysfs: root.to_owned(),
            ..Config::default()
        };
        let vm = MicroVm::new(&config)?;
        let operations = plan.warm_up.saturating_add(plan.counted_samples) as usize;
        let options =
            Options { exits_per_thread: operations.saturating_mul(EXITS_PER_OPERATION) + SPARE_EXITS };
        let tracefs = Tracefs::find(root).map_err(|error| with_causes(&error));
        Ok(Self { config, vm, stopped: false, tracefs, options, counter: None })
    }

    pub(super) fn arms(&self) -> &Arms {
        self.vm.arms()
    }

    pub(super) fn tsc_khz(&self) -> Option<u32> {
        self.vm.tsc_khz()
    }

    /// Determines how exits are counted: attaches to the tracepoints once to find out whether they can be used.
    pub(super) fn tracing(&mut self) -> Tracing {
        let attached = self.attach();
        if let Err(why) = &attached {
            self.tracefs = Err(why.clone());
        }
        match attached {
            Ok(counter) => Tracing::Tracepoints { inhibits: counter.sees_inhibits() },
            Err(why) => Tracing::Statistics { why },
        }
    }

    /// The evidence of short runs in each arm; an arm that cannot be checked is left out and logged.
    pub(super) fn check(&mut self, arms: &[Arm]) -> Vec<ArmEvidence> {
        let mut checks = Vec::new();
        if self.stopped {
            tracing::warn!("the micro VM has been stopped, so its arms cannot be checked");
            return checks;
        }
        for &arm in arms {
            let check = self.vm.switch(arm).and_then(|()| self.vm.verify_arm());
            match check {
                Ok(check) => checks.push(check),
                Err(error) => {
                    tracing::warn!(?arm, error = with_causes(&error), "the arm could not be checked")
                }
            }
        }
        checks
    }

    fn attach(&self) -> Result<ExitCounter, String> {
        let tracefs = self.tracefs.as_ref().map_err(String::clone)?;
        let mut threads = self.vm.vcpu_threads().to_vec();
        threads.push(self.vm.control_thread());
        ExitCounter::attach_with(tracefs, &threads, self.options).map_err(|error| with_causes(&error))
    }

    fn counter(&mut self) -> Result<&mut ExitCounter, String> {
        self.counter.as_mut().ok_or_else(|| "the tracepoints are not attached".to_owned())
    }
}

impl Machine for Rig {
    fn switch(&mut self, arm: Arm) -> Result<(), String> {
        self.vm.switch(arm).map_err(|error| with_causes(&error))
    }

    fn run(
        &mut self,
        measure: Measure,
        warm_up: u32,
        samples: u32,
        target: Option<u16>,
    ) -> Result<Run, String> {
        self.vm.run(measure, warm_up, samples, target).map_err(|error| {
            // These errors are returned before the guest runs, so it is still usable.
            let refused = matches!(error, probe::Error::Unsupported { .. } | probe::Error::TooFewCpus { .. });
            self.stopped |= !refused;
            with_causes(&error)
        })
    }

    fn renew(&mut self) -> Result<(), String> {
        if self.stopped {
            self.vm = MicroVm::new(&self.config).map_err(|error| with_causes(&error))?;
            self.stopped = false;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<bool, String> {
        if self.tracefs.is_err() {
            return Ok(false);
        }
        let mut counter = self.attach()?;
        counter.enable().map_err(|error| with_causes(&error))?;
        self.counter = Some(counter);
        Ok(true)
    }

    fn take(&mut self) -> Result<Seen, String> {
        let counter = self.counter()?;
        // The count of lost events is only exact while no events are written.
        counter.disable().map_err(|error| with_causes(&error))?;
        let threads = counter.drain().map_err(|error| with_causes(&error))?;
        counter.enable().map_err(|error| with_causes(&error))?;
        let mut seen = Seen::default();
        for thread in threads {
            seen.exits.merge(&thread.counts);
            for (reason, time) in &thread.handling {
                seen.handling.entry(*reason).or_default().merge(time);
            }
            seen.inhibits.extend(thread.inhibits);
        }
        Ok(seen)
    }

    fn stop(&mut self) {
        // Closing the events ends the tracing, so this cannot fail.
        self.counter = None;
    }
}
