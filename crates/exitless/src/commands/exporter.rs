//! `exitless exporter`: exits, states and findings of this host for Prometheus.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::doctor::Tally;
use anyhow::Context as _;
use clap::Args;
use conclusions::activation::InForce;
use exits::{Profile, with_causes};
use exporter::{
    HaltPolling, Highest, Host, IoWorkers, Listener, Named, Names, OwnCost, State, Totals, VmHost, VmIdentity,
};
use files::{Missing, Replacement};
use host::scheduling::{ThreadId, ThreadTimes};
use host::vms::{Management, Vm, Vmm, Vms};
use host::{Inspection, Root};
use iocm::accounts::group_of;
use iocm::config::SOCKET;
use iocm::control::client::{Client, ClientError};
use iocm::socket_file::{SocketAccess, SocketFile};
use live::{Collector, in_first_pid_namespace, pause};
use verify::{Verification, Verify, VmVerification};

use super::doctor::sides_of;
use super::paths;
use super::watching::{HOST, WatchArguments};
use super::xen::XenHost;
use crate::{interrupt, status};

/// The interval at which the state of interrupt virtualization is read.
const STATES: Duration = Duration::from_secs(30);
/// The number of these intervals from one examination of the host, as by `doctor`, to the next.
const EXAMINATIONS: u32 = 20;
/// The ages above which states and findings are not exported, because whatever finds them hangs: a few intervals, and two
/// minutes for a host that takes long to look at. Findings are as slow as the looks between two examinations.
const OLD_STATES: Duration = STATES.saturating_mul(3).saturating_add(Duration::from_secs(120));
const OLD_FINDINGS: Duration = OLD_STATES.saturating_mul(EXAMINATIONS);
/// The interval at which the daemon of the I/O workers is queried.
const IO_WORKERS: Duration = Duration::from_secs(5);
/// The most memory for each of the daemon's answers, of which the exporter has four at a time. A device takes some 5 KiB, and
/// a host can have tens of thousands. The daemon has fewer rights, and must not be able to exceed the exporter's limit.
const MOST_MEMORY: usize = 192 << 20;
/// The age above which the daemon's last answer is not exported.
const TOO_OLD: Duration = Duration::from_secs(15);
/// The longest wait, when the exporter ends, for an examination in progress.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Arguments of `exporter`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The address and port to answer at, without encryption or passwords, or unix: and the path of a socket.
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:19170")]
    listen: Place,
    /// The group that may use the UNIX socket; by default only its owner may.
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// The control socket of a daemon of I/O workers; it is no error if there is none.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    iocm: PathBuf,
    /// Keep the features of this host in this file, of which Kubernetes' Node Feature Discovery makes labels of the node.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    node_features: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArguments,
}

/// The place at which metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("a path has to follow unix:".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!("`{text}` is no address and port, such as 127.0.0.1:19170, and no unix:PATH")
            }),
        }
    }
}

