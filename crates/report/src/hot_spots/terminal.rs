//! The tables of `exitless profile`.

use hotspots::{Event, Moment, Part, ReasonRow, Recording, Selection, Summary, SymbolRow};
use stats::Estimate;

use crate::format::{NONE, count, counted, share, share_of, time, whole_time};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::{line, listed};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::{elided, printable};

/// The settings of the display.
#[derive(Debug, Clone, Copy)]
pub struct HotSpotsView {
    /// Columns of the terminal.
    pub width: usize,
    /// Escape sequences are allowed.
    pub colour: bool,
    /// The number of functions shown in a table.
    pub top: usize,
    /// The number of reasons shown with their functions.
    pub reasons: usize,
}

/// The length to which function names are cut in rows with several of them.
const LONGEST_NAME: usize = 40;

/// The time of exits by reason, by part of the handling, and by function.
///
/// No line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn terminal(name: &str, recording: &Recording, summary: &Summary, view: HotSpotsView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = head(name, recording, summary, width);
    text.push('\n');
    if summary.reasons.is_empty() {
        text += &wrapped("There was no exit of what was asked for.", width, "", "");
    } else {
        text += &drawn(reasons(recording, summary), width, false, view.colour);
    }
    let with_functions = summary.reasons.iter().filter(|row| row.samples > 0 || !row.moments.is_empty());
    for row in with_functions.take(view.reasons) {
        text += &reason(recording, row, width, view);
    }
    let tables = [
        ("The kernel's functions, in all of these exits", &summary.kernel),
        ("Functions of device models, in exits and outside of them", &summary.monitors),
        ("Functions of the guests that were left", &summary.guests),
    ];
    for (title, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        text += &format!("\n{title}\n\n");
        text += &functions(rows, view.top, width, view.colour);
    }
    text + &listed("Notes", notes(recording, summary), width)
}

fn head(name: &str, recording: &Recording, summary: &Summary, width: usize) -> String {
    let head = &recording.head;
    let kernel = head.kernel.as_ref().map_or_else(String::new, |kernel| format!(" (Linux {kernel})"));
    let mut text = line("recording", &printable(&format!("{name}{kernel}")), width);
    if let Some(part) = part(recording, &summary.selection) {
        text += &line("only", &printable(&part), width);
    }
    let rate = |event: &str| {
        let cpus = counted(u64::from(head.cpus), "CPU");
        format!(
            "{}, {} a second by {event} on {cpus}",
            whole_time(head.duration_ns),
            counted(head.frequency_hz, "sample")
        )
    };
    let time = match head.event {
        Event::Cycles => rate("cycles"),
        Event::CpuClock => rate("cpu-clock"),
        Event::Exits => {
            format!("{}; each exit is a sample of the guest's code", whole_time(head.duration_ns))
        }
    };
    text += &line("time", &time, width);
    if head.event != Event::Exits {
        let known = [summary.in_exits, summary.in_guests, summary.in_monitors];
        let elsewhere = recording.losses.ticks.saturating_sub(known.iter().sum());
        let [exits, guests, monitors] = known.map(count);
        let said = match known {
            // The recording has samples of a single reason, or of none.
            [_, 0, 0] => format!("{exits} in these exits, {} in anything else", count(elsewhere)),
            _ => format!(
                "{exits} in exits, {guests} in guests, {monitors} in other threads of device models, {} elsewhere",
                count(elsewhere)
            ),
        };
        text += &line("samples", &said, width);
        text += &line("lost", &counted(recording.losses.lost, "sample"), width);
    }
    text
}

