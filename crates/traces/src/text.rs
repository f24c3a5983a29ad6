//! Reader of text: `trace` and `trace_pipe` of tracefs, `trace-cmd report`, `perf script`.
//!
//! Text is the last resort: it lacks fields and digits, and its format differs between versions of the kernel and of
//! tools. `columns`, `event` and `notes` name the sources of the formats that are read.

mod columns;
mod counts;
mod event;
mod lines;
mod notes;
mod number;
mod reasons;
mod registers;
mod sources;

use columns::{Columns, Unit};
use counts::{Counts, Named};
use exits::{Span, Vcpu, counted};
use lines::{Line, Lines};
use notes::Lost;
use reasons::Reasons;
use rustc_hash::FxHashMap;
use sources::Sources;

use crate::assembly::Assembly;
use crate::event::Event;
use crate::input::Input;
use crate::{Damage, Error, Format, Options, Origin, Reading, Sink};

/// The number of events after which older ones are processed.
const STEP: u64 = 1 << 16;
/// The largest disorder in text from a pipe.
const SLACK_NS: u64 = 1_000_000_000;
/// The event that must be present.
const KVM_EXIT: &str = "kvm:kvm_exit";
/// The most events that a message names.
const FEW: usize = 5;

/// Tests whether the first bytes are such text.
pub(crate) fn begins(start: &[u8]) -> bool {
    let is_event =
        |line: &[u8]| Columns::parse(line).is_some_and(|columns| Named::find(columns.rest).is_some());
    start
        .split(|&byte| byte == b'\n')
        .any(|line| line.starts_with(b"# tracer: ") || tracer_line(line) || is_event(line))
}

fn tracer_line(line: &[u8]) -> bool {
    notes::tracer_lost(line).is_some()
}

/// Reads a recording of text.
pub(crate) fn read(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let mut lines = Lines::new(input.into_stream());
    let mut text = Text::new(Assembly::new(options, sink));
    let mut damage = None;
    let mut bytes = 0;
    while let Some(line) = lines.next().map_err(|source| Error::Read { name: name.clone(), source })? {
        if line.ended {
            text.take(line.text);
        } else {
            damage = Some(cut(&line));
        }
        bytes = lines.offset();
    }
    if let Some(error) = failure.take() {
        damage = Some(Damage { offset: bytes, what: format!("reading failed ({error})") });
    }
    text.finish(name, bytes, damage)
}

/// Complete output always ends with a line end.
fn cut(line: &Line<'_>) -> Damage {
    Damage { offset: line.offset, what: "the last line is cut off".to_owned() }
}

/// The state of the reader.
struct Text<'s, S> {
    assembly: Assembly<'s, S>,
    reasons: Reasons,
    counts: Counts,
    sources: Sources,
    origin: Origin,
    architecture: Option<String>,
    /// The process of each thread, if a column has it.
    processes: FxHashMap<u32, u32>,
    /// The number of exits that were understood.
    exits: u64,
    events: u64,
    newest_ns: u64,
    /// The number of lines that do not belong to a trace.
    strange: u64,
    overwritten: u64,
    lost_by_perf: [u64; 2],
    ticks: bool,
    coarse: bool,
}

impl<'s, S: Sink> Text<'s, S> {
    fn new(assembly: Assembly<'s, S>) -> Self {
        Self {
            assembly,
            reasons: Reasons::new(),
            counts: Counts::default(),
            sources: Sources::default(),
            origin: Origin::new(Format::TracefsText),
            architecture: None,
            processes: FxHashMap::default(),
            exits: 0,
            events: 0,
            newest_ns: 0,
            strange: 0,
            overwritten: 0,
            lost_by_perf: [0; 2],
            ticks: false,
            coarse: false,
        }
    }

    fn take(&mut self, line: &[u8]) {
        if let Some(columns) = Columns::parse(line) {
            match Named::find(columns.rest) {
                Some(event) => self.event(&columns, &event),
                None => self.no_event(&columns),
            }
        } else if line.starts_with(b"#") {
            if let Some(cpu) = notes::buffer_started(line) {
                self.assembly.lost(cpu, 0);
            } else {
                self.overwritten += notes::header(line, &mut self.origin, &mut self.architecture);
            }
        } else if let Some((cpu, count)) = notes::tracer_lost(line) {
            self.assembly.lost(cpu, count);
        } else if !line.is_empty() && !line.starts_with(b"cpus=") {
            self.strange += 1;
        }
    }

