//! Exits that took longer than a bound: as lines, as JSON objects, and as the table of a recording.

use std::time::SystemTime;

use exits::{Access, ExitReason, LongExit, LongExits, Meanwhile};
use live::{LongOccurrence, LongSummary};
use serde::Serialize;
use traces::Recordings;

use super::terminal::{self, Lines, WIDTH};
use crate::format::{NONE, count, counted, whole_time};
use crate::json::Document;
use crate::recordings::json::Head;
use crate::recordings::words::{part, vm};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::{NARROWEST, labels, wrapped};
use crate::text::printable;

/// The start of a trace.
#[must_use]
pub fn beginning(bound_ns: u64, without_context: Option<&str>) -> String {
    let told = format!("Tracing exits that take {} or longer; Ctrl-C ends it.", whole_time(bound_ns));
    let mut text = wrapped(&told, WIDTH, "", "");
    if let Some(why) = without_context {
        text += &wrapped(&format!("Not known is what the host does meanwhile ({why})."), WIDTH, "", "");
    }
    text
}

/// The end of a trace.
#[must_use]
pub fn summary(summary: &LongSummary) -> String {
    let lost = match summary.lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost, of which some may have been long", count(lost)),
    };
    let mut text =
        format!("{} of {} took that long; {lost}.", count(summary.long), counted(summary.exits, "exit"));
    if summary.slept > 0 {
        text +=
            &format!(" Left out: {} in which the guest slept (--sleep shows them).", count(summary.slept));
    }
    if summary.lost_context > 0 {
        text += &format!(
            " {} of scheduler and interrupts lost: exits around them do not say what the host did.",
            counted(summary.lost_context, "event")
        );
    }
    if let Some(why) = &summary.context_missing {
        text += &format!(" {} of them do not say what the host did ({why}).", count(summary.without_context));
    }
    wrapped(&text, WIDTH, "", "")
}

impl Lines {
    /// The line of one long exit.
    #[must_use]
    pub fn long(&self, occurrence: &LongOccurrence) -> String {
        let exit = &occurrence.exit;
        let name = terminal::name_of(occurrence.owner.as_ref(), exit.vcpu.number);
        self.line(occurrence.wall, &name, &exit.reason.to_string(), &printable(&details(exit)), None)
    }
}

fn details(exit: &LongExit) -> String {
    let mut parts = vec![whole_time(exit.handling_ns)];
    if !exit.accesses.is_empty() {
        parts.push(accesses(&exit.accesses));
    }
    if let Some(told) = &exit.meanwhile {
        parts.push(in_words(told));
    }
    parts.join("  ")
}

fn accesses(accesses: &[Access]) -> String {
    /// The maximum number of accesses to show: a string instruction may have thousands.
    const MOST: usize = 4;
    let shown: Vec<String> = accesses.iter().take(MOST).map(ToString::to_string).collect();
    let more =
        if accesses.len() > MOST { format!(" and {} more", accesses.len() - MOST) } else { String::new() };
    shown.join(", ") + &more
}

/// The host's activities during a long exit, the longest first.
fn in_words(told: &Meanwhile) -> String {
    let preempted = match &told.instead {
        Some(name) => format!("preempted by {name}"),
        // It was runnable, but its CPU was idle.
        None => "held back (cpu.max, core scheduling)".to_owned(),
    };
    let interrupts = counted(told.interrupts.into(), "interrupt");
    let mut parts = [
        (told.preempted_ns, preempted),
        (told.blocked_ns, "waiting".to_owned()),
        (told.interrupts_ns, interrupts),
        (told.user_ns, "in the VMM".to_owned()),
        (told.kernel_ns, "in KVM".to_owned()),
    ];
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let shown = parts.iter().filter(|(ns, _)| *ns > 0);
    shown.map(|(ns, words)| format!("{words} {}", whole_time(*ns))).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct LongLine<'a> {
    time: Option<String>,
    time_ns: u64,
    kind: &'static str,
    cpu: u16,
    vm: Option<u32>,
    vm_name: Option<&'a str>,
    process: Option<&'a str>,
    vcpu: Option<u32>,
    thread: Option<u32>,
    reason: ExitReason,
    accesses: &'a [Access],
    rip: Option<String>,
    handling_ns: u64,
    meanwhile: Option<&'a Meanwhile>,
}

fn line<'a>(
    exit: &'a LongExit,
    wall: Option<SystemTime>,
    name: Option<&'a str>,
    process: Option<&'a str>,
) -> LongLine<'a> {
    LongLine {
        time: wall.map(|wall| humantime::format_rfc3339_nanos(wall).to_string()),
        time_ns: exit.time_ns,
        kind: "long-exit",
        cpu: exit.cpu,
        vm: exit.vcpu.vm,
        vm_name: name,
        process,
        vcpu: exit.vcpu.number,
        thread: exit.vcpu.thread,
        reason: exit.reason,
        accesses: &exit.accesses,
        rip: exit.guest_rip.map(|rip| format!("{rip:#x}")),
        handling_ns: exit.handling_ns,
        meanwhile: exit.meanwhile.as_ref(),
    }
}

