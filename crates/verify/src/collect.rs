//! Collects and judges the evidence.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use conclusions::activation::{Status, VmState};
use exits::Isa;
use host::posting;
use host::vms::{AS_ROOT, Vm, Vms};
use host::{Cpu, Fingerprint, Root, XenControl, kvm};
use live::{ChangesWatch, Collector, HostChanges, StateReader, VcpuPlace, VmKey, Watch, monotonic_ns};

use super::result::FORMAT;
use super::seen::Seen;
use super::{HostSide, Missing, Verification};
use live::pause;

/// The number of samples of KVM's state, evenly spaced over the duration; one if the duration is zero.
const SAMPLES: u32 = 11;
/// The longest time between two readings of the events of changes. Their buffers are small.
const KEPT_EACH: Duration = Duration::from_secs(1);
/// The evidence from KVM's events, as missing.
const CHANGES: &str = "changes of inhibit reasons";

/// The subject of a verification.
#[derive(Debug, Clone, Copy)]
pub struct Verify<'a> {
    /// The host's directory (`/`).
    pub root: &'a Path,
    /// All VMs that were found.
    pub found: &'a Vms,
    /// The VMs to judge.
    pub vms: &'a [&'a Vm],
    /// True if the user selected `vms`. Processes outside the selection that cannot be examined are then not
    /// reported.
    pub chosen: bool,
    /// The duration of the observation. If it is zero, KVM's state is read once; exits and changes, which take time, are
    /// neither observed nor listed as missing.
    pub duration: Duration,
}

/// Observes the VMs for a while and judges each. Lists the evidence that is not available, and judges by the
/// rest. When `stop` is set, it judges by the observations until then.
#[must_use]
pub fn verify(wanted: &Verify<'_>, stop: &AtomicBool) -> Verification {
    let root = wanted.root;
    let (host, cpu) = host_side(root);
    let mut missing = Vec::new();
    let mut reader = note(&mut missing, "KVM's own state", None, state_reader(wanted, host.isa));
    for lacking in reader.iter().flatten().flat_map(StateReader::missing) {
        missing.push(Missing { what: "parts of KVM's own state", pid: None, why: lacking.clone() });
    }
    // Exits and changes need eBPF programs, and events on every CPU: do not attach them if there is no time to observe.
    let observed: &[&Vm] = if wanted.duration.is_zero() { &[] } else { wanted.vms };
    let processes = observed.iter().filter_map(|vm| u32::try_from(vm.pid).ok()).collect();
    let watch = Watch { processes: Some(processes), accesses: true, ..Watch::default() };
    let collector = if observed.is_empty() { Ok(None) } else { Collector::attach(root, &watch).map(Some) };
    let mut collector = note(&mut missing, "exits", None, collector).flatten();

    // The slow part of the setup is done; start observing.
    let began_ns = monotonic_ns();
    let watch = match observed {
        [] => Ok(None),
        vms => ChangesWatch::attach(root, vms.iter().map(|vm| vm.pid)).map(Some),
    };
    let mut watch = note(&mut missing, CHANGES, None, watch).flatten();
    if let Some(collector) = &mut collector {
        // Discard the events from the setup: they precede the reported time.
        let _ = note(&mut missing, "exits", None, collector.take());
    }
    let interrupts_before = posting::device_interrupts(root);
    let mut samples: BTreeMap<VmKey, Vec<VmState>> = BTreeMap::new();
    watch_for(wanted, stop, &mut reader, &mut watch, &mut samples, &mut missing);
    let watched_ns = monotonic_ns() - began_ns;

    let profile = collector.as_mut().map(Collector::take).transpose();
    let profile = note(&mut missing, "exits", None, profile).flatten();
    let interrupts = posting::device_interrupts(root);
    let HostChanges { processes: changes, lost } = watch.map(ChangesWatch::finish).unwrap_or_default();
    missing.extend(lost_changes(lost));
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
    if wanted.found.unreadable > 0 && !wanted.chosen {
        let why = format!("{} cannot be inspected; {AS_ROOT}", counted_processes(wanted.found.unreadable));
        missing.push(Missing { what: "VMs of other users", pid: None, why });
    }
    for one in wanted.found.held.iter().filter(|_| !wanted.chosen) {
        let why = format!("{} was not fully inspected: it blocks inspection", one.command);
        missing.push(Missing { what: "a process that may be a VM", pid: Some(one.pid), why });
    }
    let (likely, held) = match wanted.chosen {
        true => (Vec::new(), Vec::new()),
        false => (wanted.found.likely.clone(), wanted.found.hidden().cloned().collect()),
    };
    let mut verification = Verification {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        status: Status::Unknown,
        host,
        watched_ns,
        vms,
        likely,
        held,
        provoked: None,
        missing,
    };
    verification.status = verification.overall();
    verification
}