    fn event(&mut self, columns: &Columns<'_>, named: &Named<'_>) {
        self.counts.add(named);
        let Some(name) = event::Name::find(named.name) else { return self.observed(columns) };
        let Some((kind, value, extra)) = name.read(named.text, &mut self.reasons) else {
            self.assembly.undecoded(1);
            return self.observed(columns);
        };
        if !self.sources.takes(columns.name, columns.thread, kind) {
            return;
        }
        if let Some(process) = columns.process {
            self.process(columns, process);
        }
        self.ticks |= columns.unit == Unit::Ticks;
        self.coarse |= columns.unit == Unit::Microseconds;
        let Columns { time: time_ns, thread, cpu, .. } = *columns;
        self.assembly.push(&Event { time_ns, value, extra, thread, cpu, kind });
        self.exits += u64::from(name == event::Name::Exit);
        self.newest_ns = self.newest_ns.max(time_ns);
        self.events += 1;
        if self.events.is_multiple_of(STEP) {
            self.assembly.flush(self.newest_ns.saturating_sub(SLACK_NS));
        }
    }

    /// Records the time of a line other than an event of interest.
    fn observed(&mut self, columns: &Columns<'_>) {
        self.assembly.observed(Span { first_ns: columns.time, last_ns: columns.time });
    }

    /// Sets the process of the line's thread.
    fn process(&mut self, columns: &Columns<'_>, process: u32) {
        let thread = columns.thread;
        if self.processes.insert(thread, process) != Some(process) {
            self.assembly.introduce(thread, Vcpu { vm: Some(process), number: None, thread: Some(thread) });
            if process == thread {
                self.assembly.name(process, &String::from_utf8_lossy(columns.name));
            }
        }
    }

    fn no_event(&mut self, columns: &Columns<'_>) {
        self.observed(columns);
        let count = match notes::perf_lost(columns.rest.trim_ascii_start()) {
            Some(Lost::Perf(count)) => (0, count),
            Some(Lost::PerfSamples(count)) => (1, count),
            _ => return,
        };
        self.assembly.lost(columns.cpu, 0);
        self.lost_by_perf[count.0] = self.lost_by_perf[count.0].saturating_add(count.1);
    }

    fn finish(mut self, name: String, bytes: u64, damage: Option<Damage>) -> Result<Reading, Error> {
        if let Some(architecture) = self.architecture.filter(|architecture| architecture != "x86_64") {
            return Err(Error::Architecture { name, architecture });
        }
        let counts = self.counts.all();
        if self.exits == 0 {
            return Err(Error::NoExits { name, missing: KVM_EXIT, found: found(&counts) });
        }
        for (event, count) in &counts {
            self.assembly.count_event(event, *count);
        }
        // perf's two counts may include the same losses.
        let by_perf = self.lost_by_perf[0].max(self.lost_by_perf[1]);
        self.assembly.lost_events(self.overwritten.saturating_add(by_perf), 0);
        let mut warnings = Vec::new();
        if self.ticks {
            warnings.push(
                "its times are ticks of a clock that is not named: handling times are ticks, not nanoseconds"
                    .to_owned(),
            );
        } else if self.coarse {
            warnings.push(
                "its times are in microseconds, and so are handling times (`trace-cmd report -t` and `perf script \
                 --ns` write nanoseconds)"
                    .to_owned(),
            );
        }
        if self.sources.left_out > 0 {
            warnings.push(format!(
                "{} left out: another buffer or file in the text has those of the same threads",
                counted(self.sources.left_out, "event")
            ));
        }
        if self.strange > 0 {
            warnings.push(format!("{} without an event passed over", counted(self.strange, "line")));
        }
        let origin = Origin { bytes, ..self.origin };
        let profile = self.assembly.finish(&mut warnings);
        Ok(Reading { profile, origin, damage, warnings })
    }
}

/// A list of the events that a recording without exits has.
fn found(counts: &[(String, u64)]) -> String {
    if counts.is_empty() {
        return "no events at all".to_owned();
    }
    let not_understood =
        |name: &str| if name == KVM_EXIT { " of reasons that x86 does not have" } else { "" };
    let listed =
        counts.iter().take(FEW).map(|(name, count)| format!("{count} {name}{}", not_understood(name)));
    let listed = listed.collect::<Vec<_>>().join(", ");
    if counts.len() > FEW {
        format!("{listed} and {}", counted((counts.len() - FEW) as u64, "other"))
    } else {
        listed
    }
}
