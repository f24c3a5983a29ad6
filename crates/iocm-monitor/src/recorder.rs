//! A recorder: writes the monitor's view as a trace that the simulator replays.

use super::View;
use super::actuator::{Seen, VmSeen};
use super::simulator::{Group, Load, Machine, Phase, TraceWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Writes one phase for each interval of a given length.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    to: Option<W>,
    writer: Option<TraceWriter<W>>,
    seconds: f64,
    groups: BTreeSet<String>,
    /// The group's name of each VM, by process, and its number among the VMs of the same name.
    members: BTreeMap<i32, (String, u32)>,
    /// The start of the phase; `None` until something is seen.
    begun: Option<f64>,
    /// The time of the last figures.
    last: f64,
    sums: BTreeMap<String, Sum>,
    periods: u32,
    phases: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    computing: f64,
    waiting: f64,
    useful: f64,
    requests: f64,
    bytes: f64,
    queues: usize,
}

impl<W: Write> Recorder<W> {
    /// A recorder whose phases are at least this many seconds long, except the last one and those that end because nothing is
    /// seen.
    #[must_use]
    pub fn new(to: W, seconds: f64) -> Self {
        Self {
            to: Some(to),
            writer: None,
            seconds,
            groups: BTreeSet::new(),
            members: BTreeMap::new(),
            begun: None,
            last: 0.0,
            sums: BTreeMap::new(),
            periods: 0,
            phases: 0,
        }
    }

    /// Adds the figures up to `time`, in seconds since an arbitrary start; `None` if nothing could be seen.
    ///
    /// The first figures, and the first after such a gap, are of no time and just begin a phase.
    ///
    /// Only the served load can be seen, not the offered one. The recorder assumes that vCPUs submit requests in
    /// proportion to the time that they run, so waiting vCPUs would have submitted more.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn take(&mut self, time: f64, seen: Option<&Seen>) -> io::Result<()> {
        let Some(seen) = seen else { return self.end() };
        if let Some(to) = self.to.take() {
            self.writer = Some(TraceWriter::begin(to, machine(&seen.view))?);
        }
        self.last = time;
        let Some(begun) = self.begun else {
            self.begun = Some(time);
            return Ok(());
        };
        let present: BTreeMap<i32, String> = seen.vms.iter().map(|vm| (vm.pid, group_of(vm))).collect();
        self.members.retain(|pid, member| present.get(pid) == Some(&member.0));
        for vm in &seen.vms {
            let group = self.group(vm);
            self.sums.entry(group).or_default().add(vm, &seen.view);
        }
        self.periods += 1;
        let lasted = time - begun;
        if lasted < self.seconds {
            return Ok(());
        }
        self.begun = Some(time);
        self.end_phase(lasted)
    }

    /// Writes the phase that has begun, before a gap or at the end of the recording.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn end(&mut self) -> io::Result<()> {
        let begun = self.begun.take().filter(|_| self.periods > 0);
        begun.map_or(Ok(()), |begun| self.end_phase(self.last - begun))
    }

    /// The group of a VM. Groups of VMs of the same name are numbered. A VM keeps its number while it runs; after that
    /// another may have it.
    fn group(&mut self, vm: &VmSeen) -> String {
        let group = group_of(vm);
        let number = match self.members.get(&vm.pid) {
            Some(&(_, number)) => number,
            None => {
                let same = self.members.values().filter(|(other, _)| *other == group);
                let taken: BTreeSet<u32> = same.map(|&(_, number)| number).collect();
                let number = (1..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
                self.members.insert(vm.pid, (group.clone(), number));
                number
            }
        };
        if number == 1 { group } else { format!("{group}#{number}") }
    }

    fn end_phase(&mut self, seconds: f64) -> io::Result<()> {
        let (periods, sums) = (f64::from(self.periods.max(1)), std::mem::take(&mut self.sums));
        self.periods = 0;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut loads = BTreeMap::new();
        for (name, sum) in sums {
            let queues = u32::try_from(sum.queues).unwrap_or(u32::MAX).max(1);
            if self.groups.insert(name.clone()) {
                writer.group(&Group { name: name.clone(), vms: 1, queues, node: None })?;
            }
            loads.insert(name, sum.load(periods, f64::from(queues)));
        }
        self.phases += 1;
        writer.phase(&Phase { name: format!("{}", self.phases), seconds, loads })
    }
}

/// The group of a VM without its number. The queues of a group are fixed, so a VM whose number of queues changes becomes another group.
fn group_of(vm: &VmSeen) -> String {
    format!("{}/{}", vm.name, vm.queues.len())
}

fn machine(view: &View) -> Machine {
    let cores = u32::try_from(view.cores.len()).unwrap_or(u32::MAX);
    let nodes: BTreeSet<u32> = view.cores.iter().map(|core| core.node).collect();
    let nodes = u32::try_from(nodes.len()).unwrap_or(1).max(1);
    // The simulator needs nodes of equal size.
    Machine { cores, nodes: if cores % nodes == 0 { nodes } else { 1 } }
}

impl Sum {
    fn add(&mut self, vm: &VmSeen, view: &View) {
        self.computing += vm.computing;
        self.waiting += vm.waiting;
        self.queues = vm.queues.len();
        for queue in view.queues.iter().filter(|queue| vm.queues.contains(&queue.number)) {
            self.useful += queue.useful;
            self.requests += queue.requests;
            self.bytes += queue.bytes;
        }
    }

