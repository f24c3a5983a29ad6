//! The aims of the daemon, and the figures that it reached.

use crate::block_peers::load::{Load, Pace};
use crate::block_peers::peer::{Disk, Peer};
use crate::{Measured, Seen};

const NULL_8: Load = Load::even(8, 32, Pace::Rate(5000.0));
const NULL_16: Load = Load::even(16, 32, Pace::Rate(2500.0));
const NULL_64: Load = Load::even(64, 8, Pace::Rate(625.0));
const NULL_1: Load = Load::even(1, 32, Pace::Rate(40000.0));
const CLOSED: Load = Load::even(1, 32, Pace::Closed);
const CLOSED_8: Load = Load::even(8, 32, Pace::Closed);

/// The medians over the rounds; `None` for a figure that was not measured.
struct Medians<'a>(&'a [Measured]);

impl Medians<'_> {
    fn of(&self, peer: Peer, disk: Disk, load: Load, figure: fn(&Seen) -> f64) -> Option<f64> {
        let wanted = |one: &&Measured| one.peer == peer && one.disk == disk && one.load == load;
        let mut all: Vec<f64> = self.0.iter().filter(wanted).map(|one| figure(&one.seen)).collect();
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        match all.len() {
            0 => None,
            count if count % 2 == 1 => Some(all[middle]),
            _ => Some((all[middle - 1] + all[middle]) / 2.0),
        }
    }

    fn cpu(&self, peer: Peer, disk: Disk, load: Load) -> Option<f64> {
        self.of(peer, disk, load, |seen| seen.cpu_us)
    }
}

/// Prints each aim with the measured figure.
pub(crate) fn print(results: &[Measured]) {
    use Disk::{File, Null};
    use Peer::{PerDevice, Shared, StorageDaemonEach, StorageDaemonShared};
    let medians = Medians(results);
    println!("\naims, by the medians of the rounds");
    let cpu = |peer, load| medians.cpu(peer, Null, load);
    let part = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
    let own = cpu(Shared, NULL_8);
    at_most(
        "8 devices: CPU against the storage daemon's iothread",
        part(own, cpu(StorageDaemonShared, NULL_8)),
        0.5,
    );
    let p99 = |peer| medians.of(peer, Null, NULL_8, |seen| f64::from(seen.p99));
    let better = p99(StorageDaemonShared).zip(p99(StorageDaemonEach)).map(|(one, other)| one.min(other));
    at_most("8 devices: worst p99 against its better arrangement", part(p99(Shared), better), 1.0);
    at_most("closed loop at depth 32: us CPU an I/O", cpu(Shared, CLOSED), 1.0);
    for (what, load) in [("closed loop", CLOSED_8), ("5000 a second", NULL_8)] {
        let figure = part(medians.cpu(StorageDaemonShared, File, load), medians.cpu(Shared, File, load));
        at_least(&format!("file in memory, 8 devices, {what}: I/O a CPU second"), figure, 1.5);
    }
    for load in [NULL_8, NULL_16, NULL_64] {
        let figure = part(cpu(PerDevice, load), cpu(Shared, load));
        at_least(&format!("{} devices: CPU of a worker each against shared", load.devices), figure, 1.3);
        let fairness = medians.of(Shared, Null, load, |seen| seen.fairness);
        at_least(&format!("{} devices: the slowest against the fastest", load.devices), fairness, 0.8);
    }
    at_most("CPU a request of 64 devices against 1", part(cpu(Shared, NULL_64), cpu(Shared, NULL_1)), 1.5);
}

fn at_most(what: &str, figure: Option<f64>, aim: f64) {
    line(what, figure, &format!("at most {aim}"), |figure| figure <= aim);
}

fn at_least(what: &str, figure: Option<f64>, aim: f64) {
    line(what, figure, &format!("at least {aim}"), |figure| figure >= aim);
}

fn line(what: &str, figure: Option<f64>, aim: &str, is_met: impl Fn(f64) -> bool) {
    let (figure, outcome) = match figure {
        None => ("-".to_owned(), "not measured"),
        Some(figure) => (format!("{figure:.2}"), if is_met(figure) { "met" } else { "missed" }),
    };
    println!("{what:<58} {figure:>6}  {aim:<13} {outcome}");
}
