//! The decisions of the I/O monitor, and the placement of workers and VMs.

use std::fmt::Write as _;

use iocm_monitor::{Decided, Direction, Figures, Reason, State, VmExits, VmFigures};

use super::rates::bytes_per_second;
use crate::format::{NONE, count, counted, per_second, share};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// A decision with its figures, as a paragraph. No line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn decided(decided: &Decided, width: usize) -> String {
    let mut text = match (&decided.trouble, &decided.reason) {
        (Some(trouble), _) => format!("Nothing is done: {}", printable(trouble)),
        (None, reason) => {
            let change = cores(&decided.cores_before, &decided.cores);
            let why = reason.as_ref().map(why).unwrap_or_default();
            let would = if decided.dry_run { "would be: " } else { "" };
            format!("{would}{change}: {why}")
        }
    };
    if let Some(figures) = &decided.figures {
        let _ = write!(text, " [{}]", figures_in_words(figures));
    }
    if !decided.actions.is_empty() {
        let _ = write!(text, " {}", counted(decided.actions.len() as u64, "action"));
    }
    for (place, polls) in &decided.polling {
        let how = if *polls { "looks again at once" } else { "waits for kicks" };
        let _ = write!(text, "; the worker at {} {how}", printable(place));
    }
    for note in decided.left_out.iter().chain(&decided.notes) {
        let _ = write!(text, "; {}", printable(note));
    }
    wrapped(&text, width.max(NARROWEST), "", "    ")
}

/// The state of a monitor: the placement, the load, and the last decision.
#[must_use]
pub fn terminal(state: &State, is_alive: bool, now: f64, width: usize) -> String {
    let width = width.max(NARROWEST);
    let how = match (is_alive, state.dry_run) {
        (false, _) => "has ended",
        (true, true) => "runs, and changes nothing (dry run)",
        (true, false) => "runs",
    };
    let head = format!(
        "The monitor of {} {how}: process {}, a decision every {}, told {} ago.",
        printable(&state.target),
        state.pid,
        crate::format::time(state.every * 1e9),
        seconds(now - state.time),
    );
    let paragraph = |text: &str| wrapped(text, width, "", "  ");
    let mut text = paragraph(&head);
    if let Some(trouble) = &state.trouble {
        text += &paragraph(&format!("Nothing is done: {trouble}"));
    }
    if let Some(figures) = &state.figures {
        text += &paragraph(&figures_in_words(figures));
    }
    state.notes.iter().for_each(|note| text += &paragraph(note));
    if let Some(why) = &state.exits_missing {
        text += &paragraph(&format!("VM exits are not counted: {why}"));
    }
    if !state.queues.is_empty() {
        text.push('\n');
        text += &drawn(places(state), width, false, false);
    }
    if !state.vms.is_empty() {
        text.push('\n');
        text += &drawn(vms(&state.vms), width, false, false);
    }
    if !state.decisions.is_empty() {
        text += "\nLast decisions, the newest first\n\n";
        for one in state.decisions.iter().rev() {
            let ago = seconds(now - one.time);
            text += &decided_line(&ago, one, width);
        }
    }
    text
}

/// The age of something in whole seconds.
fn seconds(value: f64) -> String {
    format!("{:.0} s", value.max(0.0))
}

/// A width at which no line is wrapped.
const LONG: usize = 100_000;

fn decided_line(ago: &str, one: &Decided, width: usize) -> String {
    let text = format!("{ago:>8} ago  {}", decided(one, LONG).trim_end());
    wrapped(&text, width, "", "              ")
}

fn places(state: &State) -> Vec<Column> {
    let all: Vec<_> = state.queues.iter().collect();
    let load =
        |place: &String| state.loads.get(place).map_or_else(|| NONE.to_owned(), |load| share(load * 100.0));
    vec![
        Column::whole_names("I/O core", all.iter().map(|(place, _)| printable(place)).collect()),
        Column::figures("load", all.iter().map(|(place, _)| load(place)).collect()),
        Column::figures("queues", all.iter().map(|(_, queues)| count(queues.len() as u64)).collect()),
        Column::names("who", all.iter().map(|(_, queues)| printable(&queues.join(", "))).collect()),
    ]
}

