//! The common part of commands on the running kernel: the VMs, the wait for KVM, and the source.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use exits::Profile;
use host::scheduling::ThreadId;
use host::vms::{Vm, Vms};
use live::pause;
use live::{Aside, Collector, Error, Mechanism, PATIENCE, Recorder, Watch, in_first_pid_namespace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use traces::{Format, Options, Origin, Reading, Recordings};

use crate::console::StatusLine;
use crate::status;

/// The host that commands observe.
pub(crate) const HOST: &str = "/";

/// The text of a status line: "Watching this host for 100 ms".
pub(crate) fn for_a_time(does: &str, duration: Duration) -> String {
    format!("{does} this host for {}", report::duration(duration.as_secs_f64()))
}

/// The interval at which an attempt to attach is repeated.
const LOOK: Duration = Duration::from_millis(500);

/// The observed VMs.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Only this VM, by the number of its process, its VMID of Proxmox VE, its ID of libvirt, its name, UUID or
    /// NAMESPACE/NAME; may be given more than once.
    #[arg(long = "vm", value_name = "NUMBER|NAME")]
    vms: Vec<String>,
    /// Wait for KVM if its modules are not loaded yet.
    #[arg(long)]
    wait: bool,
    /// Use the kernel's stable tracepoints even if raw ones, which cost less, can be used.
    #[arg(long)]
    no_raw_tracepoints: bool,
    /// On a Xen host, the xentrace program to use.
    #[arg(long, value_name = "PROGRAM")]
    pub(super) xentrace: Option<PathBuf>,
}

impl WatchArguments {
    /// A watch of the requested VMs, with or without ports, addresses and registers.
    pub(crate) fn watch(&self, accesses: bool) -> anyhow::Result<Watch> {
        Ok(Watch { processes: self.processes()?, accesses, ..self.all() })
    }

    /// A watch of all VMs, for commands that select the requested ones later: a VM that restarts gets a new
    /// process. The requested VMs must run now, except with `--wait`.
    pub(crate) fn watch_all(&self) -> anyhow::Result<Watch> {
        if !self.vms.is_empty() {
            live::need_first_pid_namespace(Path::new(HOST))?;
        }
        if !self.wait {
            self.processes()?;
        }
        Ok(self.all())
    }

    fn all(&self) -> Watch {
        let no_raw_tracepoints = self.no_raw_tracepoints.then(|| "--no-raw-tracepoints was given".to_owned());
        Watch { no_raw_tracepoints, ..Watch::default() }
    }

    fn processes(&self) -> anyhow::Result<Option<Vec<u32>>> {
        processes_of(&self.vms)
    }

    /// The requested VMs, by name or process.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.vms
    }

    /// Starts counting; with `--wait`, waits for KVM first. `None` if `stop` was set meanwhile.
    pub(crate) fn attach(&self, watch: &Watch, stop: &AtomicBool) -> anyhow::Result<Option<Collector>> {
        self.start(stop, || Collector::attach(Path::new(HOST), watch))
    }

    /// Starts recording, like [`Self::attach`] for counting.
    pub(crate) fn record(&self, watch: &Watch, stop: &AtomicBool) -> anyhow::Result<Option<Recorder>> {
        self.start(stop, || Recorder::attach(Path::new(HOST), watch))
    }

    /// Attaches; with `--wait`, waits for KVM first. `None` if `stop` was set meanwhile.
    pub(crate) fn start<T>(
        &self,
        stop: &AtomicBool,
        attach: impl Fn() -> Result<T, Error>,
    ) -> anyhow::Result<Option<T>> {
        let mut waiting = None;
        loop {
            match attach() {
                Err(Error::NoKvm | Error::NoEvent { .. }) if self.wait => {}
                Err(error @ Error::NoKvm) => return Err(anyhow!("{error}, and --wait waits until it is")),
                outcome => return Ok(Some(outcome?)),
            }
            waiting.get_or_insert_with(|| {
                let line = StatusLine::new();
                line.step("Waiting for kvm_intel or kvm_amd");
                line
            });
            if !pause(Instant::now() + LOOK, stop) {
                return Ok(None);
            }
        }
    }
}

