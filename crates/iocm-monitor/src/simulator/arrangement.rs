//! The model of a host: the throughput of an arrangement of I/O in one phase.

use super::{Load, Phase, Trace};
use crate::{Core, Layout, QueueView, View, WorkerView, balance};
use serde::Serialize;
use std::collections::BTreeMap;

/// The time to wake up an idle worker, in seconds.
const WAKE: f64 = 4e-6;
/// The cost of context switches per request of a worker that shares cores with vCPUs, in seconds.
const SWITCH: f64 = 4e-6;
/// The factor by which a request from another NUMA node costs more.
const FAR: f64 = 1.3;
/// A thread that shares its core with runnable vCPUs may wait for a scheduler's slice, in seconds.
const SLICE: f64 = 3e-3;
/// The 99th percentile of an exponential distribution, as a multiple of its mean.
const P99: f64 = 4.6;

/// A fixed number of I/O cores, and the share of the load that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StaticChoice {
    /// I/O cores.
    pub cores: usize,
    /// The served share of the offered load: 0 to 1.
    pub attained: f64,
}

/// The throughput of one arrangement in one phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Served {
    /// Requests per second of each queue.
    pub requests: Vec<f64>,
    /// The share of a core that each queue's requests took.
    pub useful: Vec<f64>,
    /// The served share of the offered load, each request weighted by its cost: 0 to 1.
    pub attained: f64,
    /// CPU time that vCPUs got, as a share of what they wanted: 0 to 1.
    pub progress: f64,
    /// The 99th percentile of the worst queue's latency, in seconds.
    pub worst_p99: f64,
}

/// The throughput of shared workers in this layout.
pub(super) fn shared(host: &SimulatedHost, layout: &Layout) -> Served {
    let dedicated = layout.cores() as f64;
    let left = (host.cores.len() as f64 - dedicated).max(1.0);
    let floating: f64 = layout.0.get(&None).map_or(0.0, |queues| {
        let cost = |&queue: &u32| {
            let load = host.load(queue as usize);
            load.requests * (load.cost_us * 1e-6 + SWITCH)
        };
        queues.iter().map(cost).sum::<f64>().min(1.0)
    });
    let progress = (left / (host.computing() + floating).max(f64::MIN_POSITIVE)).min(1.0);
    let mut served = Served::new(host, progress);
    for (core, queues) in &layout.0 {
        // A floating worker gets the same share of a core as the vCPUs do.
        let (capacity, switch) = if core.is_some() { (1.0, 0.0) } else { (progress, SWITCH) };
        let cost = |queue: usize| {
            let load = host.load(queue);
            let per_node = (host.cores.len() as u32 / host.nodes).max(1);
            let far = core.is_some_and(|core| core / per_node != host.node(queue));
            (load.cost_us * 1e-6 + switch) * if far { FAR } else { 1.0 }
        };
        let queues: Vec<usize> = queues.iter().map(|&queue| queue as usize).collect();
        served.worker(host, &queues, capacity, cost);
        if core.is_none() && progress < 1.0 {
            served.worst_p99 += SLICE;
        }
    }
    served.weigh(host)
}

/// The throughput of a thread for each queue on the cores of the vCPUs, as in the kernel's vhost.
pub(super) fn each(host: &SimulatedHost) -> Served {
    let all = 0..host.queues.len();
    let cost = |queue: usize| host.load(queue).cost_us * 1e-6 + SWITCH;
    let io: f64 = all.clone().map(|queue| (host.load(queue).requests * cost(queue)).min(1.0)).sum();
    let cores = host.cores.len() as f64;
    let progress = (cores / (host.computing() + io).max(f64::MIN_POSITIVE)).min(1.0);
    let mut served = Served::new(host, progress);
    for queue in all {
        served.worker(host, &[queue], progress, cost);
    }
    if progress < 1.0 {
        served.worst_p99 += SLICE;
    }
    served.weigh(host)
}

/// On machines of up to this many cores every number of I/O cores is tried. On larger ones the search first goes in
/// steps, then tries every number around the best step.
const EXACT: usize = 128;