/// The JSON object of a long exit.
#[must_use]
pub fn json(occurrence: &LongOccurrence) -> impl Serialize + '_ {
    let owner = occurrence.owner.as_ref();
    let name = owner.and_then(|owner| owner.vm.as_deref());
    line(&occurrence.exit, Some(occurrence.wall), name, owner.map(|owner| owner.process.as_str()))
}

/// Several recordings with their numbers, and the selected part of them; empty if there is neither.
fn head(recordings: &Recordings, width: usize) -> String {
    let mut text = String::new();
    if recordings.files.len() > 1 {
        for (at, file) in recordings.files.iter().enumerate() {
            let label = if at == 0 { "recordings" } else { "" };
            text += &labels::line(label, &format!("{}: {}", at + 1, file.name), width);
        }
    }
    if let Some(part) = part(recordings) {
        text += &labels::line("only", &part, width);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The longest exits of `recordings` as a table, with their number.
#[must_use]
pub fn table(
    exits: &LongExits,
    recordings: &Recordings,
    bound_ns: u64,
    width: usize,
    colour: bool,
) -> String {
    let width = width.max(NARROWEST);
    let longest = exits.longest();
    let mut text = head(recordings, width);
    if !longest.is_empty() {
        let first_ns = recordings.first_ns();
        let cells = |of: &dyn Fn(&LongExit) -> String| longest.iter().map(of).collect::<Vec<_>>();
        let after =
            |exit: &LongExit| exit.time_ns.saturating_sub(first_ns.get(exit.recording).copied().unwrap_or(0));
        let number =
            |number: Option<u32>| number.map_or_else(|| NONE.to_owned(), |number| number.to_string());
        let mut columns = vec![Column::figures("after", cells(&|exit| whole_time(after(exit))))];
        if recordings.files.len() > 1 {
            columns.push(Column::figures("recording", cells(&|exit| (exit.recording + 1).to_string())));
        }
        columns.extend([
            Column::names("VM", cells(&|exit| vm(exit.vcpu.vm, &recordings.profile))),
            Column::figures("vCPU", cells(&|exit| number(exit.vcpu.number))),
            Column::figures("CPU", cells(&|exit| exit.cpu.to_string())).may_go(1),
            Column::names("exit reason", cells(&|exit| exit.reason.to_string())),
            Column::figures("took", cells(&|exit| whole_time(exit.handling_ns))),
            Column::whole_names("access", cells(&|exit| accesses(&exit.accesses))),
        ]);
        text += &drawn(columns, width, false, colour);
        text.push('\n');
    }
    let shown = longest.len() as u64;
    let which = if shown < exits.beyond {
        format!("; the longest {} are shown", count(shown))
    } else {
        String::new()
    };
    let mut told =
        format!("{} took {} or longer{which}.", counted(exits.beyond, "exit"), whole_time(bound_ns));
    if exits.slept > 0 {
        told += &format!(" Left out: {} in which the guest slept (--sleep shows them).", count(exits.slept));
    }
    text + &wrapped(&told, width, "", "")
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    #[serde(flatten)]
    head: Head,
    bound_ns: u64,
    /// The number of all exits beyond the bound.
    beyond: u64,
    /// The number of exits left out because the guest slept in them.
    slept: u64,
    /// The longest exits, the longest first.
    long_exits: Vec<OwnedLine>,
    losses: &'a exits::Losses,
}

/// The longest exits of `recordings` as a document.
#[must_use]
pub fn document<'a>(exits: &LongExits, recordings: &'a Recordings, bound_ns: u64) -> impl Serialize + 'a {
    let profile = &recordings.profile;
    let owned = |exit: LongExit| OwnedLine {
        vm_name: exit.vcpu.vm.and_then(|vm| profile.names.get(&vm)).cloned(),
        exit,
    };
    Document::new(Fields {
        head: Head::new(recordings),
        bound_ns,
        beyond: exits.beyond,
        slept: exits.slept,
        long_exits: exits.longest().into_iter().map(owned).collect(),
        losses: &profile.losses,
    })
}

#[derive(Debug, Clone, PartialEq)]
struct OwnedLine {
    exit: LongExit,
    vm_name: Option<String>,
}

/// A line of a document of recordings.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct RecordedLine<'a> {
    /// The index of its recording in the document's `files`.
    recording: usize,
    #[serde(flatten)]
    line: LongLine<'a>,
}

