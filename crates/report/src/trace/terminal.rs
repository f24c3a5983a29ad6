//! The lines of `exitless trace`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use exits::{Direction, Inhibit, InhibitReason, apic_register_name, incomplete_ipi_cause};
use live::trace::{
    DeliveryMode, Destination, EventKind, InhibitReport, InhibitState, Ipi, IrteUpdate, Loss, Missing,
    Occurrence, Owner, Summary, What, by_reason,
};
use textwrap::core::display_width;

use crate::format::{self, counted};
use crate::terminal::wrapped;
use crate::text::{self, printable};

/// The width of a VM's name with its vCPU.
const NAME: usize = 15;
/// The width of the longest kind.
const KIND: usize = 16;
/// The width of explanations, which are indented to the VM's name.
pub(super) const WIDTH: usize = 80;
const INDENT: &str = "             ";

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const DIM: &str = "2";

/// Writes events as lines, and explains each inhibit reason once.
#[derive(Debug, Default)]
pub struct Lines {
    colour: bool,
    explained: BTreeSet<InhibitReason>,
}

impl Lines {
    /// A writer of lines; `colour` allows escape sequences.
    #[must_use]
    pub fn new(colour: bool) -> Self {
        Self { colour, explained: BTreeSet::new() }
    }

    /// The line of an event. When an inhibit reason is set for the first time, its causes and fixes follow, indented.
    pub fn event(&mut self, occurrence: &Occurrence) -> String {
        let what = &occurrence.event.what;
        let shown = details(what);
        let mut text = self.line(
            occurrence.wall,
            &whose(occurrence),
            what.kind().name(),
            &printable(&shown),
            colour_of(what),
        );
        if let What::InhibitReport(InhibitReport { change, reason: Inhibit::Named(reason), .. }) = what
            && change.set
            && self.explained.insert(*reason)
        {
            text += &self.explanation(*reason);
        }
        text
    }

    /// The line of lost events.
    #[must_use]
    pub fn lost(&self, loss: &Loss) -> String {
        let place = loss.cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        let text = format!("{}{place}", counted(loss.events, "event"));
        self.line(loss.wall, format::NONE, "lost", &text, Some(RED))
    }

    pub(super) fn line(
        &self,
        wall: SystemTime,
        name: &str,
        kind: &str,
        details: &str,
        colour: Option<&str>,
    ) -> String {
        let blanks = " ".repeat(NAME.saturating_sub(display_width(name)));
        let time = self.painted(&time_of_day(wall), Some(DIM));
        let kind = self.painted(&format!("{kind:<KIND$}"), colour);
        format!("{time} {name}{blanks} {kind} {details}\n")
    }

    fn painted(&self, text: &str, colour: Option<&str>) -> String {
        match colour.filter(|_| self.colour) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }

    fn explanation(&self, reason: InhibitReason) -> String {
        let rest = format!("{INDENT}  ");
        let facts = [format!("set when {}", reason.set_by()), format!("fix: {}", reason.cure())];
        let text: String = facts.iter().map(|fact| wrapped(fact, WIDTH, INDENT, &rest)).collect();
        text.lines().map(|line| format!("{}\n", self.painted(line, Some(DIM)))).collect()
    }
}

/// The start of a trace: the kinds of events that are traced, and the kinds that cannot be, with reasons.
#[must_use]
pub fn beginning(kinds: &[EventKind], missing: &[Missing]) -> String {
    let listed = |kinds: &[EventKind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    let mut text = wrapped(&format!("Tracing {}; Ctrl-C ends it.", listed(kinds)), WIDTH, "", "");
    for (why, kinds) in by_reason(missing) {
        text += &wrapped(&format!("Not traced: {} ({why}).", listed(&kinds)), WIDTH, "", "");
    }
    text
}

/// The end of a trace: events by kind, and lost or omitted events.
#[must_use]
pub fn summary(summary: &Summary) -> String {
    let total: u64 = summary.events.values().sum();
    let each = |counts: &mut dyn Iterator<Item = (&EventKind, &u64)>| {
        let parts = counts.filter(|(_, count)| **count > 0);
        let parts: Vec<_> = parts.map(|(kind, &count)| format!("{} {kind}", format::count(count))).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    };
    let lost: u64 = summary.lost.values().sum();
    let lost = match lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost{}", format::count(lost), each(&mut summary.lost.iter())),
    };
    let mut text = format!("{}{}; {lost}.", counted(total, "event"), each(&mut summary.events.iter()));
    if summary.unchanged > 0 {
        let requests = counted(summary.unchanged, "request");
        let _ =
            write!(text, " Left out: {requests} that changed no inhibit reason (--unchanged shows them).");
    }
    if summary.of_nobody > 0 {
        let _ = write!(text, " Left out: {} of which no VM is known.", counted(summary.of_nobody, "event"));
    }
    if summary.undecoded > 0 {
        let _ = write!(text, " {} could not be read.", counted(summary.undecoded, "record"));
    }
    wrapped(&text, WIDTH, "", "")
}

