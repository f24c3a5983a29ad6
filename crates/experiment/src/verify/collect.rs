//! Gathering the evidence, and judging it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exits::activation::{
    DeviceEvidence, DeviceVerdict, Evidence, ExitSigns, InhibitSeen, IpiEvidence, PostingObstacle, Status,
    VmState, judge,
};
use exits::{CurePlace, InhibitNumbering, InhibitReason, Isa, Profile};
use host::posting::{self, DeviceInterrupt};
use host::vms::{Vm, Vms};
use host::{Cpu, Fingerprint, kvm};
use live::{Changes, ChangesWatch, Collector, StateReader, VcpuPlace, VmKey, Watch, monotonic_ns};

use super::result::FORMAT;
use super::{Changed, HostSide, Missing, ReasonCures, StateSample, StateSeen, Verification, VmVerification};

/// KVM's state is read so often, evenly over the time.
const SAMPLES: u32 = 11;

/// What to look at.
#[derive(Debug, Clone, Copy)]
pub struct Verify<'a> {
    /// The host's directory (`/`).
    pub root: &'a Path,
    /// All VMs that were found.
    pub found: &'a Vms,
    /// Those to judge.
    pub vms: &'a [&'a Vm],
    /// Whether `vms` are some only, so that others do not bear on the answer.
    pub chosen: bool,
    /// How long to watch.
    pub duration: Duration,
}

/// Watches the VMs for a while and judges each. Evidence that cannot be had is named, and the rest is used. When `stop`
/// is set, what was seen until then counts.
#[must_use]
pub fn verify(wanted: &Verify<'_>, stop: &AtomicBool) -> Verification {
    let root = wanted.root;
    let (host, cpu) = host_side(root);
    let mut missing = Vec::new();
    let mut reader = note(&mut missing, "KVM's own state", None, state_reader(wanted, host.isa));
    let processes = wanted.vms.iter().filter_map(|vm| u32::try_from(vm.pid).ok()).collect();
    let watch = Watch { processes: Some(processes), accesses: true, ..Watch::default() };
    let collector = if wanted.vms.is_empty() { Ok(None) } else { Collector::attach(root, &watch).map(Some) };
    let mut collector = note(&mut missing, "exits", None, collector).flatten();

    // What takes long to set up is there: all is watched from here on.
    let began_ns = monotonic_ns();
    let mut watches: BTreeMap<i32, ChangesWatch> = BTreeMap::new();
    for vm in wanted.vms {
        let watch = ChangesWatch::attach(root, &vm.threads);
        let watch = note(&mut missing, "changes of inhibit reasons", Some(vm.pid), watch);
        watches.extend(watch.map(|watch| (vm.pid, watch)));
    }
    if let Some(collector) = &mut collector {
        // What was counted while the rest was set up belongs to no time that is told.
        let _ = note(&mut missing, "exits", None, collector.take());
    }
    let interrupts_before = posting::device_interrupts(root);
    let mut samples: BTreeMap<VmKey, Vec<VmState>> = BTreeMap::new();
    watch_for(wanted, stop, &mut reader, &mut samples, &mut missing);
    let watched_ns = monotonic_ns() - began_ns;

    let profile = collector.as_mut().map(Collector::take).transpose();
    let profile = note(&mut missing, "exits", None, profile).flatten();
    let interrupts = posting::device_interrupts(root);
    let mut changes = BTreeMap::new();
    for (pid, watch) in &mut watches {
        let taken = note(&mut missing, "changes of inhibit reasons", Some(*pid), watch.take());
        changes.extend(taken.map(|taken| (*pid, taken)));
    }
    let numbering = live::inhibit_numbering(root);
    let seen = Seen {
        host: &host,
        cpu: &cpu,
        root,
        numbering: &numbering,
        began_ns,
        samples: &samples,
        changes: &changes,
        profile: profile.as_ref(),
        interrupts: [&interrupts_before, &interrupts],
    };
    let vms = wanted.vms.iter().flat_map(|vm| seen.verdicts(vm)).collect();
    let likely = if wanted.chosen { Vec::new() } else { wanted.found.likely.clone() };
    let mut verification = Verification {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        status: Status::Unknown,
        host,
        watched_ns,
        vms,
        likely,
        provoked: None,
        missing,
    };
    verification.status = verification.overall();
    verification
}

fn note<T>(
    missing: &mut Vec<Missing>,
    what: &'static str,
    pid: Option<i32>,
    outcome: Result<T, live::Error>,
) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            let why = match std::error::Error::source(&error) {
                Some(cause) => format!("{error} ({cause})"),
                None => error.to_string(),
            };
            missing.push(Missing { what, pid, why });
            None
        }
    }
}