/// The selected part of the recording, if it is not everything.
fn part(recording: &Recording, selection: &Selection) -> Option<String> {
    let vm = |vm: &u32| match recording.names.get(vm) {
        Some(name) => format!("{vm} {name}"),
        None => vm.to_string(),
    };
    let vms: Vec<String> = selection.vms.iter().map(vm).collect();
    let reasons: Vec<String> = selection.reasons.iter().map(ToString::to_string).collect();
    let all = [("VM", vms), ("exit reason", reasons)];
    let said = all.into_iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn reasons(recording: &Recording, summary: &Summary) -> Vec<Column> {
    let cells = |cell: &dyn Fn(&ReasonRow) -> String| summary.reasons.iter().map(cell).collect::<Vec<_>>();
    let all = summary.on_cpu_ns();
    let of_all = |row: &ReasonRow| share_of((all > 0).then(|| row.on_cpu_ns as f64 / all as f64 * 100.0));
    let exits = |row: &ReasonRow| if row.exits > 0 { count(row.exits) } else { NONE.to_owned() };
    let mut columns = vec![
        Column::names("exit reason", cells(&|row| row.reason.to_string())),
        Column::figures("exits", cells(&exits)),
        Column::figures("handling", cells(&|row| whole_time(row.handling_ns))),
    ];
    if recording.head.event == Event::Exits {
        columns.push(Column::figures("of all", cells(&of_all)));
        return columns;
    }
    if recording.head.away {
        columns.push(Column::figures("asleep", cells(&|row| whole_time(row.away.asleep_ns()))).may_go(2));
        columns.push(Column::figures("waiting", cells(&|row| whole_time(row.away.waited_ns))).may_go(1));
    }
    columns.push(Column::figures("on CPU", cells(&|row| whole_time(row.on_cpu_ns))));
    columns.push(Column::figures("of all", cells(&of_all)));
    columns.push(Column::figures("samples", cells(&|row| count(row.samples))));
    columns.push(Column::figures("by samples", cells(&|row| times(row.sampled_ns))).may_go(0));
    columns
}

/// An interval of times: "1.20 to 1.40 s", with the unit once if both ends have the same.
fn times(interval: Estimate) -> String {
    let (low, high) = (time(interval.low), time(interval.high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, unit)), Some((_, other))) if unit == other => format!("{figure} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

fn reason(recording: &Recording, row: &ReasonRow, width: usize, view: HotSpotsView) -> String {
    let mut text = "\n".to_owned();
    text += &wrapped(&each(recording, row), width, "", "  ");
    if recording.head.event != Event::Exits && row.samples > 0 {
        text += &wrapped(&parts(row), width, "  ", "  ");
    }
    if row.samples > 0 {
        text.push('\n');
        text += &functions(&row.by_own, view.top, width, view.colour);
        let callers: Vec<String> = row
            .by_total
            .iter()
            .filter(|one| one.own * 2 < one.total)
            .take(view.top)
            .map(|one| {
                let of = one.total as f64 / row.samples.max(1) as f64 * 100.0;
                format!("{} {}", elided(&printable(&one.frame.to_string()), LONGEST_NAME), share(of))
            })
            .collect();
        if !callers.is_empty() {
            text += &wrapped(&format!("with callees: {}", callers.join(", ")), width, "  ", "    ");
        }
    }
    for moment in row.moments.iter().take(view.top.min(3)) {
        text += &wrapped(&absence(moment), width, "  ", "    ");
    }
    text
}

/// The parts of an exit's average time.
fn each(recording: &Recording, row: &ReasonRow) -> String {
    if row.exits == 0 {
        return format!(
            "{}: {} within it, whose exit had no end yet.",
            row.reason,
            counted(row.samples, "sample")
        );
    }
    let mean = |ns: u64| time(ns as f64 / row.exits as f64);
    let exits = format!("{}: {}", row.reason, counted(row.exits, "exit"));
    if recording.head.event == Event::Exits {
        return format!("{exits}, {} each on average.", mean(row.handling_ns));
    }
    if !recording.head.away {
        return format!("{exits}, {} each on average, on a CPU or not.", mean(row.handling_ns));
    }
    format!(
        "{exits}, {} each on average: {} on a CPU, {} waiting for one, {} asleep.",
        mean(row.handling_ns),
        mean(row.on_cpu_ns),
        mean(row.away.waited_ns),
        mean(row.away.asleep_ns()),
    )
}

fn parts(row: &ReasonRow) -> String {
    let named = [
        (Part::Kvm, "in KVM"),
        (Part::Kernel, "in the rest of the kernel"),
        (Part::Monitor, "in the device model's own code"),
    ];
    let said = named.map(|(part, name)| match row.share_of(part) {
        Some(of) if of.value > 0.0 => {
            format!("{} {name} ({})", share(of.value * 100.0), percents(of))
        }
        _ => format!("0.0 % {name}"),
    });
    format!("Of {} on a CPU: {}.", counted(row.samples, "sample"), said.join(", "))
}

/// An interval of shares: "12.1 to 14.0 %".
fn percents(interval: Estimate) -> String {
    format!("{:.1} to {:.1} %", interval.low * 100.0, interval.high * 100.0)
}

fn functions(rows: &[SymbolRow], top: usize, width: usize, colour: bool) -> String {
    let rows = &rows[..rows.len().min(top)];
    let cells = |cell: &dyn Fn(&SymbolRow) -> String| rows.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::figures("own", cells(&|row| share(row.share.value * 100.0))),
        Column::figures("95 % interval", cells(&|row| percents(row.share))).may_go(1),
        Column::figures("samples", cells(&|row| count(row.own))),
        Column::figures("with callees", cells(&|row| count(row.total))).may_go(0),
        Column::names("function", cells(&|row| printable(&row.frame.to_string()))),
        Column::names("in", cells(&|row| printable(&row.frame.object))),
    ];
    drawn(columns, width, false, colour)
}

fn absence(moment: &Moment) -> String {
    let names: Vec<String> =
        moment.frames.iter().map(|frame| elided(&printable(&frame.to_string()), LONGEST_NAME)).collect();
    let place = if names.is_empty() { "an unknown place".to_owned() } else { names.join(" < ") };
    format!(
        "without a CPU {}, {} in all ({} of it waiting for one): {place}",
        counted(moment.away.times, "time"),
        whole_time(moment.away.away_ns),
        whole_time(moment.away.waited_ns),
    )
}

fn notes(recording: &Recording, summary: &Summary) -> Vec<String> {
    let mut notes: Vec<String> = recording.head.notes.clone();
    let losses = &recording.losses;
    let asked_for = recording.head.frequency_hz as f64
        * f64::from(recording.head.cpus)
        * recording.head.duration_ns as f64
        / 1e9;
    let ticks = losses.ticks as f64;
    if recording.head.event == Event::CpuClock && 0.0 < ticks && ticks < 0.8 * asked_for {
        notes.push(format!(
            "The CPUs' clocks ticked {} of {} times. An idle CPU may not tick, and nothing is lost by it; where a busy \
             one missed ticks (an overloaded host, or one that is a VM), \"by samples\" is too short.",
            count(losses.ticks),
            count(asked_for as u64)
        ));
    }
    if losses.lost > 0 {
        notes.push(format!(
            "{} found no room in the kernel's buffer: the shares are of the rest.",
            counted(losses.lost, "sample")
        ));
    }
    if losses.lost_exits > 0 {
        notes.push(format!("{} were not counted.", counted(losses.lost_exits, "exit")));
    }
    if summary.cut > 0 {
        notes.push(format!(
            "{} met a stack deeper than 64 functions in the kernel or 96 outside; its outermost ones are missing.",
            counted(summary.cut, "sample")
        ));
    }
    if losses.without_user_stack > 0 {
        notes.push(format!(
            "{} are without the device model's part of the stack, which could not be read.",
            counted(losses.without_user_stack, "sample")
        ));
    }
    if summary.in_exits == 0 && !summary.reasons.is_empty() {
        notes.push(
            "No sample met an exit: their handling is too short for this time and frequency. Sample longer \
             (--duration) or more often (--frequency)."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