    fn load(&self, periods: f64, queues: f64) -> Load {
        let wanted = self.computing + self.waiting;
        let progress = if wanted > 0.0 { (self.computing / wanted).max(0.01) } else { 1.0 };
        let each = |sum: f64| if self.requests > 0.0 { sum / self.requests } else { 0.0 };
        Load {
            computing: (wanted / periods).min(4096.0),
            requests: (self.requests / periods / queues / progress).min(1e9),
            cost_us: (each(self.useful) * 1e6).min(1e6),
            bytes: each(self.bytes).min(1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::Trace;
    use crate::{Core, QueueView};

    fn seen(useful: f64, waiting: f64) -> Seen {
        let queue = |number| QueueView {
            number,
            worker: 0,
            node: None,
            useful,
            requests: useful * 1e6,
            bytes: useful * 1e8,
        };
        let view = View {
            cores: (0..4).map(|number| Core { number, node: number / 2 }).collect(),
            queues: (0..3).map(queue).collect(),
            ..View::default()
        };
        let vm = |pid, name: &str, queues: &[u32]| VmSeen {
            pid,
            name: name.to_owned(),
            computing: 1.0,
            waiting,
            queues: queues.to_vec(),
            ..VmSeen::default()
        };
        Seen { view, vms: vec![vm(1, "web", &[0, 1]), vm(2, "db", &[2])], ..Seen::default() }
    }

    #[test]
    fn vms_of_the_same_name_are_recorded_each() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, 1.0);
        for period in 0..11 {
            let mut both = seen(0.2, 0.0);
            for (vm, queue) in both.vms.iter_mut().zip([0, 2]) {
                (vm.name, vm.queues) = ("a".to_owned(), vec![queue]);
            }
            recorder.take(f64::from(period) / 10.0, Some(&both)).unwrap();
        }
        let (trace, _) = Trace::parse(&bytes).unwrap();
        assert_eq!(trace.groups.iter().map(|group| group.vms * group.queues).sum::<u32>(), 2);
        let requests: f64 = trace.phases[0].loads.values().map(|load| load.requests).sum();
        assert!((requests - 4e5).abs() < 1.0, "{requests}");
    }

    #[test]
    fn a_vm_keeps_its_group_when_another_of_its_name_ends() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, 1.0);
        // A second VM of the same name comes, the first one goes, and a third one comes.
        for (period, pids) in [vec![1], vec![1, 2], vec![2], vec![2, 3]].into_iter().enumerate() {
            let mut seen = seen(0.2, 0.0);
            let vm = seen.vms.pop().unwrap();
            seen.vms =
                pids.iter().map(|&pid| VmSeen { pid, computing: f64::from(pid), ..vm.clone() }).collect();
            recorder.take(period as f64, Some(&seen)).unwrap();
        }
        let (trace, _) = Trace::parse(&bytes).unwrap();
        let phases: Vec<Vec<_>> = trace.phases.iter().map(|phase| phase.loads.keys().collect()).collect();
        assert_eq!(phases, [vec!["db/1", "db/1#2"], vec!["db/1#2"], vec!["db/1", "db/1#2"]]);
        assert_eq!(trace.phases[1].loads["db/1#2"].computing, 2.0);
    }

    #[test]
    fn the_first_figures_and_the_time_in_which_nothing_was_seen_are_in_no_phase() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, 1.0);
        let mut record = |begin: f64, periods: u32| {
            // The first look has nothing to compare with.
            recorder.take(begin, Some(&seen(0.0, 0.0))).unwrap();
            for period in 1..=periods {
                recorder.take(begin + f64::from(period) / 10.0, Some(&seen(0.2, 0.0))).unwrap();
            }
            let end = begin + f64::from(periods) / 10.0;
            recorder.take(end + 0.1, None).unwrap();
            recorder.take(end + 0.2, None).unwrap();
        };
        record(0.0, 15);
        record(3600.0, 10);
        record(7200.0, 0);
        let (trace, damage) = Trace::parse(&bytes).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        assert_eq!(trace.phases.iter().map(|phase| phase.seconds).collect::<Vec<_>>(), [1.0, 0.5, 1.0]);
        for phase in &trace.phases {
            let load = phase.loads["web/2"];
            assert!((load.requests - 2e5).abs() < 1.0, "{phase:?}");
        }
    }

    #[test]
    fn the_last_phase_is_recorded_however_short() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, 1.0);
        for period in 0..5 {
            recorder.take(f64::from(period) / 10.0, Some(&seen(0.2, 0.0))).unwrap();
        }
        recorder.end().unwrap();
        let (trace, _) = Trace::parse(&bytes).unwrap();
        assert_eq!(trace.phases.iter().map(|phase| phase.seconds).collect::<Vec<_>>(), [0.4]);
    }

    #[test]
    fn what_was_seen_can_be_replayed() {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, 1.0);
        for (period, (useful, waiting)) in [(0.2, 0.0); 11].into_iter().chain([(0.4, 1.0); 10]).enumerate() {
            recorder.take(period as f64 / 10.0, Some(&seen(useful, waiting))).unwrap();
        }
        let (trace, damage) = Trace::parse(&bytes).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        assert_eq!(
            (trace.machine, trace.groups.len(), trace.phases.len()),
            (Machine { cores: 4, nodes: 2 }, 2, 2)
        );
        let [first, second] = [0, 1].map(|at: usize| trace.phases[at].loads["web/2"]);
        assert!((first.requests - 2e5).abs() < 1.0 && (first.cost_us - 1.0).abs() < 1e-9, "{first:?}");
        assert!((second.computing - 2.0).abs() < 1e-9, "{second:?}");
        assert!((second.requests - 8e5).abs() < 1.0, "half of what was wanted was served: {second:?}");
        assert!((second.bytes - 100.0).abs() < 1e-9);
    }
}