impl Arguments {
    /// Listens. The file of a UNIX socket is removed at the end.
    fn listener(&self) -> anyhow::Result<(Listener, Option<SocketFile>)> {
        match &self.listen {
            Place::Tcp(_) if self.socket_group.is_some() => {
                Err(status::Usage("--socket-group is for --listen unix:PATH".to_owned()).into())
            }
            Place::Tcp(address) => {
                let bound = TcpListener::bind(address);
                let listener = bound.with_context(|| format!("Could not listen at {address}"))?;
                tracing::info!("Metrics are at http://{}/metrics", listener.local_addr()?);
                if !address.ip().is_loopback() {
                    tracing::warn!("Anyone who reaches {address} can read the names of VMs and their exits");
                }
                Ok((listener.into(), None))
            }
            Place::Unix(path) => {
                let group = self.socket_group.as_deref().map(group_of).transpose()?;
                let mode = Some(if group.is_some() { 0o660 } else { 0o600 });
                let access = SocketAccess { group, mode, ..SocketAccess::default() };
                let bound = SocketFile::bind(path, Missing::Refused, access);
                let (file, listener) =
                    bound.with_context(|| format!("Could not listen at {}", path.display()))?;
                tracing::info!("Metrics are at {}", path.display());
                Ok((listener.into(), Some(file)))
            }
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if XenHost::find(&arguments.watch).is_some() {
        let xen = "The exporter counts the exits of KVM; on a Xen host, use `exitless stat`";
        return Err(status::Usage(xen.to_owned()).into());
    }
    let stop = interrupt::flag()?;
    let (listener, file) = arguments.listener()?;
    let served = serve(arguments, listener, &stop);
    file.iter().for_each(SocketFile::remove);
    served.map(|()| ExitCode::SUCCESS)
}

/// Serves until `stop` is set.
fn serve(arguments: &Arguments, listener: Listener, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let watch = arguments.watch.watch_all()?;
    let Some(collector) = arguments.watch.attach(&watch, stop)? else { return Ok(()) };
    collector.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    let judged = Arc::new(Mutex::new(Judged::default()));
    let judge = needed("judge", stop, {
        let (judged, stop, wanted) =
            (Arc::clone(&judged), Arc::clone(stop), arguments.watch.wanted().to_vec());
        let features = arguments.node_features.clone();
        move || Judged::keep(&judged, &wanted, features.as_deref(), &stop)
    })?;
    let daemon = Arc::new(Mutex::new(None));
    // Not joined: a daemon that hangs would block the exit.
    std::thread::Builder::new().name("iocm".to_owned()).spawn({
        let (daemon, stop, socket) = (Arc::clone(&daemon), Arc::clone(stop), arguments.iocm.clone());
        move || ask_daemon(&daemon, &socket, &stop)
    })?;
    let wanted = arguments.watch.wanted().to_vec();
    let (totals, named, highest) = (Arc::default(), Named::default(), Highest::default());
    let mut collection = Collection { collector, wanted, totals, named, highest, judged, daemon };
    exporter::serve(listener, move || exporter::text(collection.collect()), stop)?;
    // The thread may be writing the features file. But what it reads may block, so do not wait for it
    // forever.
    let latest = Instant::now() + LAST_LOOK;
    while !judge.is_finished() && Instant::now() < latest {
        std::thread::sleep(Duration::from_millis(20));
    }
    if judge.is_finished() && judge.join().is_err() {
        anyhow::bail!(
            "Could not go on judging VMs: the thread failed, as its message says; start the exporter again"
        );
    }
    Ok(())
}

/// Starts a thread. When it ends, also by a panic, `stop` is set: the exporter must not go on without it.
fn needed(
    name: &str,
    stop: &Arc<AtomicBool>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    struct Stops(Arc<AtomicBool>);
    impl Drop for Stops {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stops = Stops(Arc::clone(stop));
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _stops = stops;
        run();
    })
}

/// Facts that take longer to find than a scrape may take; a thread of their own finds them.
#[derive(Debug, Default)]
struct Judged {
    /// The states, and when each was found, by process ID and start time in clock ticks since boot.
    states: BTreeMap<(i32, u64), (Instant, State)>,
    /// The findings, and when they were found.
    findings: Option<(Instant, Tally)>,
}

impl Judged {
    /// The state of a VM, unless it is too old.
    fn state(&self, vm: &Vm) -> Option<State> {
        let (at, state) = self.states.get(&(vm.pid, vm.start_ticks))?;
        (at.elapsed() < OLD_STATES).then(|| state.clone())
    }

    /// The findings, unless they are too old.
    fn findings(&self) -> Option<Tally> {
        self.findings.filter(|(at, _)| at.elapsed() < OLD_FINDINGS).map(|(_, findings)| findings)
    }

    /// Judges the host until `stop` is set.
    fn keep(judged: &Mutex<Self>, wanted: &[String], features: Option<&Path>, stop: &AtomicBool) {
        let mut round = 0;
        loop {
            let next = Instant::now() + STATES;
            let found = running(wanted);
            let seen = found.as_ref().and_then(|found| seen(found, !wanted.is_empty(), stop));
            let findings = if round % EXAMINATIONS == 0 { findings(seen.as_ref(), features) } else { None };
            let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
            let states = seen.iter().flat_map(|seen| &seen.vms).map(|vm| (vm.pid, state(vm)));
            judged.take(found.as_ref(), states);
            judged.findings = findings.map(|findings| (Instant::now(), findings)).or(judged.findings);
            drop(judged);
            round += 1;
            if !pause(next, stop) {
                return;
            }
        }
    }