impl Serialize for OwnedLine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = line(&self.exit, None, self.vm_name.as_deref(), None);
        RecordedLine { recording: self.exit.recording, line }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Direction, LongOptions, Profile, Span, Vcpu};
    use std::time::{Duration, UNIX_EPOCH};
    use traces::{Format, Options, Origin, Reading};

    fn exit() -> LongExit {
        LongExit {
            recording: 1,
            time_ns: 5_000_000,
            vcpu: Vcpu { vm: Some(10), number: Some(1), thread: Some(12) },
            cpu: 3,
            reason: ExitReason::svm(0x7c),
            accesses: vec![Access::Msr { number: 0x830, direction: Direction::Write }],
            guest_rip: None,
            handling_ns: 263_000,
            meanwhile: Some(Meanwhile {
                preempted_ns: 201_000,
                interrupts_ns: 12_000,
                kernel_ns: 50_000,
                interrupts: 2,
                instead: Some("evil\u{1b}[2J".to_owned()),
                ..Meanwhile::default()
            }),
        }
    }

    fn occurrence() -> LongOccurrence {
        LongOccurrence { exit: exit(), wall: UNIX_EPOCH + Duration::from_millis(1_500), owner: None }
    }

    #[test]
    fn a_line_says_how_long_what_for_and_what_the_host_did() {
        let line = Lines::new(false).long(&occurrence());
        let told = "263 µs  ICR:W  preempted by evil";
        assert!(line.starts_with("00:00:01.500 –/1") && line.contains(told), "{line}");
        assert!(line.contains("201 µs, in KVM 50.0 µs, 2 interrupts 12.0 µs"), "{line}");
        assert!(!line.contains('\u{1b}'), "names of threads are foreign: {line:?}");
    }

    #[test]
    fn a_thread_that_no_other_preempted_was_held_back() {
        let told = Meanwhile { preempted_ns: 62_000_000, kernel_ns: 50_000, ..Meanwhile::default() };
        let words = in_words(&told);
        assert!(words.starts_with("held back (cpu.max, core scheduling) 62"), "{words}");
        assert!(!words.contains("preempted"), "{words}");
    }

    #[test]
    fn the_end_says_why_exits_do_not_say_what_the_host_did() {
        let whole = LongSummary { exits: 9, long: 3, without_context: 1, ..LongSummary::default() };
        assert!(!summary(&whole).contains("the host did"), "it was not watched from its beginning");
        let context_missing = Some("raise the limit of open files".to_owned());
        let text = summary(&LongSummary { without_context: 2, context_missing, ..whole });
        assert!(
            text.replace('\n', " ").contains("2 of them do not say what the host did (raise the limit"),
            "{text}"
        );
    }

    #[test]
    fn json_has_all_of_it_in_nanoseconds() {
        let value = serde_json::to_value(json(&occurrence())).unwrap();
        assert_eq!(value["kind"], "long-exit");
        assert_eq!((&value["handling_ns"], &value["reason"]), (&263_000.into(), &"msr".into()));
        assert_eq!(value["accesses"][0], "ICR:W");
        assert_eq!(value["meanwhile"]["preempted_ns"], 201_000);
    }

    /// Recordings of which only the times are known, read with these options.
    fn recordings(options: Options, first_ns: &[u64]) -> Recordings {
        let mut all = Recordings::new(options);
        for &first_ns in first_ns {
            let mut profile = Profile::new();
            profile.span = Some(Span { first_ns, last_ns: 9_000_000 });
            let origin = Origin::new(Format::PerfData);
            all.add(
                format!("{first_ns}.data"),
                Reading { profile, origin, damage: None, warnings: Vec::new() },
            );
        }
        all
    }

    #[test]
    fn a_table_has_the_longest_first_and_the_number_of_all() {
        let mut exits = LongExits::new(LongOptions { bound_ns: 50_000, sleep: false }, 1);
        for handling_ns in [90_000, 263_000] {
            if exits.takes(ExitReason::svm(0x7c), Some(handling_ns)) {
                exits.keep(LongExit { handling_ns, ..exit() });
            }
        }
        let both = recordings(Options::default(), &[0, 1_500_000]);
        let text = table(&exits, &both, 50_000, 80, false);
        assert!(
            text.contains("\n3.50 ms          2  10 "),
            "after the first event of its own recording: {text}"
        );
        assert!(text.starts_with("recordings 1: 0.data\n           2: 1500000.data\n\n"), "{text}");
        assert!(text.contains("263 µs") && !text.contains("90.0 µs"), "{text}");
        assert!(text.contains("2 exits took 50.0 µs or longer; the longest 1 are shown."), "{text}");
        let value = serde_json::to_value(document(&exits, &both, 50_000)).unwrap();
        assert_eq!((&value["long_exits"][0]["recording"], &value["bound_ns"]), (&1.into(), &50_000.into()));
        assert_eq!(value["files"][1]["observed"]["first_ns"], 1_500_000);
    }

    #[test]
    fn the_selected_time_is_told_even_if_nothing_took_long_in_it() {
        let exits = LongExits::new(LongOptions { bound_ns: 50_000, sleep: false }, 1);
        let part = recordings(Options { to_ns: Some(1_000_000), ..Options::default() }, &[0]);
        let text = table(&exits, &part, 50_000, 80, false);
        assert_eq!(text, "only       the first 1.00 ms\n\n0 exits took 50.0 µs or longer.\n");
        let value = serde_json::to_value(document(&exits, &part, 50_000)).unwrap();
        assert_eq!(value["selection"]["to_ns"], 1_000_000);
    }
}
