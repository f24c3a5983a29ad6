//! The tables of `exitless predict`.

use conclusions::prediction::{Already, Fate, Part, PredictedRow, Prediction, Range, Rule};
use exits::{Hypervisor, Isa, Profile};
use traces::Recordings;

use crate::format::{NONE, counted, per_second, share, share_of, time};
use crate::recordings::terminal::head;
use crate::recordings::words::{notes, vm};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::{line, listed};
use crate::terminal::{NARROWEST, emphasised, wrapped};

/// The exits that would be avoided, the reasons, and the sums.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(recordings: &Recordings, prediction: &Prediction, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let hypervisor = prediction.assumption.hypervisor;
    let mut text = head(recordings, width, colour);
    text += &line("if active", &assumed(prediction), width);
    text.push('\n');
    if prediction.rows.is_empty() {
        text += &wrapped("There is no exit to predict from.", width, "", "");
        return text + &listed("Notes", notes(recordings), width);
    }
    let rules = rules(prediction);
    text += &drawn(columns(prediction, &rules), width, true, colour);
    text += "\nWhy\n\n";
    for (at, rule) in rules.iter().enumerate() {
        let (why, source) = (rule.why(hypervisor), rule.source(hypervisor));
        text += &wrapped(&format!("{why} ({source})"), width, &number(at + 1), "      ");
    }
    let mut notes = notes(recordings);
    notes.extend(remarks(prediction, &recordings.profile));
    text += &listed("Notes", &notes, width);
    text.push('\n');
    let verdict = wrapped(&verdict(prediction), width, "", "");
    text + &emphasised(&verdict, "1", colour)
}

fn number(number: usize) -> String {
    format!("{number:4}  ")
}

/// The assumptions, for the instruction sets of the exits.
fn assumed(prediction: &Prediction) -> String {
    let assumption = prediction.assumption;
    let with = |has: bool| if has { "with" } else { "without" };
    let xen = assumption.hypervisor == Hypervisor::Xen;
    let of = |isa: &Isa| match isa {
        Isa::Vmx if xen => format!("APICv {} posted interrupts", with(assumption.apicv.posted_interrupts)),
        Isa::Svm if xen => "nothing, as Xen uses no AVIC".to_owned(),
        Isa::Vmx => {
            let conclusions::prediction::Apicv { posted_interrupts, ipi_virtualization } = assumption.apicv;
            format!(
                "APICv {} posted interrupts, {} IPI virtualization",
                with(posted_interrupts),
                with(ipi_virtualization)
            )
        }
        Isa::Svm => {
            let name = if assumption.avic.x2apic { "x2AVIC" } else { "AVIC" };
            format!("{name} {} IPI virtualization", with(assumption.avic.ipi_virtualization))
        }
    };
    let mut said: Vec<String> = prediction.isas.iter().map(of).collect();
    said.push(match xen {
        true => "Xen has no tick".to_owned(),
        false => format!("the host ticks {} a second", counted(assumption.host_tick_hz.into(), "time")),
    });
    said.join("; ")
}

/// The rules of the rows in the order of the rows, without repeats.
fn rules(prediction: &Prediction) -> Vec<Rule> {
    let mut rules = Vec::new();
    for row in &prediction.rows {
        if !rules.contains(&row.rule) {
            rules.push(row.rule);
        }
    }
    rules
}

fn columns(prediction: &Prediction, rules: &[Rule]) -> Vec<Column> {
    let (rows, totals) = (&prediction.rows, &prediction.totals);
    let cells = |cell: &dyn Fn(&PredictedRow) -> String, all: String| -> Vec<String> {
        rows.iter().map(cell).chain([all]).collect()
    };
    let seconds = prediction.observed_ns as f64 / 1e9;
    let rate = |exits: f64| if seconds > 0.0 { per_second(exits / seconds) } else { NONE.to_owned() };
    let of_time = |ns: f64| share_of((totals.time_ns > 0).then(|| ns / totals.time_ns as f64 * 100.0));
    // Only show figures for exits that would be avoided.
    let going = |row: &PredictedRow, text: String| {
        if row.fate() == Fate::Stays { String::new() } else { text }
    };
    let now = |row: &PredictedRow| {
        if row.is_idle() { "idle".to_owned() } else { of_time(row.time_ns as f64) }
    };
    let why = |row: &PredictedRow| {
        rules.iter().position(|&rule| rule == row.rule).map_or_else(String::new, |at| (at + 1).to_string())
    };
    let gone = |row: &PredictedRow| going(row, rate(row.gone_exits.expected));
    let gone_time = |row: &PredictedRow| going(row, of_time(row.gone_time_ns.expected));
    vec![
        Column::names("exit reason", cells(&|row| row.reason.to_string(), "all".to_owned())),
        Column::whole_names("for", cells(&part, String::new())),
        Column::figures("now", cells(&|row| rate(row.exits as f64), rate(totals.exits as f64))),
        Column::figures("goes", cells(&gone, rate(totals.gone_exits.expected))),
        Column::figures(
            "range",
            cells(&|row| rates(row.gone_exits, seconds), rates(totals.gone_exits, seconds)),
        ),
        Column::figures("time", cells(&now, of_time(totals.time_ns as f64))).may_go(1),
        Column::figures("time goes", cells(&gone_time, of_time(totals.gone_time_ns.expected))).may_go(2),
        Column::whole_names("", cells(&|row| fate(row).to_owned(), String::new())).may_go(0),
        Column::figures("why", cells(&why, String::new())),
    ]
}