fn state_reader(wanted: &Verify<'_>, isa: Option<Isa>) -> Result<Option<StateReader>, live::Error> {
    let places: Vec<VcpuPlace> = wanted.vms.iter().flat_map(|vm| places(vm)).collect();
    if places.is_empty() {
        return Ok(None);
    }
    StateReader::load(wanted.root, isa, &places).map(Some)
}

fn places(vm: &Vm) -> impl Iterator<Item = VcpuPlace> {
    vm.vcpus.iter().filter_map(|vcpu| {
        Some(VcpuPlace {
            process: u32::try_from(vm.pid).ok()?,
            descriptor: u32::try_from(vcpu.fd?).ok()?,
            number: vcpu.number,
        })
    })
}

fn watch_for(
    wanted: &Verify<'_>,
    stop: &AtomicBool,
    reader: &mut Option<Option<StateReader>>,
    samples: &mut BTreeMap<VmKey, Vec<VmState>>,
    missing: &mut Vec<Missing>,
) {
    let start = Instant::now();
    for number in 0..SAMPLES {
        if let Some(Some(state)) = reader {
            match note(missing, "KVM's own state", None, state.read()) {
                Some(read) => {
                    read.into_iter().for_each(|(vm, state)| samples.entry(vm).or_default().push(state))
                }
                None => *reader = None,
            }
        }
        if number + 1 < SAMPLES {
            pause(start + wanted.duration * (number + 1) / (SAMPLES - 1), stop);
        }
    }
}

fn pause(end: Instant, stop: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(20);
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(STEP));
    }
}

fn host_side(root: &Path) -> (HostSide, Cpu) {
    let fingerprint = Fingerprint::read(root).unwrap_or_default();
    let kvm = kvm::usable(root);
    let isa = match kvm.vendor_module {
        Some(kvm::INTEL) => Some(Isa::Vmx),
        Some(_) => Some(Isa::Svm),
        None => None,
    };
    let cpu = fingerprint.cpu.unwrap_or_default();
    let host = HostSide {
        kernel: fingerprint.kernel_release,
        cpu: cpu.name.clone(),
        module: kvm.vendor_module.map(str::to_owned),
        isa,
        enabled: kvm.interrupt_virtualization.as_ref().and_then(host::InterruptVirtualization::enabled),
        interrupt_virtualization: kvm.interrupt_virtualization,
        enable_ipiv: kvm.vendor_module.and_then(|module| kvm::switch(root, module, "enable_ipiv")),
        kvm: kvm.access.err().map(|obstacle| obstacle.to_string()),
        iommus: posting::iommus(root),
    };
    (host, cpu)
}

struct Seen<'a> {
    host: &'a HostSide,
    cpu: &'a Cpu,
    root: &'a Path,
    numbering: &'a InhibitNumbering,
    began_ns: u64,
    samples: &'a BTreeMap<VmKey, Vec<VmState>>,
    changes: &'a BTreeMap<i32, Changes>,
    profile: Option<&'a Profile>,
    interrupts: [&'a [DeviceInterrupt]; 2],
}