/// The processes of the requested VMs; `None` for all.
pub(crate) fn processes_of(wanted: &[String]) -> anyhow::Result<Option<Vec<u32>>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let found = Vms::discover(Path::new(HOST))?;
    let chosen = found.select(wanted)?;
    Ok(Some(chosen.iter().filter_map(|vm| u32::try_from(vm.pid).ok()).collect()))
}

/// The longest time between two calls of [`Collector::keep`].
const KEEP: Duration = Duration::from_secs(30);

/// Waits until `end`; false if `stop` was set before. The kernel's counts do not overflow meanwhile.
pub(crate) fn wait_until(end: Instant, collector: &mut Collector, stop: &AtomicBool) -> Result<bool, Error> {
    wait_in_steps(end, KEEP, stop, || collector.keep())
}

/// Waits until `end`, and calls `keep` after each step before it; false if `stop` was set before.
fn wait_in_steps(
    end: Instant,
    step: Duration,
    stop: &AtomicBool,
    mut keep: impl FnMut() -> Result<(), Error>,
) -> Result<bool, Error> {
    loop {
        let next = Instant::now() + step;
        if !pause(end.min(next), stop) {
            return Ok(false);
        }
        if end <= next {
            return Ok(true);
        }
        keep()?;
    }
}

/// Waits for `step`, or until `end` if that is earlier; false if `end` has come or `stop` is set.
pub(crate) fn turn(end: Option<Instant>, step: Duration, stop: &AtomicBool) -> bool {
    let next = Instant::now() + step;
    pause(end.map_or(next, |end| end.min(next)), stop) && end.is_none_or(|end| end > Instant::now())
}

/// The processes of the requested VMs. Nothing is left to observe when all have ended.
#[derive(Debug)]
pub(crate) struct Watched {
    /// A pidfd of each. A process can block those who read its files in /proc, and the kernel's buffers overflow while
    /// their reader waits.
    processes: Vec<Result<OwnedFd, Errno>>,
    /// The names that were asked for.
    names: Vec<String>,
}

impl Watched {
    /// The processes of a watch; empty if all VMs are observed.
    pub(crate) fn of(watch: &Watch, arguments: &WatchArguments) -> Self {
        Self::new(watch, arguments.wanted())
    }

    fn new(watch: &Watch, names: &[String]) -> Self {
        let pids = watch.processes.iter().flatten();
        let pids = pids.filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
        let open = |pid: Pid| {
            pidfd_open(pid, PidfdFlags::empty()).inspect_err(|error| {
                if *error != Errno::SRCH {
                    tracing::warn!(
                        "Could not open a pidfd of process {pid}, so its end will not be noticed: {error}"
                    );
                }
            })
        };
        Self { processes: pids.map(open).collect(), names: names.to_vec() }
    }

    /// Tests whether VMs were requested and none of them runs any more. Another process with a reused ID does
    /// not count as running.
    pub(crate) fn have_ended(&self) -> bool {
        !self.processes.is_empty() && self.processes.iter().all(has_ended)
    }

    /// The exit status of a command that has watched the VMs. Warns if they have ended, also if only just
    /// now.
    pub(crate) fn status(&self) -> u8 {
        if self.have_ended() { tell_of_the_end(&self.names) } else { 0 }
    }
}

/// Tests whether the process of a pidfd has ended. One that cannot be observed counts as running.
fn has_ended(process: &Result<OwnedFd, Errno>) -> bool {
    match process {
        Ok(pidfd) => {
            // Readable once the process and all its threads have ended, also if its parent has not waited for it
            // (pidfd_open(2)).
            let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
        }
        Err(error) => *error == Errno::SRCH,
    }
}