fn part(row: &PredictedRow) -> String {
    match row.part {
        Part::Whole => String::new(),
        Part::Nested => "L2".to_owned(),
        Part::Rest => "other".to_owned(),
        Part::Access(access) => access.to_string(),
    }
}

fn fate(row: &PredictedRow) -> &'static str {
    match row.fate() {
        Fate::Goes => "goes",
        Fate::Stays => "stays",
        Fate::Partly => "partly",
    }
}

/// The range of rates; empty if it is a single value.
fn rates(range: Range, seconds: f64) -> String {
    if range.is_exact() || seconds <= 0.0 {
        return String::new();
    }
    let figure = |exits: f64| per_second(exits / seconds).trim_end_matches("/s").to_owned();
    format!("{}–{}", figure(range.low), figure(range.high))
}

/// Remarks below the table.
fn remarks(prediction: &Prediction, profile: &Profile) -> Vec<String> {
    let mut remarks: Vec<String> =
        prediction.already.iter().map(|already| active(already, profile)).collect();
    let becoming = prediction.rows.iter().filter_map(|row| {
        let becomes = row.becomes.filter(|_| row.exits as f64 > row.gone_exits.low)?;
        Some(format!("{} {}: what stays of it becomes {becomes}.", row.reason, part(row)))
    });
    remarks.extend(becoming);
    if prediction.totals.idle_ns > 0 {
        let idle = time(prediction.totals.idle_ns as f64);
        remarks.push(format!("{idle} in which vCPUs slept are no cost and in no share of time."));
    }
    if prediction.nested.exits > 0 {
        remarks.push(format!(
            "{} of nested guests (L2) are not avoided: AVIC is inhibited for a vCPU while it runs one, and with APICv \
             the host's is not used for it.",
            counted(prediction.nested.exits, "exit")
        ));
    }
    if !prediction.record.is_empty() {
        let events = prediction.record.join(", ");
        remarks.push(format!("Ranges are narrower with these events in the recording: {events}."));
    }
    remarks
}

fn active(already: &Already, profile: &Profile) -> String {
    let whose = vm(already.vm, profile);
    let sign = if already.by_hardware > 0 {
        format!("it has {} that only interrupt virtualization causes", counted(already.by_hardware, "exit"))
    } else {
        "it has IPIs or timers, but not one exit for the end of an interrupt".to_owned()
    };
    let partly = match already.eois {
        0 => String::new(),
        eois => format!(", and {} that it saves, so it was not active all the time", counted(eois, "exit")),
    };
    format!("VM {whose} seems to have interrupt virtualization already: {sign}{partly}.")
}

fn verdict(prediction: &Prediction) -> String {
    let totals = &prediction.totals;
    let said = |percent: Option<Range>| {
        percent.map_or_else(
            || NONE.to_owned(),
            |range| match range.is_exact() {
                true => share(range.expected),
                false => {
                    let [low, high] = [range.low, range.high].map(share);
                    format!("{} ({low} to {high})", share(range.expected))
                }
            },
        )
    };
    let exits = totals.gone_exits.percent_of(totals.exits as f64);
    let time = totals.gone_time_ns.percent_of(totals.time_ns as f64);
    if !prediction.isas.is_empty() && prediction.isas.iter().all(|&isa| prediction.assumption.lacks_avic(isa))
    {
        return "None of the exits would go: Xen uses no AVIC. KVM would use it, where the processor has it."
            .to_owned();
    }
    let all_active = !prediction.already.is_empty() && totals.gone_exits.high <= 0.0;
    if all_active {
        return "Nothing would go: interrupt virtualization seems to be active already.".to_owned();
    }
    format!(
        "Of the exits {} would go, and of the host's time for them {}; the rest stays.",
        said(exits),
        said(time)
    )
}