impl Seen<'_> {
    /// One verdict, or one for each VM of the process that KVM's state tells apart.
    fn verdicts(&self, vm: &Vm) -> Vec<VmVerification> {
        let of_process = self.samples.iter().filter(|(key, _)| i32::try_from(key.process) == Ok(vm.pid));
        let states: Vec<&[VmState]> = of_process.map(|(_, samples)| samples.as_slice()).collect();
        match states.as_slice() {
            [] => vec![self.verdict(vm, &[], None)],
            [one] => vec![self.verdict(vm, one, None)],
            several => {
                several.iter().enumerate().map(|(at, one)| self.verdict(vm, one, Some(at + 1))).collect()
            }
        }
    }

    fn verdict(&self, vm: &Vm, samples: &[VmState], which: Option<usize>) -> VmVerification {
        // Exits and changes are known by process alone.
        let changes = if which.is_none() { self.changes.get(&vm.pid) } else { None };
        let seen: Vec<InhibitSeen> =
            changes.iter().flat_map(|changes| &changes.inhibits).map(|one| self.seen(one)).collect();
        let signs = self.signs(vm).filter(|_| which.is_none() && vm.vm_fds.len() <= 1);
        let activation = judge(&Evidence {
            isa: self.host.isa,
            enabled: self.host.enabled,
            // kvm_amd.force_avic believes in an AVIC that the CPU does not show.
            cpu_denies: self.host.isa == Some(Isa::Svm) && !self.cpu.has("avic"),
            samples,
            changes: &seen,
            signs: signs.as_ref(),
            numbering: self.numbering,
        });
        let last = samples.last();
        let controls = last.and_then(|state| state.vcpus.iter().find_map(|vcpu| vcpu.controls));
        let ipi = IpiEvidence {
            isa: self.host.isa,
            status: activation.status,
            parameter: self.host.enable_ipiv,
            cpu: self.cpu.has_vmx("ipi_virt"),
            family: self.cpu.family,
            controls,
        };
        let named = activation.reasons.iter().filter_map(|one| one.reason);
        VmVerification {
            pid: vm.pid,
            name: vm.name.clone(),
            vmm: vm.vmm,
            which,
            cures: named.map(|reason| self.cures(reason)).collect(),
            ipi_virtualization: ipi.judge(),
            devices: self.devices(vm, activation.status, last, changes),
            state: last.map(|last| StateSeen {
                samples: samples.iter().map(StateSample::of).collect(),
                last: last.clone(),
            }),
            changes: changes.map(|_| seen.iter().map(|one| self.changed(one)).collect()),
            exits: signs,
            activation,
        }
    }

    fn seen(&self, change: &live::InhibitChange) -> InhibitSeen {
        InhibitSeen {
            after_ns: change.time_ns.saturating_sub(self.began_ns),
            set: change.set,
            number: change.number,
            mask: change.mask,
        }
    }

    fn changed(&self, seen: &InhibitSeen) -> Changed {
        Changed {
            after_ns: seen.after_ns,
            set: seen.set,
            number: seen.number,
            reason: self.numbering.reason(seen.number),
            mask: seen.mask,
        }
    }

    fn signs(&self, vm: &Vm) -> Option<ExitSigns> {
        let of_vm = self.profile?.only(|vcpu| vcpu.vm.and_then(|vm| i32::try_from(vm).ok()) == Some(vm.pid));
        Some(ExitSigns::of(&of_vm))
    }

    fn cures(&self, reason: InhibitReason) -> ReasonCures {
        let of_other_vendor = |place| match self.host.isa {
            Some(Isa::Vmx) => place == CurePlace::KvmAmd,
            Some(Isa::Svm) => place == CurePlace::KvmIntel,
            None => matches!(place, CurePlace::KvmIntel | CurePlace::KvmAmd),
        };
        let cures = reason.cures().iter().filter(|cure| !of_other_vendor(cure.place));
        ReasonCures { reason, set_by: reason.set_by(), cures: cures.copied().collect() }
    }

    fn devices(
        &self,
        vm: &Vm,
        status: Status,
        last: Option<&VmState>,
        changes: Option<&Changes>,
    ) -> Vec<DeviceVerdict> {
        let devices = posting::devices_of(self.root, vm);
        let iommu_posts = match self.host.iommus.as_slice() {
            [] => None,
            some => some.iter().map(|one| one.posts).reduce(|all, one| Some(all? && one?)).flatten(),
        };
        let only_device = devices.len() == 1;
        let judged = devices.into_iter().map(|device| {
            let [before, after] = self.interrupts.map(|all| all.iter().filter(|one| one.device == device));
            let count =
                |some: &mut dyn Iterator<Item = &DeviceInterrupt>| -> u64 { some.map(|one| one.count).sum() };
            let numbers: Vec<u32> = after.clone().map(|one| one.number).collect();
            let level = !numbers.is_empty() && after.clone().all(|one| one.level);
            let mut updates = changes.iter().flat_map(|changes| &changes.posting);
            let evidence = DeviceEvidence {
                obstacle: DeviceEvidence::obstacle_of(status)
                    .or((iommu_posts == Some(false)).then_some(PostingObstacle::Iommu))
                    .or_else(|| self.told_not_to_post())
                    .or(level.then_some(PostingObstacle::LevelTriggered)),
                iommu_posts,
                host_vectors: numbers.len(),
                host_interrupts: count(&mut after.clone()).saturating_sub(count(&mut before.clone())),
                last_update_posts: updates
                    .rfind(|update| numbers.contains(&update.host_irq))
                    .map(|update| update.posted),
                vm_has_posted: last.and_then(|state| {
                    let known = state.vcpus.iter().map(|vcpu| vcpu.posted_to);
                    known.reduce(|all, one| Some(all? || one?)).flatten()
                }),
                only_device,
            };
            DeviceVerdict { device, delivery: evidence.judge(), evidence }
        });
        judged.collect()
    }

    fn told_not_to_post(&self) -> Option<PostingObstacle> {
        // Linux 6.16; of kvm or, where that is not, of the vendor's module.
        let modules = std::iter::once("kvm").chain(self.host.module.as_deref());
        let mut switches = modules.map(|module| kvm::switch(self.root, module, "enable_device_posted_irqs"));
        if switches.any(|switch| switch == Some(false)) {
            return Some(PostingObstacle::Parameter);
        }
        let line = std::fs::read_to_string(self.root.join("proc/cmdline")).unwrap_or_default();
        let told = |word: &str| match word.split_once('=') {
            Some(("intremap", values)) => values.split(',').any(|value| value == "nopost" || value == "off"),
            Some(("amd_iommu_intr", value)) => value == "legacy",
            _ => false,
        };
        line.split_whitespace().any(told).then_some(PostingObstacle::KernelArgument)
    }
}
