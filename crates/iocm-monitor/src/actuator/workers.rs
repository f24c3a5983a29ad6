//! Our own I/O workers, through the control socket of their daemon.

use super::computing::{Busy, Meter, node_of};
use super::numbers::Numbers;
use super::{Actuator, Seen, Trouble, VmSeen, cores};
use crate::view::total;
use crate::{Action, Core, Layout, QueueView, View, WorkerCore, WorkerView};
use host::CpuSet;
use host::scheduling::{ThreadId, isolated, nodes, threads};
use host::vms::{Vm, Vms};
use iocm::control::Errno;
use iocm::control::client::{Client, ClientError};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval of searches for VMs. Each search reads every process.
const DISCOVER_EVERY: Duration = Duration::from_secs(1);

/// The time limit for an answer of the daemon, so that the monitor can end although the daemon hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most queues that one request moves. A line on the socket has room for the names of some thousands.
const MOVED_AT_ONCE: usize = 1000;

/// The process of a front-end, as of the last search.
#[derive(Debug)]
struct FrontEnd {
    /// The vCPU threads, or all threads of a process that is not a VM of KVM.
    threads: Vec<ThreadId>,
    /// The NUMA node that they are bound to. It is read here, once for all queues: a VM can have a queue for each vCPU.
    node: Option<u32>,
}

/// Our own I/O workers.
#[derive(Debug)]
pub struct Workers {
    root: PathBuf,
    socket: PathBuf,
    /// The CPUs that may be dedicated to workers; `None` means all.
    cores: Option<CpuSet>,
    client: Option<Client>,
    patience: Duration,
    before: Option<(Instant, Json)>,
    /// The numbers of the present queues. A queue that comes back under the same name gets a new number.
    numbers: Numbers<String>,
    /// The workers by core.
    at: BTreeMap<WorkerCore, Vec<String>>,
    /// Workers by core: true if they always poll, false if they poll adaptively. Workers that never poll are absent.
    polled: BTreeMap<WorkerCore, bool>,
    /// The daemon has a worker for each device (`arrangement = "per-device"`).
    per_device: bool,
    /// Workers that the daemon refused to remove, because each stays as long as its device.
    owners: BTreeSet<String>,
    /// Workers that the monitor set to always poll.
    set_to_poll: BTreeSet<String>,
    front_ends: BTreeMap<i32, FrontEnd>,
    discovered: Option<Instant>,
    vms: Vec<Vm>,
    meter: Meter,
    busy: Busy,
}

impl Workers {
    /// The workers of the daemon behind a socket. `cores` are the CPUs that may be dedicated to workers; `None` means
    /// all online CPUs.
    #[must_use]
    pub fn new(root: &Path, socket: &Path, cores: Option<CpuSet>) -> Self {
        Self {
            root: root.to_owned(),
            socket: socket.to_owned(),
            cores,
            client: None,
            patience: PATIENCE,
            before: None,
            numbers: Numbers::new(),
            at: BTreeMap::new(),
            polled: BTreeMap::new(),
            per_device: false,
            owners: BTreeSet::new(),
            set_to_poll: BTreeSet::new(),
            front_ends: BTreeMap::new(),
            discovered: None,
            vms: Vec::new(),
            meter: Meter::default(),
            busy: Busy::default(),
        }
    }

    fn client(&mut self) -> Result<&mut Client, ClientError> {
        match &mut self.client {
            Some(client) => Ok(client),
            empty => Ok(empty.insert(Client::connect_within(&self.socket, self.patience)?)),
        }
    }

    /// Drops the state of the connection: the next daemon has other workers, and its counters start at 0.
    fn lose(&mut self, error: ClientError) -> Trouble {
        (self.client, self.before) = (None, None);
        self.at.clear();
        self.owners.clear();
        if is_gone(&error) {
            self.set_to_poll.clear();
        }
        error.into()
    }