/// VMs with their CPU time, the CPU time of their I/O, and their exits if counted.
fn vms(all: &[VmFigures]) -> Vec<Column> {
    let cpus = |of: fn(&VmFigures) -> f64| all.iter().map(|vm| format!("{:.2}", of(vm))).collect();
    let mut columns = vec![
        Column::names("VM", all.iter().map(|vm| printable(&vm.name)).collect()),
        Column::figures("process", all.iter().map(|vm| vm.pid.to_string()).collect()).may_go(0),
        Column::figures("queues", all.iter().map(|vm| count(vm.queues as u64)).collect()).may_go(1),
        Column::figures("I/O CPUs", cpus(|vm| vm.useful)),
        Column::figures("vCPUs run", cpus(|vm| vm.computing)),
        Column::figures("wait", cpus(|vm| vm.waiting)),
    ];
    if all.iter().any(|vm| vm.exits.is_some()) {
        let exits = |of: fn(&VmExits) -> String| {
            let cell = |vm: &VmFigures| vm.exits.as_ref().map_or_else(|| NONE.to_owned(), of);
            all.iter().map(cell).collect()
        };
        columns.extend([
            Column::figures("exits", exits(|exits| per_second(exits.per_second))),
            Column::figures("to devices", exits(|exits| per_second(exits.io_per_second))),
            Column::figures("take CPUs", exits(|exits| format!("{:.3}", exits.io_handling))).may_go(2),
        ]);
    }
    columns
}

fn cores(before: &[u32], after: &[u32]) -> String {
    let list = |cores: &[u32]| {
        let names: Vec<String> = cores.iter().map(u32::to_string).collect();
        names.join(",")
    };
    match (before, after) {
        (_, []) if before.is_empty() => "no I/O core".to_owned(),
        (_, []) => format!("I/O cores {} given back", list(before)),
        _ if before == after => format!("I/O cores {}", list(after)),
        ([], _) => format!("I/O cores none -> {}", list(after)),
        _ => format!("I/O cores {} -> {}", list(before), list(after)),
    }
}

fn figures_in_words(figures: &Figures) -> String {
    let mut text = format!(
        "I/O {:.2} CPUs, busiest worker {}, requests {}, {}, vCPUs run {:.2} and wait {:.2} CPUs, {}, {} CPUs",
        figures.useful,
        share(figures.busiest * 100.0),
        per_second(figures.requests_per_second),
        bytes_per_second(figures.bytes_per_second),
        figures.computing,
        figures.waiting,
        counted(figures.queues as u64, "queue"),
        figures.cpus,
    );
    if let Some(busy) = figures.host_busy {
        let _ = write!(text, " {} busy", share(busy * 100.0));
    }
    if let Some(exits) = figures.exits {
        let (all, io) = (per_second(exits.per_second), per_second(exits.io_per_second));
        let _ = write!(text, ", exits {all}, of which {io} reach a device");
    }
    text
}

