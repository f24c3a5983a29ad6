//! Generated loads, each of which tests another weakness of a policy.

use super::{Group, Load, Machine, Phase, Trace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind of generated load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Steps of ten seconds: small messages, bulk, rest, both at once, computation, more than the machine has.
    Steps,
    /// Idle, with short bursts.
    Bursts,
    /// A load that rises and falls as over a day.
    Diurnal,
    /// A load that changes back and forth, each time just after a policy may have settled.
    Adversarial,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Steps, Self::Bursts, Self::Diurnal, Self::Adversarial];

    /// The kind of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Bursts => "bursts",
            Self::Diurnal => "diurnal",
            Self::Adversarial => "adversarial",
        }
    }
}

/// Microseconds that a packet, and a block of 64 KiB, cost a busy worker.
const SMALL_US: f64 = 1.0;
const BULK_US: f64 = 12.0;
const BULK_BYTES: f64 = 65_536.0;

/// Generates a load for this many devices of one queue each, scaled so that I/O would use about a third of the cores
/// when it is busy.
#[must_use]
pub fn made(kind: Kind, machine: Machine, devices: u32) -> Trace {
    let scale = Scale { cores: f64::from(machine.cores), devices: f64::from(devices.max(1)) };
    let phases = match kind {
        Kind::Steps => scale.steps(),
        Kind::Bursts => scale.bursts(),
        Kind::Diurnal => scale.diurnal(),
        Kind::Adversarial => scale.adversarial(),
    };
    let front = devices.div_ceil(2);
    let group = |name: &str, vms| Group { name: name.to_owned(), vms, queues: 1, node: None };
    let groups = [group("front", front), group("back", devices - front)];
    Trace { machine, groups: groups.into_iter().filter(|group| group.vms > 0).collect(), phases }
        .without_absent_groups()
}

struct Scale {
    cores: f64,
    devices: f64,
}

impl Scale {
    /// The load of one device if all together keep `io` of all cores busy with I/O, and `computing` of them with vCPUs.
    fn load(&self, io: f64, computing: f64, cost_us: f64, bytes: f64) -> Load {
        Load {
            computing: computing * self.cores / self.devices,
            requests: io * self.cores / self.devices / (cost_us * 1e-6),
            cost_us,
            bytes,
        }
    }

    fn small(&self, io: f64, computing: f64) -> Load {
        self.load(io, computing, SMALL_US, 256.0)
    }

    fn bulk(&self, io: f64, computing: f64) -> Load {
        self.load(io, computing, BULK_US, BULK_BYTES)
    }

    fn steps(&self) -> Vec<Phase> {
        let rest = self.small(0.002, 0.05);
        vec![
            phase("small messages", 10.0, self.small(0.3, 0.5), self.small(0.3, 0.5)),
            phase("bulk", 10.0, self.bulk(0.2, 0.4), self.bulk(0.2, 0.4)),
            phase("rest", 10.0, rest, rest),
            phase("mixed", 10.0, self.small(0.3, 0.6), self.bulk(0.2, 0.4)),
            phase("computing", 10.0, self.small(0.04, 1.2), self.small(0.04, 1.2)),
            phase("too much of both", 10.0, self.small(0.6, 1.0), self.small(0.6, 1.0)),
        ]
    }

    fn bursts(&self) -> Vec<Phase> {
        let rest = self.small(0.01, 0.3);
        let each = (0..6).flat_map(|number| {
            let burst = self.small(0.15 + 0.05 * f64::from(number), 0.5);
            [phase("rest", 4.0, rest, rest), phase("burst", 3.0, burst, burst)]
        });
        each.collect()
    }

    fn diurnal(&self) -> Vec<Phase> {
        let hour = |hour: u32| {
            let high = 0.5 - 0.5 * (f64::from(hour) / 24.0 * std::f64::consts::TAU).cos();
            let load = self.small(0.01 + 0.35 * high, 0.1 + 0.7 * high);
            phase(&format!("hour {hour}"), 5.0, load, load)
        };
        (0..24).map(hour).collect()
    }

    fn adversarial(&self) -> Vec<Phase> {
        let (io, computing) = (self.small(0.35, 0.4), self.small(0.05, 1.3));
        let each = (0..10).flat_map(|number| {
            let seconds = 1.0 + 0.3 * f64::from(number);
            [phase("I/O", seconds, io, io), phase("computing", seconds, computing, computing)]
        });
        each.collect()
    }
}

fn phase(name: &str, seconds: f64, front: Load, back: Load) -> Phase {
    let loads = BTreeMap::from([("front".to_owned(), front), ("back".to_owned(), back)]);
    Phase { name: name.to_owned(), seconds, loads }
}

impl Trace {
    /// Drops the loads of groups without VMs: a single device makes a single group.
    fn without_absent_groups(mut self) -> Self {
        let names: Vec<String> = self.groups.iter().map(|group| group.name.clone()).collect();
        self.phases.iter_mut().for_each(|phase| phase.loads.retain(|name, _| names.contains(name)));
        self
    }
}