    /// Replaces the states by those of the VMs found now. A VM that may still run keeps its last state.
    fn take(&mut self, found: Option<&Vms>, states: impl Iterator<Item = (i32, State)>) {
        self.states.retain(|(pid, _), _| may_run(found, *pid));
        let starts: BTreeMap<i32, u64> =
            found.iter().flat_map(|found| &found.vms).map(|vm| (vm.pid, vm.start_ticks)).collect();
        // One process may have several VMs, each with a state.
        let mut by_process: BTreeMap<(i32, u64), State> = BTreeMap::new();
        for (pid, state) in states {
            let Some(start) = starts.get(&pid) else { continue };
            match by_process.entry((pid, *start)) {
                Entry::Vacant(free) => {
                    free.insert(state);
                }
                Entry::Occupied(mut taken) => join(taken.get_mut(), state),
            }
        }
        let now = Instant::now();
        self.states.extend(by_process.into_iter().map(|(process, state)| (process, (now, state))));
    }
}

/// Joins the state of another VM of the same process: the worse of the two, and the reasons of both.
fn join(state: &mut State, other: State) {
    state.status = state.status.worse(other.status);
    state.reasons.extend(other.reasons);
    // Each is a metric of its own, and must be there once.
    state.reasons.sort();
    state.reasons.dedup();
}

/// The daemon's last answer, and when it came.
type Daemon = Mutex<Option<(Instant, IoWorkers)>>;

/// Asks a daemon for its counters until `stop` is set.
fn ask_daemon(daemon: &Daemon, socket: &Path, stop: &AtomicBool) {
    let mut client = None;
    let mut warned = false;
    let mut counters = IoWorkers::default();
    loop {
        let next = Instant::now() + IO_WORKERS;
        let asked = client.take().map_or_else(|| connect(socket), Ok);
        let answered = asked.and_then(|mut client| Ok((read_parts(&mut client)?, client)));
        match answered {
            Ok((tree, again)) => {
                counters.add(&tree);
                let answer = (Instant::now(), counters.clone());
                *daemon.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                client = Some(again);
                warned = false;
            }
            Err(error) if warned || is_absence(&error) => tracing::debug!("{error}"),
            Err(error) => {
                tracing::warn!("No metrics of I/O workers: {:#}", anyhow::Error::from(error));
                warned = true;
            }
        }
        if !pause(next, stop) {
            return;
        }
    }
}

fn connect(socket: &Path) -> Result<Client, ClientError> {
    Client::connect_within(socket, IO_WORKERS).map(|client| client.with_memory(MOST_MEMORY))
}

/// The parts of a daemon's control tree that have metrics: not the queues, which are most of it. The sums of removed workers
/// come before the workers, as in the whole tree.
fn read_parts(client: &mut Client) -> Result<serde_json::Value, ClientError> {
    let parts = ["ticks_per_second", "removed_workers", "workers", "devices"];
    parts.into_iter().map(|part| client.get(part).map(|value| (part, value))).collect()
}

/// Tests whether the daemon is not running, or has ended since.
fn is_absence(error: &ClientError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    match error {
        ClientError::Unreachable { source, .. } => matches!(source.kind(), NotFound | ConnectionRefused),
        ClientError::NoAnswer { source, .. } => {
            matches!(source.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
        }
        _ => false,
    }
}

/// The selected VMs that run; `None` if VMs cannot be looked for now.
fn running(wanted: &[String]) -> Option<Vms> {
    let found = Vms::discover(Path::new(HOST));
    let mut found = found.inspect_err(|error| tracing::warn!("Could not look for VMs: {error}")).ok()?;
    if !wanted.is_empty() {
        // One name at a time: the selection fails as a whole if one of its VMs has ended.
        let chosen = wanted.iter().filter_map(|one| found.select(std::slice::from_ref(one)).ok());
        let chosen: BTreeSet<i32> = chosen.flatten().map(|vm| vm.pid).collect();
        found.vms.retain(|vm| chosen.contains(&vm.pid));
    }
    Some(found)
}

/// Tests whether a process that was not found as a VM may still be one: the search failed, or the process
/// blocks inspection.
fn may_run(found: Option<&Vms>, pid: i32) -> bool {
    found.is_none_or(|found| found.held.iter().any(|one| one.pid == pid))
}

/// The VMs by process, each with the identity and names it was first seen with. Includes VMs that may still
/// run.
fn present<'a>(named: &'a mut Named, found: Option<&Vms>) -> &'a BTreeMap<u32, (VmIdentity, Names)> {
    let vms = found.iter().flat_map(|found| &found.vms);
    let running = vms.filter_map(|vm| Some((identity(vm)?, names(&vm.management))));
    named.keep(running, |process| i32::try_from(process).is_ok_and(|pid| may_run(found, pid)))
}