/// Time of day in UTC, to the millisecond.
fn time_of_day(wall: SystemTime) -> String {
    let text = humantime::format_rfc3339_millis(wall).to_string();
    text.get(11..23).unwrap_or(&text).to_owned()
}

/// The VM's name, or its process, with the vCPU after a slash.
fn whose(occurrence: &Occurrence) -> String {
    name_of(occurrence.owner.as_ref(), occurrence.event.what.vcpu())
}

/// The name of an owner's VM, or its process, with the vCPU after a slash.
pub(super) fn name_of(owner: Option<&Owner>, vcpu: Option<u32>) -> String {
    let name = match owner {
        Some(owner) => match &owner.vm {
            Some(name) => printable(name),
            None => printable(&format!("{} {}", owner.pid, owner.process)),
        },
        None => format::NONE.to_owned(),
    };
    let vcpu = vcpu.map_or_else(String::new, |vcpu| format!("/{vcpu}"));
    text::elided(&name, NAME.saturating_sub(vcpu.len())) + &vcpu
}

fn colour_of(what: &What) -> Option<&'static str> {
    match what {
        What::InhibitReport(report) if report.state == InhibitState::Active => Some(GREEN),
        What::InhibitReport(report) => match report.reason {
            Inhibit::Named(reason) if reason.is_passing() => Some(YELLOW),
            _ => Some(RED),
        },
        _ => None,
    }
}

fn details(what: &What) -> String {
    match what {
        What::Inhibit(change) => {
            format!("{} reason:{}", if change.set { "set" } else { "cleared" }, change.number)
        }
        What::InhibitReport(report) => inhibit(report),
        What::IrqWindow { reason, .. } => reason.to_string(),
        What::GaLog { avic_vm, tag_vcpu } => format!("AVIC VM {avic_vm}, vCPU tag {tag_vcpu}"),
        What::PostedInterrupt(IrteUpdate { posted: true, host_irq, gsi, vector, .. }) => {
            format!("IRQ {host_irq} to vector {vector:#04x}, GSI {gsi}")
        }
        What::PostedInterrupt(IrteUpdate { host_irq, gsi, .. }) => {
            format!("IRQ {host_irq} not posted, GSI {gsi}")
        }
        What::IncompleteIpi { ipi: sent, cause, .. } => {
            let cause = incomplete_ipi_cause(*cause).map_or_else(|| format!("cause {cause}"), str::to_owned);
            format!("{cause} {}", ipi(sent))
        }
        What::Unaccelerated { register, direction, trap, vector, .. } => {
            let register =
                apic_register_name(*register).map_or_else(|| format!("{register:#x}"), str::to_owned);
            let direction = if *direction == Direction::Write { "write" } else { "read" };
            let vector = if *vector > 0 { format!(", vector {vector:#04x}") } else { String::new() };
            format!("{register} {direction} ({}){vector}", if *trap { "trap" } else { "fault" })
        }
        What::Kick { ipi: sent, index } => format!("{}, index {index}", ipi(sent)),
        What::AcceptIrq { mode, level, vector, .. } => {
            format!("vector {vector:#04x} {} {}", mode.name(), if *level { "level" } else { "edge" })
        }
        What::PvEoi { apic_id, vector: ..0 } => format!("APIC {apic_id}, no interrupt"),
        What::PvEoi { apic_id, vector } => format!("APIC {apic_id} vector {vector:#04x}"),
        other => other.kind().name().to_owned(),
    }
}

fn inhibit(report: &InhibitReport) -> String {
    let set = report.change.set;
    let mut text = format!("{} {}", if set { "set" } else { "cleared" }, report.reason);
    match &report.state {
        // The state did not change and was already shown.
        _ if report.changed == Some(false) => text += ": no change",
        InhibitState::Active => text += ": active",
        InhibitState::Unknown => {}
        InhibitState::Inhibited { by, .. } => {
            let others: Vec<_> =
                by.iter().filter(|&&other| other != report.reason).map(ToString::to_string).collect();
            text += match (set, others.is_empty()) {
                (true, true) => ": inhibited",
                (true, false) => ", beside ",
                (false, _) => ": still ",
            };
            text += &others.join(", ");
        }
    }
    text
}

/// An IPI: "0xfd to 1", "NMI to LDR 0x3", "SIPI 0x9a to 1".
fn ipi(ipi: &Ipi) -> String {
    let vector = ipi.vector;
    let what = match ipi.mode {
        DeliveryMode::Fixed => format!("{vector:#04x}"),
        DeliveryMode::Startup | DeliveryMode::LowestPriority => format!("{} {vector:#04x}", ipi.mode.name()),
        mode => mode.name().to_owned(),
    };
    let whom = match ipi.destination {
        Destination::Physical(id) => id.to_string(),
        Destination::Logical(mask) => format!("LDR {mask:#x}"),
        Destination::Myself => "self".to_owned(),
        Destination::All => "all".to_owned(),
        Destination::Others => "all others".to_owned(),
    };
    format!("{what} to {whom}")
}