/// Warns that the requested VMs have ended, and returns the exit status.
pub(super) fn tell_of_the_end(names: &[String]) -> u8 {
    let (vm, has) = if names.len() == 1 { ("VM", "has") } else { ("VMs", "have") };
    tracing::warn!("The {vm} given by --vm {has} ended: {}", names.join(", "));
    status::SOME_FAILED
}

/// The interval at which names are searched again for VMs without one.
const SEARCH: Duration = Duration::from_secs(5);

/// The start time of a process in clock ticks since boot; together with its ID it identifies the process.
/// `None` if the process has ended or cannot be read.
pub(crate) fn start_of(process: u32) -> Option<u64> {
    let pid = i32::try_from(process).ok()?;
    ThreadId { pid, tid: pid }.start_ticks(Path::new(HOST))
}

/// The start time and name of each VM that was found, by its process.
pub(crate) type FoundNames = BTreeMap<u32, (u64, String)>;

/// The names in a search for VMs.
pub(crate) fn names_in(found: &Vms) -> FoundNames {
    let named = |vm: &Vm| Some((u32::try_from(vm.pid).ok()?, (vm.start_ticks, vm.name.clone())));
    found.vms.iter().filter_map(named).collect()
}

/// Searches for the names of all VMs.
fn search() -> FoundNames {
    Vms::discover(Path::new(HOST)).map(|found| names_in(&found)).unwrap_or_default()
}

/// Names of VMs by their process, looked up when a process is first seen.
#[derive(Debug, Default)]
pub(crate) struct VmNames {
    /// The start time and name of each named process.
    known: BTreeMap<u32, (u64, String)>,
    /// The start times of the processes that a search found no name for; some have been found since.
    unnamed: BTreeMap<u32, u64>,
    searched: Option<Instant>,
}

impl VmNames {
    /// Sets the names of the VMs in `profile`.
    pub(crate) fn name(&mut self, profile: &mut Profile) {
        self.name_from(profile, search);
    }

    /// [`Self::name`] with its search as an argument.
    pub(crate) fn name_from(&mut self, profile: &mut Profile, search: impl FnOnce() -> FoundNames) {
        let vms = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
        profile.names.extend(self.of_found(&vms, search));
    }

    /// The names of these VMs, if they have one.
    pub(crate) fn of(&mut self, vms: &BTreeSet<u32>) -> BTreeMap<u32, String> {
        self.of_found(vms, search)
    }

    fn of_found(
        &mut self,
        vms: &BTreeSet<u32>,
        search: impl FnOnce() -> FoundNames,
    ) -> BTreeMap<u32, String> {
        if !in_first_pid_namespace(Path::new(HOST)) {
            // The kernel's process IDs mean other processes here.
            return BTreeMap::new();
        }
        files::many_looks(|| self.of_those(vms, Instant::now(), start_of, search))
    }

    /// [`Self::of`] with its clock and lookups as arguments.
    fn of_those(
        &mut self,
        vms: &BTreeSet<u32>,
        now: Instant,
        start_of: impl Fn(u32) -> Option<u64>,
        search: impl FnOnce() -> FoundNames,
    ) -> BTreeMap<u32, String> {
        // A VM that has ended keeps its name, because its last exits may come later. It also keeps it when
        // another process reuses its ID, until a search finds that process to be a VM.
        let running = vms.iter().filter_map(|vm| Some((*vm, start_of(*vm)?)));
        let is_known = |(vm, start): &(u32, u64)| self.known.get(vm).is_some_and(|(known, _)| known == start);
        let strange: BTreeMap<u32, u64> = running.filter(|one| !is_known(one)).collect();
        // Search again for VMs without a name, but not each time: a search reads all processes of the host.
        let is_new = strange.iter().any(|(vm, start)| self.unnamed.get(vm) != Some(start));
        let is_due = self.searched.is_none_or(|searched| now.saturating_duration_since(searched) >= SEARCH);
        if !strange.is_empty() && (is_new || is_due) {
            let mut found = search();
            self.known.extend(strange.keys().filter_map(|vm| found.remove_entry(vm)));
            // Those that are not asked for this time stay, or they would be new the next time.
            self.unnamed.extend(strange);
            self.searched = Some(now);
        }
        vms.iter().filter_map(|vm| Some((*vm, self.known.get(vm)?.1.clone()))).collect()
    }
}