/// KVM's current state of the VMs; `None` if there are none.
fn seen(found: &Vms, chosen: bool, stop: &AtomicBool) -> Option<Verification> {
    let vms: Vec<&Vm> = found.vms.iter().collect();
    let wanted = Verify { root: Path::new(HOST), found, vms: &vms, chosen, duration: Duration::ZERO };
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

/// The counts that `exitless doctor` shows. Also writes the host's features into the file, if one is given.
fn findings(seen: Option<&Verification>, features: Option<&Path>) -> Option<Tally> {
    let host = Inspection::read(&Root::live()).ok()?;
    if let Some(file) = features
        && let Err(error) = write_whole(file, &::doctor::node_features(&host))
    {
        tracing::warn!("Could not write the features of this host to {}: {error}", file.display());
    }
    let sides = seen.map(sides_of).unwrap_or_default();
    Some(::doctor::examine_below(&host, &sides, &[], Some(Path::new(HOST))).summary)
}

/// Writes a file atomically.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    // The temporary name begins with a full stop: Node Feature Discovery ignores it.
    let mut replacement = Replacement::begin(path, 0o644)?;
    replacement.file().write_all(text.as_bytes())?;
    replacement.place()
}

/// The collection of the facts of an answer.
struct Collection {
    collector: Collector,
    wanted: Vec<String>,
    totals: Arc<Totals>,
    named: Named,
    highest: Highest,
    judged: Arc<Mutex<Judged>>,
    daemon: Arc<Daemon>,
}

