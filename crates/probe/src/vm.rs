//! The micro VM.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use kvm_ioctls::{Cap, Kvm, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::config::Config;
use crate::create;
use crate::error::Error;
use crate::evidence::{self, Agreement, ArmEvidence};
use crate::inhibit::{self, Arms, InhibitMechanism};
use crate::layout;
use crate::measure::Measure;
use crate::memory::{Memory, SelfIpi};
use crate::parked::Parked;
use crate::run::{ApicMode, Arm};
use crate::statistics;
use crate::threads;
use crate::vcpu::{Report, Vcpu};

/// A VM on `/dev/kvm` whose guest measures.
///
/// The order of the fields is the order in which they are dropped: first the threads, last the memory.
#[derive(Debug)]
pub struct MicroVm {
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) parked: Parked,
    pub(crate) reports: Receiver<Report>,
    /// The ioeventfds, or the reason why there are none.
    pub(crate) eventfds: Result<[EventFd; 2], String>,
    _vm: VmFd,
    pub(crate) memory: Memory,
    pub(crate) config: Config,
    /// The host CPUs that this process was allowed to use when the VM was created.
    pub(crate) allowed_cpus: Vec<usize>,
    tids: Vec<i32>,
    tsc_khz: Option<u32>,
    pub(crate) tsc_deadline: bool,
    pub(crate) no_statistics: Option<String>,
    /// The file with the VM's exits, where KVM has no binary statistics.
    pub(crate) exits_file: Option<PathBuf>,
    arms: Arms,
    /// True if AVIC delivers this VM's interrupts while accesses to its local APIC exit.
    is_hybrid: bool,
    pub(crate) arm: Arm,
    pub(crate) evidence: Option<ArmEvidence>,
    /// True if a run failed and left vCPUs in the middle of it.
    pub(crate) stopped: bool,
}

impl MicroVm {
    /// Creates the VM, and finds its arms by a short trial. It starts with interrupt virtualization on, if
    /// possible.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let kvm = create::open(&config.kvm)?;
        // One vCPU is parked.
        let most = u16::try_from(kvm.get_max_vcpus().saturating_sub(1)).unwrap_or(u16::MAX);
        let most = most.min(layout::MAX_VCPUS);
        if !(2..=most).contains(&config.vcpus) {
            return Err(Error::VcpuCount { asked: config.vcpus, most });
        }
        let allowed_cpus = threads::allowed_cpus().map_err(Error::host("tell the CPU affinity"))?;
        threads::kick_signal().map_err(Error::host("install a signal handler"))?;

        let amd = inhibit::cpu_has(&config.sysfs, "svm");
        let self_ipi = if amd { SelfIpi::Icr } else { SelfIpi::Register };
        let memory = Memory::new(config.apic, self_ipi)?;
        let vm = create::vm(&kvm, &memory, config.irqchip)?;
        let eventfds = create::eventfds(&vm);
        let no_statistics = create::no_statistics(&kvm);
        let (send_report, reports) = channel();
        let mut vcpus = Vec::with_capacity(config.vcpus.into());
        let mut tsc_khz = None;
        for index in 0..config.vcpus {
            let fd = create::vcpu(&kvm, &vm, index, config.apic)?;
            if index == 0 {
                tsc_khz = fd.get_tsc_khz().ok().filter(|khz| *khz != 0);
            }
            let statistics = match no_statistics {
                Some(_) => None,
                None => {
                    Some(statistics::open(&fd).map_err(|source| Error::Statistics { vcpu: index, source })?)
                }
            };
            let cpu = if config.pin { threads::cpu_of(index, &allowed_cpus) } else { None };
            vcpus.push(Vcpu::start(index, fd, cpu, statistics, send_report.clone())?);
        }
        let parked = Parked::start(config.vcpus, create::parked(&kvm, &vm, config.vcpus, config.apic)?)?;