    /// The CPUs that the daemon's workers may use: those of the control group of its process, or of the monitor's if
    /// that process cannot be identified. A daemon in a container reports a PID that may belong to another process
    /// here. Without `--cores` they are also those of its affinity, as `CPUAffinity=` of systemd sets it: others, and
    /// isolated ones, are kept free for programs that the monitor does not see. Exitless never pins its first thread.
    fn usable(&self, daemon: Option<i32>) -> Result<Vec<Core>, Trouble> {
        let of = |pid: i32| ThreadId { pid, tid: pid }.cpuset(&self.root);
        let comm = |pid: &i32| std::fs::read_to_string(self.root.join(format!("proc/{pid}/comm")));
        let seen = daemon.filter(|pid| comm(pid).is_ok_and(|name| name.trim_end() == "exitless"));
        let allowed = seen.or_else(|| i32::try_from(std::process::id()).ok()).and_then(of);
        let affinity = seen.and_then(|pid| ThreadId { pid, tid: pid }.allowed(&self.root));
        let isolated = isolated(&self.root);
        let is_allowed = |cpu: u32| allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu));
        let (cores, online) = cores(&self.root, |cpu| {
            let is_free = match &self.cores {
                Some(named) => named.contains(cpu),
                None => !isolated.contains(cpu) && affinity.as_ref().is_none_or(|bound| bound.contains(cpu)),
            };
            is_free && is_allowed(cpu)
        })?;
        if cores.len() < 2 {
            let could_be_named = |without: &dyn Fn(u32) -> bool| {
                self.cores.is_none() && online.iter().any(|cpu| is_allowed(cpu) && without(cpu))
            };
            let narrow = affinity.as_ref().filter(|bound| could_be_named(&|cpu| !bound.contains(cpu)));
            let bound = narrow.map(|cpus| {
                format!("; the daemon's affinity leaves it {cpus}, others are used if --cores names them")
            });
            let lacks = could_be_named(&|cpu| isolated.contains(cpu));
            let group = allowed.as_ref().map(|cpus| format!("; the daemon's control group leaves it {cpus}"));
            let without = lacks.then(|| "; isolated CPUs are used if --cores names them".to_owned());
            let why = [group, bound, without].into_iter().flatten().collect();
            return Err(Trouble::Cores { usable: cores.len() as u64, online: online.to_string(), why });
        }
        Ok(cores)
    }

    /// Finds the threads of the front-ends.
    fn discover(&mut self, pids: BTreeSet<i32>) {
        let is_old = self.discovered.is_none_or(|at| at.elapsed() >= DISCOVER_EVERY);
        let known: BTreeSet<i32> = self.front_ends.keys().copied().collect();
        if !is_old && known == pids {
            return;
        }
        self.discovered = Some(Instant::now());
        self.vms = Vms::discover(&self.root).map(|found| found.vms).unwrap_or_default();
        let nodes = nodes(&self.root);
        self.front_ends = pids
            .into_iter()
            .map(|pid| {
                let vm = self.vms.iter().find(|vm| vm.pid == pid);
                let vcpus: Vec<i32> =
                    vm.into_iter().flat_map(|vm| &vm.vcpus).filter_map(|vcpu| vcpu.thread).collect();
                let threads =
                    if vcpus.is_empty() { threads(&self.root, pid).unwrap_or_default() } else { vcpus };
                let threads: Vec<_> = threads.into_iter().map(|tid| ThreadId { pid, tid }).collect();
                let node = node_of(&self.root, &nodes, threads.iter().copied());
                (pid, FrontEnd { threads, node })
            })
            .collect();
    }
}

/// The process of the daemon, or of a device's front-end.
fn pid_of(object: &Json) -> Option<i32> {
    i32::try_from(object["pid"].as_u64()?).ok()
}

/// The growth of a counter since the last look.
fn grown(now: &Json, before: Option<&Json>, counter: &str) -> f64 {
    // Workers have their counters in `statistics`, queues beside their other attributes.
    let of = |object: &Json| object["statistics"][counter].as_u64().or_else(|| object[counter].as_u64());
    let change = before.and_then(|before| of(now)?.checked_sub(of(before)?));
    change.unwrap_or(0) as f64
}