impl Collection {
    fn collect(&mut self) -> Host {
        let began = Instant::now();
        let found = running(&self.wanted);
        let named = present(&mut self.named, found.as_ref());
        let identities = named.iter().map(|(process, (first, _))| (*process, first.clone())).collect();
        // The last answer has been dropped, so this does not clone.
        let totals = Arc::make_mut(&mut self.totals);
        // Before adding: the process ID of a VM that ended may belong to a new one.
        totals.keep(&identities);
        match self.collector.take() {
            // In a container, the process IDs here differ from those in the kernel's counts.
            Ok(profile) if !in_first_pid_namespace(Path::new(HOST)) => totals.add(&profile, &BTreeMap::new()),
            Ok(profile) => totals.add(&of_wanted(profile, &self.wanted, &identities), &identities),
            // The programs have begun the next interval, so that the counts of this one are not read again.
            Err(error) => {
                tracing::warn!(
                    "Could not read the counts of exits, so those since the last scrape are missing: {}",
                    with_causes(&error)
                );
                totals.add_failed();
            }
        }
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vms = hosts(found.as_ref(), named, &judged);
        self.highest.raise(&mut vms, &identities);
        Host {
            totals: Arc::clone(&self.totals),
            vms,
            other_vms: self.named.others(),
            io_workers: self.io_workers(),
            findings: judged.findings(),
            own: own_cost(began),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    fn io_workers(&self) -> Option<IoWorkers> {
        let last = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(read, _)| read.elapsed() < TOO_OLD).map(|(_, counters)| counters.clone())
    }
}

/// The exits of the selected VMs. The kernel counts those of all VMs, because a VM that restarts gets a new
/// process ID.
fn of_wanted(profile: Profile, wanted: &[String], running: &BTreeMap<u32, VmIdentity>) -> Profile {
    match wanted {
        [] => profile,
        _ => profile.only(|vcpu| vcpu.vm.is_some_and(|process| running.contains_key(&process))),
    }
}

/// The facts of the VMs that were found and have an identity.
fn hosts(
    found: Option<&Vms>,
    named: &BTreeMap<u32, (VmIdentity, Names)>,
    judged: &Judged,
) -> BTreeMap<VmIdentity, VmHost> {
    let vms = found.into_iter().flat_map(|found| &found.vms);
    let hosts = vms.filter_map(|vm| {
        let (first, names) = named.get(&u32::try_from(vm.pid).ok()?)?.clone();
        Some((first, facts(vm, names, judged.state(vm))))
    });
    hosts.collect()
}

/// KVM's counters of halt polling (`kvm_vcpu_stat_generic` of include/linux/kvm_types.h).
const HALT_POLLING: [&str; 4] =
    ["halt_attempted_poll", "halt_successful_poll", "halt_poll_success_ns", "halt_poll_fail_ns"];

fn halt_polling(vm: &Vm) -> Option<HaltPolling> {
    let counters = vm.counters(&Root::live(), &HALT_POLLING);
    let [attempted, successful, success_ns, fail_ns] = HALT_POLLING.map(|name| counters.get(name).copied());
    Some(HaltPolling {
        attempted: attempted?,
        successful: successful?,
        success_ns: success_ns?,
        fail_ns: fail_ns?,
    })
}

fn identity(vm: &Vm) -> Option<VmIdentity> {
    Some(VmIdentity::new(&vm.name, u32::try_from(vm.pid).ok()?, vm.start_ticks))
}

fn facts(vm: &Vm, names: Names, state: Option<State>) -> VmHost {
    // A vCPU that was unplugged keeps its descriptor, but has no thread any more.
    let threads = vm.vcpus.iter().filter_map(|vcpu| Some(ThreadId { pid: vm.pid, tid: vcpu.thread? }));
    // Without a thread of any, nothing says which ones were unplugged.
    let vcpus = match threads.clone().count() {
        0 => vm.vcpus.len(),
        plugged => plugged,
    };
    // A kernel that does not count times shows zeros (`proc_pid_schedstat` of fs/proc/base.c).
    let times = threads.filter_map(|thread| thread.times(Path::new(HOST))).filter(|times| times.ran_ns > 0);
    let sum = times.reduce(|sum, one| ThreadTimes {
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
        names,
        vcpus,
        ran_ns: sum.map(|sum| sum.ran_ns),
        waited_ns: sum.map(|sum| sum.waited_ns),
        halt_polling: halt_polling(vm),
        state,
    }
}

/// The VM's names in its management software, as labels.
fn names(management: &Management) -> Names {
    let (namespace, name) = management.namespaced.clone().unzip();
    let known = [
        ("manager", Some(management.manager.name().to_owned())),
        ("uuid", management.uuid.clone()),
        ("vmid", management.vmid.map(|vmid| vmid.to_string())),
        ("namespace", namespace),
        ("name", name),
    ];
    known.into_iter().filter_map(|(label, name)| Some((label, exporter::shortened(&name?)))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use conclusions::activation::Status;
    use exits::{ExitReason, Vcpu};
    use host::vms::HeldProcess;
    use std::io::{self, BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;

    fn vm(pid: i32, start_ticks: u64) -> Vm {
        Vm { pid, command: "qemu".to_owned(), name: format!("vm{pid}"), start_ticks, ..Vm::default() }
    }

    /// Results of looking for VMs 7 and 8: both found; the search failed; 8 found and 7 blocks inspection;
    /// only 8 found.
    fn looks() -> [Option<Vms>; 4] {
        let found = |vms, held: &[i32]| {
            let held = held.iter().map(|&pid| HeldProcess { pid, command: "qemu".to_owned() });
            Some(Vms { vms, held: held.collect(), ..Vms::default() })
        };
        [found(vec![vm(7, 1), vm(8, 1)], &[]), None, found(vec![vm(8, 1)], &[7]), found(vec![vm(8, 1)], &[])]
    }

    #[test]
    fn vms_that_cannot_be_looked_at_have_not_ended() {
        let mut named = Named::default();
        let present = looks().map(|found| {
            let present = present(&mut named, found.as_ref());
            present.values().map(|(vm, _)| vm.name.clone()).collect::<Vec<_>>()
        });
        assert_eq!(present, [vec!["vm7", "vm8"], vec!["vm7", "vm8"], vec!["vm7", "vm8"], vec!["vm8"]]);
    }

    #[test]
    fn exits_of_a_vm_that_restarts_are_counted_and_those_of_others_are_not() {
        let mut profile = Profile::new();
        for process in [7, 8, 9] {
            let vcpu = Vcpu { vm: Some(process), number: Some(0), thread: Some(process) };
            profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(10)).or_default().count = 1;
        }
        // The VM's process is 8 now; it was 7 before a restart.
        let running = [(8, VmIdentity::new("web", 8, 2))].into();
        let processes = |wanted: &[String]| {
            let profile = of_wanted(profile.clone(), wanted, &running);
            profile.vcpus().iter().filter_map(|of| of.vcpu.vm).collect::<Vec<_>>()
        };
        assert_eq!(processes(&["web".to_owned()]), [8]);
        assert_eq!(processes(&[]), [7, 8, 9]);
    }

    #[test]
    fn the_number_of_series_is_bounded_also_if_a_user_starts_many_vms() {
        let vms = (1..=2000).map(|number| vm((1 << 24) + number, 1)).collect();
        let found = Vms { vms, ..Vms::default() };
        let mut named = Named::default();
        let vms = hosts(Some(&found), present(&mut named, Some(&found)), &Judged::default());
        let text = exporter::text(Host { vms, other_vms: named.others(), ..Host::default() });
        for name in ["exitless_vm_vcpus", "exitless_vm_info"] {
            let lines =
                text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
            assert_eq!(lines.count(), 1024, "{name}");
        }
        assert!(text.contains("\nexitless_other_vms 976"), "{text}");
    }

    #[test]
    fn times_that_are_not_known_are_no_zeros() {
        let mut one = vm((1 << 24) + 1, 1);
        one.vcpus = vec![host::vms::Vcpu::default()];
        let vms = [(identity(&one).unwrap(), facts(&one, Names::new(), None))].into();
        let text = exporter::text(Host { vms, ..Host::default() });
        assert!(text.contains("\nexitless_vm_vcpus{"), "{text}");
        for name in ["run", "wait"] {
            assert!(!text.contains(&format!("\nexitless_vcpu_{name}_seconds_total")), "{text}");
        }
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "`make test` lists what was not tested")]
    fn a_vm_keeps_its_times_when_a_vcpu_is_unplugged() {
        let own = std::process::id().cast_signed();
        let known = ThreadId { pid: own, tid: own }.times(Path::new(HOST));
        if known.is_none_or(|times| times.ran_ns == 0) {
            return println!("not tested: this kernel does not count the times of threads");
        }
        let mut one = vm(own, 1);
        // QEMU keeps the descriptor of a vCPU without a thread for the next one (`kvm_park_vcpu`), and a thread may end after
        // it was found.
        let with = |thread| host::vms::Vcpu { thread, ..host::vms::Vcpu::default() };
        one.vcpus = vec![with(Some(own)), with(None), with(Some(i32::MAX))];
        let facts = facts(&one, Names::new(), None);
        assert!(facts.ran_ns.is_some_and(|ran_ns| ran_ns > 0) && facts.waited_ns.is_some());
        assert_eq!(facts.vcpus, 2);
    }

    #[test]
    fn counts_that_could_not_be_read_are_told() {
        let mut totals = Totals::default();
        totals.add_failed();
        let text = exporter::text(Host { totals: Arc::new(totals), ..Host::default() });
        assert!(text.contains("\nexitless_failed_collections_total 1.0\n"), "{text}");
    }

    #[test]
    fn a_daemon_that_refuses_is_no_absent_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        assert!(is_absence(&connect(&path).unwrap_err()), "there is no socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = connect(&path).unwrap();
        drop(listener);
        assert!(is_absence(&client.get("").unwrap_err()), "it has ended");
        assert!(is_absence(&connect(&path).unwrap_err()), "nobody listens");
        let source = io::ErrorKind::PermissionDenied.into();
        assert!(!is_absence(&ClientError::Unreachable { path, source }));
    }

    #[test]
    fn the_queues_of_a_daemon_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            for line in BufReader::new(&stream).lines() {
                let request: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
                asked.push(request["path"].as_str().unwrap().to_owned());
                let answer = serde_json::json!({ "ok": true, "value": asked.len() });
                writeln!(&stream, "{answer}").unwrap();
            }
            asked
        });
        let mut client = connect(&path).unwrap();
        let tree = read_parts(&mut client).unwrap();
        drop(client);
        assert_eq!(daemon.join().unwrap(), ["ticks_per_second", "removed_workers", "workers", "devices"]);
        assert!(tree["removed_workers"] == 2 && tree["workers"] == 3, "{tree}");
    }

    #[test]
    fn an_answer_that_would_take_much_of_the_exporters_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            let objects = vec![r#"{"":0}"#; 300_000].join(",");
            writeln!(&stream, r#"{{"ok":true,"value":[{objects}]}}"#).unwrap();
        });
        let error = read_parts(&mut connect(&path).unwrap()).unwrap_err();
        daemon.join().unwrap();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("more than 192 MiB of memory"), "{why}");
    }

    #[test]
    fn states_are_of_the_process_that_was_judged() {
        let state = || State { status: Status::Active, reasons: Vec::new() };
        let mut judged = Judged::default();
        let kept = looks().map(|found| {
            let vms: Vec<i32> = found.iter().flat_map(|found| &found.vms).map(|vm| vm.pid).collect();
            judged.take(found.as_ref(), vms.into_iter().map(|pid| (pid, state())));
            judged.states.keys().copied().collect::<Vec<_>>()
        });
        let both = vec![(7, 1), (8, 1)];
        assert_eq!(kept, [both.clone(), both.clone(), both, vec![(8, 1)]]);
        let again = Vms { vms: vec![vm(8, 2)], ..Vms::default() };
        judged.take(Some(&again), std::iter::empty());
        assert!(judged.states.is_empty(), "another process with the number of one that has ended");
    }

    #[test]
    fn states_and_findings_that_nobody_renews_are_not_exported() {
        let state = || State { status: Status::Active, reasons: Vec::new() };
        let known = |age: Duration| {
            let at = Instant::now().checked_sub(age).unwrap();
            let states = [((7, 1), (at, state()))].into();
            let mut judged = Judged { states, findings: Some((at, Tally::default())) };
            // Another VM is seen, but this one blocks inspection.
            let [.., held, _] = looks();
            judged.take(held.as_ref(), [(8, state())].into_iter());
            assert!(judged.state(&vm(8, 1)).is_some());
            (judged.state(&vm(7, 1)).is_some(), judged.findings().is_some())
        };
        assert_eq!(known(STATES), (true, true));
        assert_eq!(known(OLD_STATES), (false, true));
        assert_eq!(known(OLD_FINDINGS), (false, false));
    }

    #[test]
    fn the_exporter_ends_with_a_thread_that_it_needs() {
        let stop = Arc::new(AtomicBool::new(false));
        let judge = needed("judge", &stop, || panic!("to test")).unwrap();
        assert!(judge.join().is_err());
        assert!(stop.load(Ordering::Relaxed));
    }

    #[test]
    fn a_process_with_several_vms_has_the_worst_of_their_states() {
        let state = |status, reasons: &[&str]| {
            let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
            State { status, reasons }
        };
        let states = [
            (7, state(Status::Inhibited, &["pit_reinj", "hyperv"])),
            (7, state(Status::Partly, &["pit_reinj"])),
            (7, state(Status::Active, &[])),
            (8, state(Status::Active, &[])),
            (8, state(Status::Unknown, &[])),
        ];
        let [found, ..] = looks();
        let mut judged = Judged::default();
        judged.take(found.as_ref(), states.into_iter());
        let of = |pid| judged.state(&vm(pid, 1)).unwrap();
        assert_eq!(of(7), state(Status::Inhibited, &["hyperv", "pit_reinj"]));
        assert_eq!(of(8), state(Status::Unknown, &[]));
    }
}