fn lost_changes(lost: u64) -> Option<Missing> {
    let why = format!(
        "{lost} of the whole host were lost, because a buffer was full; they may be those of other VMs"
    );
    (lost > 0).then_some(Missing { what: CHANGES, pid: None, why })
}

fn counted_processes(number: u32) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
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
    let places: Vec<VcpuPlace> = wanted.vms.iter().flat_map(|vm| VcpuPlace::of(vm)).collect();
    if places.is_empty() {
        return Ok(None);
    }
    StateReader::load(wanted.root, isa, &places).map(Some)
}

fn watch_for(
    wanted: &Verify<'_>,
    stop: &AtomicBool,
    reader: &mut Option<Option<StateReader>>,
    changes: &mut Option<ChangesWatch>,
    samples: &mut BTreeMap<VmKey, Vec<VmState>>,
    missing: &mut Vec<Missing>,
) {
    let keep = || changes.iter_mut().for_each(ChangesWatch::keep);
    at_samples(wanted.duration, KEPT_EACH, stop, keep, || {
        if let Some(Some(state)) = reader {
            match note(missing, "KVM's own state", None, state.read()) {
                Some(read) => {
                    read.into_iter().for_each(|(vm, state)| samples.entry(vm).or_default().push(state))
                }
                None => *reader = None,
            }
        }
    });
}

/// Calls `sample` [`SAMPLES`] times, evenly spaced over `duration`; once if `duration` is zero. When `stop` is set, it
/// calls it a last time. Calls `keep` after each pause, the longest of which is `each`.
fn at_samples(
    duration: Duration,
    each: Duration,
    stop: &AtomicBool,
    mut keep: impl FnMut(),
    mut sample: impl FnMut(),
) {
    let start = Instant::now();
    sample();
    let further = if duration.is_zero() { 0 } else { SAMPLES - 1 };
    for number in 1..=further {
        let end = start + duration * number / further;
        let goes_on = loop {
            let next = end.min(Instant::now() + each);
            let goes_on = pause(next, stop);
            keep();
            if !goes_on || next == end {
                break goes_on;
            }
        };
        sample();
        if !goes_on {
            break;
        }
    }
}