        let exits_file = no_statistics.as_ref().and_then(|_| create::exits_file(&config.sysfs, &vm));
        let mut micro_vm = Self {
            tids: vcpus.iter().map(Vcpu::tid).collect(),
            vcpus,
            parked,
            reports,
            eventfds,
            _vm: vm,
            memory,
            config: config.clone(),
            allowed_cpus,
            tsc_khz,
            tsc_deadline: kvm.check_extension(Cap::TscDeadlineTimer),
            no_statistics: no_statistics.filter(|_| exits_file.is_none()),
            exits_file,
            arms: Arms::OnlyOff { why: String::new() },
            is_hybrid: config.apic == ApicMode::X2apic && inhibit::x2apic_is_hybrid(&config.sysfs),
            arm: Arm::Off,
            evidence: None,
            stopped: false,
        };
        micro_vm.arms = micro_vm.find_arms(&kvm)?;
        micro_vm.arm = match micro_vm.arms {
            Arms::OnlyOff { .. } => Arm::Off,
            Arms::Both { .. } | Arms::OnlyOn { .. } => Arm::On,
        };
        tracing::debug!(arms = ?micro_vm.arms, vcpus = config.vcpus, "made a micro VM");
        Ok(micro_vm)
    }

    /// Tries KVM's mechanisms and keeps the first that has an effect on the statistics.
    fn find_arms(&mut self, kvm: &Kvm) -> Result<Arms, Error> {
        if let Err(why) = inhibit::host_virtualizes(&self.config.sysfs) {
            return Ok(Arms::OnlyOff { why });
        }
        let mut tried = Vec::new();
        for mechanism in inhibit::candidates(kvm, &self.config.sysfs) {
            match self.inhibits(mechanism) {
                Ok(true) => return Ok(Arms::Both { mechanism }),
                Ok(false) => tried.push(format!("{} has no effect", mechanism.reason())),
                Err(Error::Ioctl { what, source }) => {
                    tried.push(format!("KVM refused to {what} ({source})"));
                }
                Err(error) => return Err(error),
            }
        }
        if tried.is_empty() {
            // On these kernels an inhibit by the SynIC cannot be lifted.
            tried.push("this KVM has no inhibit for one VM that can be lifted again".to_owned());
        }
        self.arm = Arm::On;
        let seen = self.verify_arm()?;
        self.evidence = None;
        if seen.verdict == Agreement::Contradicted && !self.is_hybrid {
            let rate = seen.exits_per_interrupt.unwrap_or_default();
            let why = format!(
                "KVM inhibits it for this VM, whose guest exits {rate:.2} times for each interrupt; `exitless verify` names \
                 the reasons while it runs"
            );
            return Ok(Arms::OnlyOff { why });
        }
        Ok(Arms::OnlyOn { why: format!("{}; Linux 5.15 or later is needed", tried.join(", ")) })
    }

    fn inhibits(&mut self, mechanism: InhibitMechanism) -> Result<bool, Error> {
        self.parked.set(mechanism, true)?;
        self.arm = Arm::Off;
        let trial = self.verify_arm();
        self.evidence = None;
        self.parked.set(mechanism, false)?;
        // Without statistics the trial shows nothing; the evidence says so to the caller.
        Ok(trial?.verdict != Agreement::Contradicted)
    }

    /// The kernel's thread IDs of the vCPUs, in their order, for a tracer's filter.
    pub fn vcpu_threads(&self) -> &[i32] {
        &self.tids
    }

    /// The ID of the thread in which [`Self::switch`] changes the inhibit, and so causes the event
    /// kvm_apicv_inhibit_changed.
    pub fn control_thread(&self) -> i32 {
        self.parked.tid()
    }

    /// The host CPU to which each vCPU's thread is bound, in their order; `None` where it is not bound.
    pub fn pinning(&self) -> Vec<Option<usize>> {
        self.vcpus.iter().map(Vcpu::cpu).collect()
    }

    /// The arms that this VM has on this host.
    pub fn arms(&self) -> &Arms {
        &self.arms
    }

    /// The arm in which the next run takes place.
    pub fn arm(&self) -> Arm {
        self.arm
    }

    /// The configuration that the VM was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The frequency of the guest's TSC in kHz (KVM_GET_TSC_KHZ), if KVM reports it.
    pub fn tsc_khz(&self) -> Option<u32> {
        self.tsc_khz
    }

    /// The reason why runs have no statistics; `None` if they have.
    pub fn statistics_available(&self) -> Option<&str> {
        self.no_statistics.as_deref()
    }

    /// Makes vCPU 0 send interrupts to itself in the current arm, and counts the exits.
    pub fn verify_arm(&mut self) -> Result<ArmEvidence, Error> {
        let run = self.run(Measure::Eoi, evidence::WARM_UP, evidence::SAMPLES, None)?;
        let evidence = evidence::judge(&run, self.is_hybrid, self.no_statistics.as_deref());
        self.evidence = Some(evidence.clone());
        Ok(evidence)
    }

    /// The result of the last [`Self::verify_arm`] since the last [`Self::switch`].
    pub fn evidence(&self) -> Option<&ArmEvidence> {
        self.evidence.as_ref()
    }

    /// Inhibits interrupt virtualization for this VM, or lifts the inhibit. No vCPU runs meanwhile.
    pub fn switch(&mut self, arm: Arm) -> Result<(), Error> {
        match &self.arms {
            Arms::OnlyOff { why } if arm == Arm::On => {
                return Err(Error::ArmUnavailable { arm, why: why.clone() });
            }
            Arms::OnlyOn { why } if arm == Arm::Off => {
                return Err(Error::ArmUnavailable { arm, why: why.clone() });
            }
            Arms::OnlyOff { .. } | Arms::OnlyOn { .. } => {}
            Arms::Both { mechanism } if arm != self.arm => {
                self.parked.set(*mechanism, arm == Arm::Off)?;
                self.evidence = None;
            }
            Arms::Both { .. } => {}
        }
        self.arm = arm;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM with the machine's KVM, or `None` with the reason printed.
    fn vm_and_kvm() -> Option<(MicroVm, Kvm)> {
        let config = Config::default();
        match create::open(&config.kvm) {
            Ok(kvm) => Some((MicroVm::new(&config).unwrap(), kvm)),
            Err(error) => {
                eprintln!("not tested: {error}");
                None
            }
        }
    }

    #[test]
    fn every_mechanism_is_taken_and_lifted_by_a_vcpu_that_never_ran() {
        let Some((vm, kvm)) = vm_and_kvm() else { return };
        for mechanism in inhibit::candidates(&kvm, &vm.config.sysfs) {
            for inhibit in [true, false, true, true, false] {
                vm.parked.set(mechanism, inhibit).unwrap();
            }
        }
    }

    #[test]
    fn every_mechanism_acts_and_leaves_nothing_behind() {
        let Some((mut vm, kvm)) = vm_and_kvm() else { return };
        if let Arms::OnlyOff { why } = &vm.arms {
            eprintln!("not tested: {why}");
            return;
        }
        for mechanism in inhibit::candidates(&kvm, &vm.config.sysfs) {
            let acts = vm.inhibits(mechanism).unwrap();
            vm.arm = Arm::On;
            let after = vm.verify_arm().unwrap();
            eprintln!("{mechanism:?}: acts {acts}, then {after:?}");
            assert!(acts, "{mechanism:?}");
            assert_eq!(after.verdict, Agreement::Confirmed, "{mechanism:?}");
        }
    }
}