/// The throughput of each number of I/O cores that was tried. `also` are tried in any case.
#[must_use]
pub(super) fn search(host: &SimulatedHost, also: impl IntoIterator<Item = usize>) -> BTreeMap<usize, f64> {
    let most = host.cores.len().saturating_sub(1);
    let attained = |cores: usize| shared(host, &fixed(host, cores)).attained;
    let step = steps(host.cores.len());
    let mut tried: BTreeMap<usize, f64> =
        (0..=most).step_by(step).map(|cores| (cores, attained(cores))).collect();
    let near = best_of(&tried).cores;
    let around = near.saturating_sub(step)..=(near + step).min(most);
    for cores in around.filter(|_| step > 1).chain(also) {
        tried.entry(cores.min(most)).or_insert_with_key(|&cores| attained(cores));
    }
    tried
}

/// The step of the first search on a machine of this size.
pub(super) fn steps(cores: usize) -> usize {
    if cores <= EXACT { 1 } else { cores.div_ceil(EXACT / 2) }
}

/// The best of the numbers that were tried; the smallest of equals.
pub(super) fn best_of(tried: &BTreeMap<usize, f64>) -> StaticChoice {
    let mut best = StaticChoice { cores: 0, attained: 0.0 };
    for (&cores, &attained) in tried {
        if attained > best.attained + 1e-6 {
            best = StaticChoice { cores, attained };
        }
    }
    best
}

/// The best number of I/O cores of each phase, and its throughput.
#[must_use]
pub fn best_static(trace: &super::Trace) -> Vec<(usize, f64)> {
    let mut host = SimulatedHost::of(trace);
    let each = trace.phases.iter().map(|phase| {
        host.enter(trace, phase);
        let best = best_of(&search(&host, None));
        (best.cores, best.attained)
    });
    each.collect()
}

/// A layout with this many I/O cores, spread over the nodes, with the queues balanced by their cost.
pub(super) fn fixed(host: &SimulatedHost, cores: usize) -> Layout {
    let per_node = (host.cores.len() as u32 / host.nodes).max(1);
    let mut order = host.cores.clone();
    // The last core of each node first.
    order.sort_by_key(|core| (std::cmp::Reverse(core.number % per_node), core.node));
    let full = Served {
        requests: (0..host.queues.len()).map(|queue| host.load(queue).requests).collect(),
        useful: (0..host.queues.len())
            .map(|queue| host.load(queue).requests * host.load(queue).cost_us * 1e-6)
            .collect(),
        ..Served::default()
    };
    let queues: Vec<QueueView> =
        (0..host.queues.len()).map(|queue| full.queue_view(host, queue, 0)).collect();
    balance(&queues, &order[..cores.min(order.len())], &Layout::default())
}

impl Served {
    fn new(host: &SimulatedHost, progress: f64) -> Self {
        let queues = host.queues.len();
        Self { requests: vec![0.0; queues], useful: vec![0.0; queues], progress, ..Self::default() }
    }

    /// Lets one worker, with this much of a core, serve these queues in equal turns.
    fn worker(&mut self, host: &SimulatedHost, queues: &[usize], capacity: f64, cost: impl Fn(usize) -> f64) {
        let offered = |queue: usize| host.load(queue).requests * self.progress;
        let mut order: Vec<(usize, f64, f64)> = queues
            .iter()
            .map(|&queue| (queue, offered(queue), cost(queue)))
            .filter(|&(_, requests, _)| requests > 0.0)
            .collect();
        order.sort_by(|a, b| (a.1 * a.2).total_cmp(&(b.1 * b.2)));
        let wanted: f64 = order.iter().map(|&(_, requests, cost)| requests * cost).sum();
        let mut left = capacity;
        let mut turns = order.len() as f64;
        for &(queue, requests, cost) in &order {
            let share = (left / turns).max(0.0);
            let gets = (requests * cost).min(share);
            self.requests[queue] = if cost > 0.0 { gets / cost } else { requests };
            self.useful[queue] = gets;
            left -= gets;
            turns -= 1.0;
        }
        let mean = wanted / requests_of(&order);
        let load = (wanted / capacity.max(1e-9)).min(0.999);
        let largest = order.iter().map(|&(_, _, cost)| cost).fold(0.0, f64::max);
        let p99 = largest + mean * P99 * load / (1.0 - load) + WAKE * (1.0 - load);
        self.worst_p99 = self.worst_p99.max(if order.is_empty() { 0.0 } else { p99 });
    }