fn host_side(root: &Path) -> (HostSide, Cpu) {
    let fingerprint = Fingerprint::read(root).unwrap_or_default();
    let kvm = kvm::usable(root);
    let cpu = fingerprint.cpu.unwrap_or_default();
    let host = HostSide {
        kernel: fingerprint.kernel_release,
        cpu: cpu.name.clone(),
        module: kvm.vendor_module.map(str::to_owned),
        isa: kvm.vendor_module.and_then(kvm::isa_of),
        enabled: kvm.interrupt_virtualization.as_ref().and_then(host::InterruptVirtualization::enabled),
        interrupt_virtualization: kvm.interrupt_virtualization,
        enable_ipiv: kvm.vendor_module.and_then(|module| kvm::switch(root, module, "enable_ipiv")),
        kvm: kvm.access.err().map(|obstacle| obstacle.to_string()),
        iommus: posting::iommus(root),
        xen: XenControl::is_here(&Root::directory(root)),
    };
    (host, cpu)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use host::vms::{HeldProcess, Management, Vmm};

    pub(crate) fn vm() -> Vm {
        Vm {
            pid: 1 << 24,
            vmm: Vmm::Qemu,
            management: Management::default(),
            command: "qemu".to_owned(),
            name: "web".to_owned(),
            arguments: Vec::new(),
            start_ticks: 1,
            started: None,
            vm_fds: vec![3],
            vcpus: Vec::new(),
            threads: vec![1 << 24],
            vhost: Vec::new(),
            iothreads: Vec::new(),
            monitors: Vec::new(),
            devices: Vec::new(),
            vfio: Vec::new(),
            has_vdpa: false,
            debugfs: Vec::new(),
        }
    }

    #[test]
    fn the_present_state_is_one_sample() {
        let count = |duration| {
            let mut samples = 0;
            at_samples(duration, KEPT_EACH, &AtomicBool::new(false), || (), || samples += 1);
            samples
        };
        assert_eq!([Duration::ZERO, Duration::from_millis(1)].map(count), [1, SAMPLES]);
    }

    #[test]
    fn a_stop_ends_with_the_state_at_that_time() {
        let stop = AtomicBool::new(false);
        let mut samples = 0;
        let sample = || {
            samples += 1;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        at_samples(Duration::from_secs(20), KEPT_EACH, &stop, || (), sample);
        assert_eq!(samples, 2);
    }

    #[test]
    fn events_are_also_read_between_samples_that_are_far_apart() {
        let stop = AtomicBool::new(false);
        let (mut kept, mut samples) = (0, 0);
        let keep = || {
            kept += 1;
            stop.store(kept >= 3, std::sync::atomic::Ordering::Relaxed);
        };
        // The second sample would come after six minutes.
        at_samples(Duration::from_secs(3_600), Duration::from_millis(1), &stop, keep, || samples += 1);
        assert_eq!((kept, samples), (4, 2));
    }

    #[test]
    fn a_control_domain_of_xen_cannot_be_judged_by_its_module() {
        let root = tempfile::tempdir().unwrap();
        let is_xen = || host_side(root.path()).0.xen;
        assert!(!is_xen());
        std::fs::create_dir_all(root.path().join("proc/xen")).unwrap();
        std::fs::write(root.path().join("proc/xen/capabilities"), "control_d\n").unwrap();
        assert!(is_xen());
    }

    #[test]
    fn a_host_with_both_modules_built_in_is_judged_by_its_cpu() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "processor : 0\nflags : svm avic\n");
        write("sys/module/kvm_intel/parameters/enable_apicv", "Y\n");
        write("sys/module/kvm_amd/parameters/avic", "N\n");
        let (host, _) = host_side(root.path());
        assert_eq!(
            (host.isa, host.module.as_deref(), host.enabled),
            (Some(Isa::Svm), Some("kvm_amd"), Some(false))
        );
    }

    #[test]
    fn a_process_that_hides_from_inspection_may_be_one_more_vm() {
        let root = Path::new("/dev/null/no-host");
        let vm = vm();
        let held = |pid| HeldProcess { pid, command: "qemu".to_owned() };
        let found = Vms { vms: vec![vm.clone()], held: vec![held(vm.pid), held(7)], ..Vms::default() };
        let hidden = |chosen| {
            let wanted = Verify { root, found: &found, vms: &[&vm], chosen, duration: Duration::ZERO };
            verify(&wanted, &AtomicBool::new(true)).held
        };
        assert_eq!((hidden(false), hidden(true)), (vec![held(7)], Vec::new()));
    }

    #[test]
    fn lost_changes_are_missing() {
        assert!(lost_changes(0).is_none());
        let Missing { what, why, .. } = lost_changes(3).unwrap();
        assert_eq!(what, CHANGES);
        assert!(why.contains("3 of the whole host were lost") && why.contains("other VMs"), "{why}");
    }

    #[test]
    fn exits_and_changes_are_observed_only_if_there_is_time() {
        // A root without files: each attachment fails and is listed as missing.
        let root = Path::new("/dev/null/no-host");
        let (found, vm) = (Vms::default(), vm());
        let lacking = |duration| {
            let wanted = Verify { root, found: &found, vms: &[&vm], chosen: true, duration };
            let seen = verify(&wanted, &AtomicBool::new(true));
            assert_eq!((seen.vms.len(), seen.status), (1, Status::Unknown));
            seen.missing.iter().map(|one| one.what).collect::<Vec<_>>()
        };
        assert_eq!(lacking(Duration::from_millis(1)), ["exits", "changes of inhibit reasons"]);
        assert!(lacking(Duration::ZERO).is_empty());
    }
}