impl Actuator for Workers {
    fn look(&mut self) -> Result<Seen, Trouble> {
        let now = match self.client().and_then(|client| client.get("")) {
            Ok(now) => now,
            Err(error) => return Err(self.lose(error)),
        };
        let cores = self.usable(pid_of(&now))?;
        let time = Instant::now();
        let (before_time, before) = self.before.take().unwrap_or((time, Json::Null));
        let seconds = (time - before_time).as_secs_f64();
        let ticks = now["ticks_per_second"].as_f64().unwrap_or(0.0) * seconds;
        let share = |ticks_used: f64| if ticks > 0.0 { (ticks_used / ticks).min(1.0) } else { 0.0 };
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let empty = serde_json::Map::new();
        let objects = |collection: &str| now[collection].as_object().unwrap_or(&empty);

        self.discover(objects("devices").values().filter_map(pid_of).collect());
        // Queues come and go; a restarted daemon has new ones.
        self.numbers.retain(|name| now["queues"].get(name).is_some());
        let threads: Vec<ThreadId> =
            self.front_ends.values().flat_map(|front_end| &front_end.threads).copied().collect();
        let used = self.meter.read(&self.root, threads, seconds);

        self.forget_changed(&now);
        self.at.clear();
        self.polled.clear();
        self.per_device =
            now["configuration"].as_str().is_some_and(|text| text.contains("arrangement = \"per-device\""));
        self.owners.retain(|worker| now["workers"].get(worker).is_some());
        let served = objects("queues").values().filter(|queue| queue["state"] == "served");
        let serving: BTreeSet<&str> = served.filter_map(|queue| queue["worker"].as_str()).collect();
        let mut idle_owners: BTreeSet<String> =
            self.owners.iter().filter(|worker| !serving.contains(worker.as_str())).cloned().collect();
        if idle_owners.len() == objects("workers").len() {
            // No other worker is left, so queues may go to these again.
            idle_owners.clear();
        }
        let mut workers = Vec::new();
        for (name, worker) in objects("workers") {
            let Some(number) = number_in(name) else { continue };
            if idle_owners.contains(name) {
                // It serves nothing and goes away only with its device: hide it from the policy.
                continue;
            }
            let only = worker["cpu"].as_str().and_then(CpuSet::parse).and_then(|cpus| cpus.only());
            let core = only.filter(|cpu| cores.iter().any(|core| core.number == *cpu));
            self.at.entry(core).or_default().push(name.clone());
            let polls = match worker["pace"]["polling"].as_str() {
                Some("always") => Some(true),
                Some("adaptive") => Some(false),
                _ => None,
            };
            self.polled.extend(polls.map(|polls| (core, polls)));
            let useful = share(grown(worker, before["workers"].get(name), "useful_ticks"));
            workers.push(WorkerView { number, core, useful });
        }
        let mut queues = Vec::new();
        let mut of_device: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (name, queue) in objects("queues") {
            let worker = queue["worker"].as_str().and_then(number_in);
            let (Some(worker), Some("served")) = (worker, queue["state"].as_str()) else { continue };
            let number = self.numbers.number(name);
            let device = queue["device"].as_str().unwrap_or_default();
            let front_end = pid_of(&now["devices"][device]).and_then(|pid| self.front_ends.get(&pid));
            let before = before["queues"].get(name);
            of_device.entry(device).or_default().push(number);
            queues.push(QueueView {
                number,
                worker,
                node: front_end.and_then(|front_end| front_end.node),
                useful: share(grown(queue, before, "useful_ticks")),
                requests: per_second(grown(queue, before, "requests")),
                bytes: per_second(grown(queue, before, "bytes")),
            });
        }
        let mut vms: BTreeMap<i32, VmSeen> = BTreeMap::new();
        for (name, device) in objects("devices") {
            let Some(pid) = pid_of(device) else { continue };
            let vm = vms.entry(pid).or_insert_with(|| {
                let all = self.front_ends.get(&pid).into_iter().flat_map(|front_end| &front_end.threads);
                let of: Vec<_> = all.filter_map(|thread| used.get(thread)).collect();
                VmSeen {
                    name: device["vm"].as_str().unwrap_or_default().to_owned(),
                    pid,
                    computing: total(of.iter().map(|used| used.ran)),
                    waiting: total(of.iter().map(|used| used.waited)),
                    queues: Vec::new(),
                    exits: None,
                }
            });
            vm.queues.extend(of_device.remove(name.as_str()).unwrap_or_default());
        }
        let vms: Vec<VmSeen> = vms.into_values().collect();
        self.before = Some((time, now));
        if workers.is_empty() {
            return Err(Trouble::NoIo("the daemon has no I/O worker".to_owned()));
        }
        let view = View {
            cores,
            workers,
            queues,
            computing: total(vms.iter().map(|vm| vm.computing)),
            waiting: total(vms.iter().map(|vm| vm.waiting)),
        };
        let host_busy = self.busy.read(&self.root);
        Ok(Seen { view, host_busy, vms, ..Seen::default() })
    }

    fn act(&mut self, actions: &[Action], _: &Layout) -> Result<Vec<String>, Trouble> {
        let end = |action: &Action| match *action {
            Action::Move { to, .. } => Some(to),
            _ => None,
        };
        let go_together = |one: &Action, next: &Action| end(one).is_some() && end(one) == end(next);
        let mut left_out = Vec::new();
        let mut lacks_worker = false;
        for group in actions.chunk_by(go_together) {
            if lacks_worker && matches!(group, [Action::Remove { .. }]) {
                // A worker could not be created, so queues may still be on this one. Removing it would push them onto
                // busy workers.
                continue;
            }
            let mut answers = vec![self.together(group)];
            if group.len() > 1 && matches!(answers[..], [Err(ClientError::Refused(_))]) {
                // The request fails as a whole if one queue or the worker is gone; one by one, the others still move.
                answers = group.chunks(1).map(|one| self.together(one)).collect();
            }
            for answer in answers {
                match answer {
                    Ok(()) => {}
                    // A queue or a worker is gone, or a change is in progress. The next period shows the result.
                    Err(ClientError::Refused(error)) => {
                        lacks_worker |= matches!(group, [Action::Add { .. }]);
                        left_out.push(error.to_string());
                    }
                    Err(error) => return Err(self.lose(error)),
                }
            }
        }
        Ok(left_out)
    }