    fn weigh(mut self, host: &SimulatedHost) -> Self {
        let (mut offered, mut served) = (0.0, 0.0);
        for queue in 0..host.queues.len() {
            let load = host.load(queue);
            offered += load.requests * load.cost_us;
            served += self.requests[queue] * load.cost_us;
        }
        self.attained = if offered > 0.0 { served / offered } else { 1.0 };
        self
    }

    pub(super) fn queue_view(&self, host: &SimulatedHost, queue: usize, worker: u32) -> QueueView {
        let requests = self.requests[queue];
        QueueView {
            number: queue as u32,
            worker,
            node: Some(host.node(queue)),
            useful: self.useful[queue],
            requests,
            bytes: requests * host.load(queue).bytes,
        }
    }

    /// The monitor's view of this throughput.
    pub(super) fn view(&self, host: &SimulatedHost, layout: &Layout) -> View {
        let mut workers = Vec::new();
        let mut of_queue = BTreeMap::new();
        for (number, (&core, queues)) in (0..).zip(&layout.0) {
            let useful = queues.iter().map(|&queue| self.useful[queue as usize]).sum::<f64>();
            workers.push(WorkerView { number, core, useful });
            of_queue.extend(queues.iter().map(|&queue| (queue, number)));
        }
        let queues = (0..host.queues.len())
            .map(|queue| self.queue_view(host, queue, of_queue.get(&(queue as u32)).copied().unwrap_or(0)));
        let computing = host.computing();
        View {
            cores: host.cores.clone(),
            workers,
            queues: queues.collect(),
            computing: computing * self.progress,
            waiting: computing * (1.0 - self.progress),
        }
    }
}

fn requests_of(order: &[(usize, f64, f64)]) -> f64 {
    order.iter().map(|&(_, requests, _)| requests).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// One VM.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedVm {
    pub(super) node: u32,
    pub(super) load: Load,
}

/// One queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedQueue {
    pub(super) vm: usize,
}

/// The host in one phase.
#[derive(Debug)]
pub(super) struct SimulatedHost {
    pub(super) cores: Vec<Core>,
    pub(super) nodes: u32,
    pub(super) vms: Vec<SimulatedVm>,
    pub(super) queues: Vec<SimulatedQueue>,
}

impl SimulatedHost {
    pub(super) fn of(trace: &Trace) -> Self {
        let (cores, nodes) = (trace.machine.cores, trace.machine.nodes);
        let cores = (0..cores).map(|number| Core { number, node: number / (cores / nodes) }).collect();
        let mut host = Self { cores, nodes, vms: Vec::new(), queues: Vec::new() };
        for group in &trace.groups {
            for number in 0..group.vms {
                let node = group.node.unwrap_or(number % nodes);
                let vm = host.vms.len();
                host.vms.push(SimulatedVm { node, load: Load::default() });
                host.queues.extend((0..group.queues).map(|_| SimulatedQueue { vm }));
            }
        }
        host
    }

    /// Sets the load of the VMs to that of a phase.
    pub(super) fn enter(&mut self, trace: &Trace, phase: &Phase) {
        let mut vms = self.vms.iter_mut();
        for group in &trace.groups {
            let load = phase.loads.get(&group.name).copied().unwrap_or_default();
            vms.by_ref().take(group.vms as usize).for_each(|vm| vm.load = load);
        }
    }

    pub(super) fn load(&self, queue: usize) -> &Load {
        &self.vms[self.queues[queue].vm].load
    }

    pub(super) fn node(&self, queue: usize) -> u32 {
        self.vms[self.queues[queue].vm].node
    }

    /// The number of CPUs that the vCPUs want.
    pub(super) fn computing(&self) -> f64 {
        self.vms.iter().map(|vm| vm.load.computing).sum()
    }
}