/// [`VmNames`] for recorders: a thread of its own looks them up.
#[derive(Debug)]
pub(crate) struct NamesAside(Aside<BTreeSet<u32>, BTreeMap<u32, String>>);

impl NamesAside {
    /// Starts the thread.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut names = VmNames::default();
        Self::with(move |vms| names.of(vms))
    }

    fn with(
        mut names_of: impl FnMut(&BTreeSet<u32>) -> BTreeMap<u32, String> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let names = Aside::start("names", move |mut vms: BTreeSet<u32>, waiting| {
            // With those that were asked for during the last search.
            vms.extend(waiting.flatten());
            names_of(&vms)
        });
        names.map(Self).context("Could not start a thread that looks for the names of VMs")
    }

    /// Asks for the names of VMs that had exits since the last call, and returns those that were found since.
    pub(crate) fn of(&self, vms: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
        let vms: BTreeSet<u32> = vms.into_iter().collect();
        if !vms.is_empty() {
            self.0.ask(vms);
        }
        self.0.answers().flatten().collect()
    }

    /// Like [`Self::of`] after the last exit: waits for the names, but not for long.
    pub(crate) fn last(self, vms: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
        self.last_within(PATIENCE, vms)
    }

    fn last_within(self, patience: Duration, vms: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
        let mut names = self.of(vms);
        let (found, are_all) = self.0.finish(patience);
        names.extend(found.into_iter().flatten());
        if !are_all {
            tracing::warn!("Names of VMs may be missing, because processes delay the search for them");
        }
        names
    }
}

/// The facts about the host that all exits of a collector share.
#[derive(Debug)]
pub(crate) struct LiveSource {
    origin: Origin,
    warnings: Vec<String>,
}

impl LiveSource {
    /// Reads the host once.
    pub(crate) fn of(collector: &Collector) -> Self {
        let mut warnings = collector.missing().to_vec();
        if let Mechanism::Tracepoints { why } = collector.mechanism() {
            warnings.push(format!("Not by raw tracepoints, which cost less: {why}"));
        }
        let mut origin = Origin::new(Format::Live);
        origin.kernel = host::Fingerprint::read(Path::new(HOST)).ok().and_then(|host| host.kernel_release);
        Self { origin, warnings }
    }

    /// Adds a warning if this host cannot have APICv or AVIC, for commands that say what these save.
    pub(crate) fn with_lack(mut self) -> Self {
        self.warnings.extend(lack(Path::new(HOST)));
        self
    }

    /// The exits, in the form of recordings.
    pub(crate) fn recordings(&self, profile: Profile) -> Recordings {
        let (origin, warnings) = (self.origin.clone(), self.warnings.clone());
        let mut recordings = Recordings::new(Options::default());
        recordings.add("this host".to_owned(), Reading { profile, origin, damage: None, warnings });
        recordings
    }
}