/// The reason of a decision, with its figures.
fn why(reason: &Reason) -> String {
    let way = |direction: &Direction| match direction {
        Direction::More => "more",
        Direction::Fewer => "fewer",
    };
    match reason {
        Reason::Fine { .. } => "as it should be".to_owned(),
        Reason::Busy { useful, before, after } => {
            format!("I/O takes {useful:.2} CPUs, which is too much for {before} and takes {after} I/O cores")
        }
        Reason::Spare { useful, before, after } => {
            format!("I/O takes {useful:.2} CPUs, for which {after} instead of {before} I/O cores are enough")
        }
        Reason::Short { waiting, before, after } => format!(
            "vCPUs wait for {waiting:.2} CPUs, and {after} instead of {before} I/O cores serve as much"
        ),
        Reason::Regret { direction, ratio, cores, patience } => format!(
            "{} I/O cores served {} of what was served before, so it is {cores} again for {patience} periods",
            way(direction),
            share(ratio * 100.0)
        ),
        Reason::Kept { direction, ratio, cores } => format!(
            "{} I/O cores serve {} of what was served before, so it stays at {cores}",
            way(direction),
            share(ratio * 100.0)
        ),
        Reason::Uneven { most, least } => format!(
            "queues were uneven: the busiest worker had {}, the idlest {}",
            share(most * 100.0),
            share(least * 100.0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iocm_monitor::{Action, MONITOR_FORMAT};

    const EXITS: VmExits = VmExits { per_second: 41_200.0, io_per_second: 12_300.0, io_handling: 0.0567 };

    fn example() -> Decided {
        Decided {
            format: MONITOR_FORMAT,
            time: 100.0,
            figures: Some(Figures {
                useful: 1.62,
                busiest: 0.97,
                requests_per_second: 812_345.0,
                bytes_per_second: 2.5e8,
                computing: 3.1,
                waiting: 0.25,
                host_busy: Some(0.8),
                queues: 9,
                cpus: 8,
                exits: Some(EXITS),
            }),
            reason: Some(Reason::Busy { useful: 1.62, before: 1, after: 2 }),
            cores_before: vec![7],
            cores: vec![6, 7],
            actions: vec![Action::Add { at: Some(6) }],
            ..Decided::default()
        }
    }

    #[test]
    fn a_decision_says_what_and_why_with_units() {
        let text = decided(&example(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = text.replace("\n    ", " ");
        assert!(text.starts_with("I/O cores 7 -> 6,7: I/O takes 1.62 CPUs"), "{text}");
        assert!(text.contains("250 MB/s") && text.contains("1 action"), "{text}");
        assert!(text.contains(", exits 41,200/s, of which 12,300/s reach a device]"), "{text}");
        let trouble = Decided { trouble: Some("the daemon\u{1b} ended".to_owned()), ..Decided::default() };
        let text = decided(&trouble, 80);
        assert!(text.starts_with("Nothing is done: the daemon") && !text.contains('\u{1b}'), "{text}");
        let dry = decided(&Decided { dry_run: true, ..example() }, 80);
        assert!(dry.starts_with("would be: I/O cores 7 -> 6,7"), "{dry}");
    }

    #[test]
    fn every_reason_has_its_words() {
        let direction = Direction::Fewer;
        let reasons = [
            (Reason::Fine { useful: 1.0, cores: 1 }, "as it should be"),
            (Reason::Spare { useful: 1.0, before: 3, after: 2 }, "2 instead of 3"),
            (Reason::Short { waiting: 1.5, before: 3, after: 2 }, "wait for 1.50 CPUs"),
            (Reason::Regret { direction, ratio: 0.9, cores: 3, patience: 8 }, "for 8 periods"),
            (Reason::Kept { direction, ratio: 1.0, cores: 2 }, "stays at 2"),
            (Reason::Uneven { most: 0.9, least: 0.1 }, "uneven"),
        ];
        for (reason, words) in reasons {
            assert!(why(&reason).contains(words), "{reason:?}: {}", why(&reason));
        }
    }

    #[test]
    fn the_state_fits_and_says_who_is_where() {
        let state = State {
            target: "the I/O workers at /run/exitless/iocm.sock".to_owned(),
            every: 0.1,
            time: 100.0,
            figures: example().figures,
            queues: [("7".to_owned(), vec!["vq.0.0".to_owned(); 20]), ("anywhere".to_owned(), Vec::new())]
                .into(),
            loads: [("7".to_owned(), 0.97)].into(),
            notes: vec![
                "VM web is left alone: a reason that is so long that it has to be on two lines".to_owned(),
            ],
            decisions: [example(), example()].into(),
            ..State::default()
        };
        let text = terminal(&state, true, 103.0, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("I/O core") && text.contains("97") && text.contains("3 s ago"), "{text}");
        assert!(terminal(&state, false, 103.0, 80).contains("has ended"));
    }

    #[test]
    fn vms_are_told_with_their_exits_or_why_there_are_none() {
        let vm = |name: &str, pid, exits| VmFigures {
            name: name.to_owned(),
            pid,
            computing: 1.5,
            waiting: 0.25,
            useful: 0.4,
            queues: 2,
            exits,
        };
        let all = vec![vm("web", 4000, Some(EXITS)), vm("db", 5000, None)];
        let state = State { every: 0.1, vms: all, ..State::default() };
        for width in [80, 120] {
            let text = terminal(&state, true, 3.0, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            let of = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
            for part in ["0.40", "1.50", "0.25", "41,200/s", "12,300/s"] {
                assert!(of("web").contains(part), "{part}: {text}");
            }
            assert!(!of("db").contains("/s"), "{text}");
        }
        let uncounted =
            State { vms: vec![vm("db", 5000, None)], exits_missing: Some("run as root".to_owned()), ..state };
        let text = terminal(&uncounted, true, 3.0, 80);
        assert!(text.contains("not counted: run as root") && !text.contains("to devices"), "{text}");
    }
}
