//! `exitless exporter`: exits, states and findings of this host for Prometheus.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::doctor::Tally;
use anyhow::Context as _;
use clap::Args;
use conclusions::activation::InForce;
use exporter::{Host, OwnCost, State, Totals, VmHost, VmIdentity};
use host::scheduling::{ThreadId, ThreadTimes};
use host::vms::{Vm, Vmm, Vms};
use host::{Inspection, Root};
use live::{Collector, pause};
use verify::{Verification, Verify, VmVerification};

use super::doctor::sides_of;
use super::watching::{HOST, WatchArguments};
use super::xen::XenHost;
use crate::{interrupt, status};

/// The interval at which interrupt virtualization is judged.
const STATES: Duration = Duration::from_secs(30);
/// The number of judgements between two examinations of the host as `doctor` makes them.
const EXAMINATIONS: u32 = 20;

/// Arguments of `exporter`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The address and port to answer at, without encryption or passwords.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:19170")]
    listen: SocketAddr,
    #[command(flatten)]
    watch: WatchArguments,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if XenHost::find(&arguments.watch).is_some() {
        let xen = "The exporter counts the exits of KVM; on a Xen host, use `exitless stat`";
        return Err(status::Usage(xen.to_owned()).into());
    }
    let stop = interrupt::flag()?;
    let bound = TcpListener::bind(arguments.listen);
    let listener = bound.with_context(|| format!("Could not listen at {}", arguments.listen))?;
    let watch = arguments.watch.watch(false)?;
    let Some(collector) = arguments.watch.attach(&watch, &stop)? else { return Ok(ExitCode::SUCCESS) };
    tracing::info!("Metrics are at http://{}/metrics", listener.local_addr()?);
    if !arguments.listen.ip().is_loopback() {
        tracing::warn!(
            "Everybody who reaches {} can read the names of VMs and their exits",
            arguments.listen
        );
    }
    let judged = Arc::new(Mutex::new(Judged::default()));
    let judge = std::thread::Builder::new().name("judge".to_owned()).spawn({
        let (judged, stop, wanted) =
            (Arc::clone(&judged), Arc::clone(&stop), arguments.watch.wanted().to_vec());
        move || Judged::keep(&judged, &wanted, &stop)
    })?;
    let wanted = arguments.watch.wanted().to_vec();
    let mut collection = Collection { collector, wanted, totals: Totals::default(), judged };
    exporter::serve(listener, move || exporter::text(collection.collect()), &stop)?;
    // It ends with the signal; a panic there has said so itself.
    let _ended = judge.join();
    Ok(ExitCode::SUCCESS)
}

/// What takes longer than an answer may: made on its own thread.
#[derive(Debug, Default)]
struct Judged {
    states: BTreeMap<i32, State>,
    findings: Option<Tally>,
}

impl Judged {
    /// Judges the host until `stop` is set.
    fn keep(judged: &Mutex<Self>, wanted: &[String], stop: &AtomicBool) {
        let mut round = 0;
        loop {
            let next = Instant::now() + STATES;
            let seen = seen(wanted, stop);
            let findings = if round % EXAMINATIONS == 0 { findings(seen.as_ref()) } else { None };
            let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
            judged.states = seen.iter().flat_map(|seen| &seen.vms).map(|vm| (vm.pid, state(vm))).collect();
            judged.findings = findings.or(judged.findings);
            drop(judged);
            round += 1;
            if !pause(next, stop) {
                return;
            }
        }
    }
}

/// The running VMs that were asked for; none if they cannot be found now.
fn running(wanted: &[String]) -> Vms {
    let mut found = Vms::discover(Path::new(HOST)).unwrap_or_default();
    if !wanted.is_empty() {
        let chosen = found.select(wanted).map(|vms| vms.into_iter().cloned().collect());
        found.vms = chosen.unwrap_or_default();
    }
    found
}

/// KVM's present state of the VMs; `None` without any.
fn seen(wanted: &[String], stop: &AtomicBool) -> Option<Verification> {
    let found = running(wanted);
    let vms: Vec<&Vm> = found.vms.iter().collect();
    let root = Path::new(HOST);
    let wanted =
        Verify { root, found: &found, vms: &vms, chosen: !wanted.is_empty(), duration: Duration::ZERO };
    (!vms.is_empty()).then(|| verify::verify(&wanted, stop))
}

fn state(vm: &VmVerification) -> State {
    let name = |one: &InForce| match (one.reason, one.number) {
        (Some(reason), _) => reason.name().to_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => "unknown".to_owned(),
    };
    State { status: vm.activation.status, reasons: vm.activation.reasons.iter().map(name).collect() }
}

/// The same numbers as those of `exitless doctor`.
fn findings(seen: Option<&Verification>) -> Option<Tally> {
    let host = Inspection::read(&Root::live()).ok()?;
    Some(::doctor::examine(&host, &seen.map(sides_of).unwrap_or_default(), &[]).summary)
}

/// What each answer collects.
struct Collection {
    collector: Collector,
    wanted: Vec<String>,
    totals: Totals,
    judged: Arc<Mutex<Judged>>,
}

impl Collection {
    fn collect(&mut self) -> Host {
        let began = Instant::now();
        let found = running(&self.wanted);
        let identities: BTreeMap<u32, VmIdentity> =
            found.vms.iter().filter_map(|vm| Some((u32::try_from(vm.pid).ok()?, identity(vm)?))).collect();
        match self.collector.take() {
            Ok(profile) => self.totals.add(&profile, &identities),
            // The counts are still in the kernel.
            Err(error) => tracing::warn!("Could not read the counts of exits: {error}"),
        }
        self.totals.keep(&identities);
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let vms = found.vms.iter().filter_map(|vm| {
            let state = judged.states.get(&vm.pid).cloned();
            Some((identity(vm)?, facts(vm, state)))
        });
        Host {
            totals: self.totals.clone(),
            vms: vms.collect(),
            findings: judged.findings,
            own: own_cost(began),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn identity(vm: &Vm) -> Option<VmIdentity> {
    Some(VmIdentity::new(&vm.name, u32::try_from(vm.pid).ok()?, vm.start_ticks))
}

fn facts(vm: &Vm, state: Option<State>) -> VmHost {
    let threads = vm.vcpus.iter().filter_map(|vcpu| Some(ThreadId { pid: vm.pid, tid: vcpu.thread? }));
    let times = threads.filter_map(|thread| thread.times(Path::new(HOST)));
    let sum = times.fold(ThreadTimes::default(), |sum, one| ThreadTimes {
        ran_ns: sum.ran_ns.saturating_add(one.ran_ns),
        waited_ns: sum.waited_ns.saturating_add(one.waited_ns),
    });
    VmHost {
        vmm: match vm.vmm {
            Vmm::Qemu => "qemu",
            Vmm::CloudHypervisor => "cloud-hypervisor",
            Vmm::Crosvm => "crosvm",
            Vmm::Firecracker => "firecracker",
            _ => "other",
        },
        vcpus: vm.vcpus.len(),
        ran_ns: sum.ran_ns,
        waited_ns: sum.waited_ns,
        state,
    }
}

fn own_cost(began: Instant) -> OwnCost {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // The second field is the resident pages (proc_pid_statm(5)).
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    OwnCost {
        cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
        resident_bytes: pages * rustix::param::page_size() as u64,
        collection_seconds: began.elapsed().as_secs_f64(),
    }
}