/// A sentence on what the CPU of the host below `root` lacks for APICv or AVIC, if KVM does not use these all the same.
fn lack(root: &Path) -> Option<String> {
    let found = host::kvm::usable(root).interrupt_virtualization?;
    let lack = found.lack().filter(|_| found.enabled() != Some(true))?;
    let (name, why, next) = (&found.name, &lack.why, &lack.next);
    Some(format!("{name} saves nothing here: {why}. To have it: {next}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn without_kvm_a_command_that_can_wait_for_it_says_so() {
        let watch =
            WatchArguments { vms: Vec::new(), wait: false, no_raw_tracepoints: false, xentrace: None };
        let said =
            watch.start(&AtomicBool::new(false), || Err::<(), _>(Error::NoKvm)).unwrap_err().to_string();
        assert!(
            said.starts_with("KVM is not loaded") && said.ends_with("--wait waits until it is"),
            "{said}"
        );
    }

    #[test]
    fn a_host_that_cannot_have_avic_is_told_so_unless_kvm_uses_it() {
        let root = tempfile::tempdir().unwrap();
        let parameters = root.path().join("sys/module/kvm_amd/parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let lack = |flags: &str, avic: &str| {
            let cpu = format!("processor : 0\nvendor_id : AuthenticAMD\nflags : svm {flags}\n");
            std::fs::write(root.path().join("proc/cpuinfo"), cpu).unwrap();
            std::fs::write(parameters.join("avic"), avic).unwrap();
            super::lack(root.path())
        };
        let said = lack("hypervisor", "N\n").unwrap();
        assert!(said.starts_with("AVIC saves nothing here: the underlying hypervisor offers no"), "{said}");
        assert!(said.ends_with("bare-metal instance."), "{said}");
        // `force_avic=1`.
        assert_eq!(lack("hypervisor", "Y\n"), None);
        assert_eq!(lack("avic", "N\n"), None);
    }

    #[test]
    fn a_status_says_for_how_long_the_host_is_watched() {
        let said = [100, 1500, 10_000, 5_400_000].map(|ms| for_a_time("Watching", Duration::from_millis(ms)));
        let times = ["100 ms", "1.5 s", "10 s", "1 h 30 min"];
        assert_eq!(said, times.map(|time| format!("Watching this host for {time}")));
    }

    #[test]
    fn a_vm_that_ended_is_noticed_and_all_vms_never_end() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let watch = Watch { processes: Some([process.id()].into()), ..Watch::default() };
        let watched = Watched::new(&watch, &[process.id().to_string()]);
        assert!(!watched.have_ended());
        assert_eq!(watched.status(), 0);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(watched.have_ended());
        assert_eq!(watched.status(), status::SOME_FAILED);
        assert!(!Watched::new(&Watch::default(), &[]).have_ended());
        assert!(Watched::new(&watch, &[]).have_ended(), "it ended before");
    }

    #[test]
    fn a_vm_that_blocks_those_who_look_at_it_has_not_ended() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let watch = Watch { processes: Some([process.id()].into()), ..Watch::default() };
        let watched = Watched::new(&watch, &[]);
        // Until this look returns, others at the process fail.
        let (let_go, held) = channel::<()>();
        let home = Path::new(HOST).join("proc").join(process.id().to_string());
        files::look(&home, move || held.recv().is_ok()).unwrap_err();
        assert_eq!(start_of(process.id()), None);
        assert!(!watched.have_ended());
        process.kill().unwrap();
        // It is not waited for yet.
        while !watched.have_ended() {
            std::thread::yield_now();
        }
        process.wait().unwrap();
        drop(let_go);
    }

    #[test]
    fn counts_are_kept_while_a_command_waits() {
        let (step, stop) = (Duration::from_millis(2), AtomicBool::new(false));
        let hour = Instant::now() + Duration::from_secs(3600);
        let kept = |end: Instant, most: u32| {
            let mut kept = 0;
            let waited = wait_in_steps(end, step, &stop, || {
                kept += 1;
                stop.store(kept == most, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            });
            (waited.unwrap(), kept)
        };
        assert_eq!(kept(Instant::now(), 3), (true, 0), "there was nothing to wait for");
        assert_eq!(kept(hour, 3), (false, 3));
        let failed = wait_in_steps(hour, step, &AtomicBool::new(false), || Err(Error::NoKvm));
        assert!(failed.is_err());
    }

    #[test]
    fn a_turn_lasts_for_its_step_but_not_beyond_the_end() {
        let (begun, stop) = (Instant::now(), AtomicBool::new(false));
        let (short, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        assert!(turn(None, short, &stop) && turn(Some(begun + hour), short, &stop));
        assert!(begun.elapsed() >= 2 * short);
        assert!(!turn(Some(begun), hour, &stop) && !turn(Some(Instant::now() + short), hour, &stop));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!turn(None, hour, &stop) && !turn(Some(begun + hour), hour, &stop));
        assert!(begun.elapsed() < hour);
    }

    #[test]
    fn a_number_that_is_used_again_has_the_new_vms_name() {
        let mut names = VmNames::default();
        let begin = Instant::now();
        let mut named = |seconds, start: Option<u64>, found: Option<(u64, &str)>| {
            let mut searched = false;
            let search = || {
                searched = true;
                found.map(|(start, name)| (7, (start, name.to_owned()))).into_iter().collect()
            };
            let now = begin + Duration::from_secs(seconds);
            let name = names.of_those(&[7].into(), now, |_| start, search).remove(&7);
            (name, searched)
        };
        let web = || Some("web".to_owned());
        assert_eq!(named(0, Some(1), Some((1, "web"))), (web(), true));
        assert_eq!(named(1, Some(1), None), (web(), false));
        assert_eq!(named(2, None, None), (web(), false), "it has ended");
        assert_eq!(named(3, Some(2), None), (web(), true), "another process, which is no VM");
        assert_eq!(named(4, Some(2), Some((2, "db"))), (web(), false));
        assert_eq!(named(5, Some(3), Some((3, "db"))), (Some("db".to_owned()), true));
    }

    #[test]
    fn an_unnamed_vm_that_pauses_is_not_new_when_it_has_exits_again() {
        let mut names = VmNames::default();
        let begin = Instant::now();
        let mut searches = |seconds, vm: u32| {
            let mut searched = false;
            let search = || {
                searched = true;
                BTreeMap::new()
            };
            names.of_those(&[vm].into(), begin + Duration::from_secs(seconds), |_| Some(1), search);
            searched
        };
        let searched = [(0, 7), (1, 8), (2, 7), (3, 8), (7, 7)].map(|(second, vm)| searches(second, vm));
        assert_eq!(searched, [true, true, false, false, true]);
    }

    #[test]
    fn a_recorder_does_not_wait_for_a_search_before_its_end() {
        let (let_go, held) = channel::<()>();
        let names = NamesAside::with(move |vms| {
            let _ = held.recv();
            vms.iter().map(|vm| (*vm, format!("vm{vm}"))).collect()
        })
        .unwrap();
        for _ in 0..50 {
            assert!(names.of([7, 8]).is_empty(), "the search goes on");
        }
        let_go.send(()).unwrap();
        let mut found = names.of([7]);
        while found.is_empty() {
            std::thread::yield_now();
            found = names.of([]);
        }
        let named = |vms: &[u32]| vms.iter().map(|vm| (*vm, format!("vm{vm}"))).collect::<BTreeMap<_, _>>();
        assert_eq!(found, named(&[7, 8]));
        drop(let_go);
        found.extend(names.last([9]));
        assert_eq!(found, named(&[7, 8, 9]));
    }

    #[test]
    fn the_end_of_a_recording_does_not_wait_for_a_search_that_is_blocked() {
        let (let_go, held) = channel::<()>();
        let names = NamesAside::with(move |_| {
            let _ = held.recv();
            BTreeMap::new()
        })
        .unwrap();
        assert!(names.last_within(Duration::from_millis(1), [7]).is_empty());
        drop(let_go);
    }

    #[test]
    fn a_vm_that_could_not_be_looked_at_is_named_later() {
        let mut names = VmNames::default();
        let begin = Instant::now();
        let mut named = |seconds, found: &[(u32, &str)]| {
            let found = found.iter().map(|(vm, name)| (*vm, (1, (*name).to_owned()))).collect();
            let now = begin + Duration::from_secs(seconds);
            names.of_those(&[7, 8].into(), now, |_| Some(1), || found).into_values().collect::<Vec<_>>()
        };
        assert_eq!(named(0, &[(8, "db")]), ["db"]);
        assert_eq!(named(1, &[(7, "web")]), ["db"], "not searched again at once");
        assert_eq!(named(6, &[(7, "web")]), ["web", "db"]);
    }
}