    fn polled(&self) -> BTreeMap<WorkerCore, bool> {
        self.polled.clone()
    }

    fn poll(&mut self, wanted: &BTreeMap<WorkerCore, bool>) -> Result<Vec<String>, Trouble> {
        let mut left_out = Vec::new();
        for (core, &polls) in wanted {
            if self.polled.get(core).is_none_or(|&now| now == polls) {
                continue;
            }
            let value = if polls { "always" } else { "adaptive" };
            for worker in self.at.get(core).cloned().unwrap_or_default() {
                let set =
                    self.client().and_then(|client| client.set(&format!("{worker}/pace/polling"), value));
                match set {
                    Ok(()) if polls => drop(self.set_to_poll.insert(worker)),
                    Ok(()) => drop(self.set_to_poll.remove(&worker)),
                    Err(ClientError::Refused(error)) => left_out.push(error.to_string()),
                    Err(error) => return Err(self.lose(error)),
                }
            }
        }
        Ok(left_out)
    }

    /// Leaves workers and queues as they are: the daemon needs some arrangement. Sets workers that the monitor set to
    /// always poll back to adaptive: nobody would stop them when their load ends.
    fn give_back(&mut self) -> Vec<String> {
        if self.set_to_poll.is_empty() {
            return Vec::new();
        }
        let mut left_out = Vec::new();
        match self.client().and_then(|client| client.get("")) {
            Ok(now) => self.forget_changed(&now),
            Err(error) if is_gone(&error) => return left_out,
            Err(error) => return vec![self.still_polls(&error)],
        }
        while let Some(worker) = self.set_to_poll.pop_first() {
            let set =
                self.client().and_then(|client| client.set(&format!("{worker}/pace/polling"), "adaptive"));
            match set {
                Ok(()) => {}
                Err(ClientError::Refused(error)) => {
                    left_out.push(format!("{worker} still polls always: {error}"))
                }
                Err(error) => {
                    self.set_to_poll.insert(worker);
                    left_out.push(self.still_polls(&error));
                    break;
                }
            }
        }
        left_out
    }

    fn name_of(&self, queue: u32) -> String {
        self.numbers.key(queue).cloned().unwrap_or_else(|| format!("queue {queue}"))
    }
}

impl Workers {
    /// Forgets workers that are gone or that somebody else has set differently since.
    fn forget_changed(&mut self, now: &Json) {
        self.set_to_poll
            .retain(|worker| now["workers"][worker]["pace"]["polling"].as_str() == Some("always"));
    }

    fn still_polls(&self, error: &ClientError) -> String {
        let workers: Vec<&str> = self.set_to_poll.iter().map(String::as_str).collect();
        format!("{} may still poll always: {error}", workers.join(", "))
    }

    /// Carries out one action, or several moves to the same worker.
    fn together(&mut self, actions: &[Action]) -> Result<(), ClientError> {
        let Some(&first) = actions.first() else { return Ok(()) };
        match first {
            Action::Add { at } => {
                let line =
                    at.map_or_else(String::new, |core| json!({ "cpus": core.to_string() }).to_string());
                let name = self.client()?.create("workers", &line)?;
                self.at.entry(at).or_default().push(name);
            }
            Action::Move { to, .. } => {
                let moved = actions.iter().filter_map(|action| match *action {
                    Action::Move { queue, .. } => Some(self.name_of(queue)),
                    _ => None,
                });
                let names: Vec<String> = moved.collect();
                if let Some(worker) = self.at.get(&to).and_then(|workers| workers.first()).cloned() {
                    for names in names.chunks(MOVED_AT_ONCE) {
                        self.client()?.move_to(names, &worker)?;
                    }
                }
            }
            Action::Remove { at } => {
                for worker in self.at.remove(&at).unwrap_or_default() {
                    match self.client()?.remove(&worker) {
                        Err(ClientError::Refused(error)) if self.per_device && error.errno == Errno::Busy => {
                            self.owners.insert(worker);
                        }
                        outcome => outcome?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Tests whether the daemon has ended, and its workers with it. A daemon that answers late still has them.
fn is_gone(error: &ClientError) -> bool {
    let (ClientError::Unreachable { source, .. } | ClientError::NoAnswer { source, .. }) = error else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
    )
}

/// The number in `w.12`.
fn number_in(name: &str) -> Option<u32> {
    name.rsplit('.').next()?.parse().ok()
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
