//! `exitless report --longer-than`: the longest single exits of recordings.

use std::process::ExitCode;

use exits::{LongExit, LongExits, LongOptions};
use report::trace::long;
use traces::{AccessRecord, ExitRecord, Sink};

use super::Arguments;
use crate::commands::recordings::{Destination, exit_code, warn_of_doubts};
use crate::console;

/// The number of rows without `--top`.
const ROWS: usize = 100;

/// Keeps the longest exits as recordings are read.
struct Longest {
    exits: LongExits,
    /// Recordings that were begun.
    recordings: usize,
}

impl Sink for Longest {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        if !self.exits.takes(exit.reason, exit.handling_ns) {
            return;
        }
        self.exits.keep(LongExit {
            recording: self.recordings.saturating_sub(1),
            time_ns: exit.time_ns,
            vcpu: exit.vcpu,
            cpu: exit.cpu,
            reason: exit.reason,
            accesses: accesses.iter().map(|one| one.access).collect(),
            guest_rip: Some(exit.guest_rip).filter(|&rip| rip != 0),
            handling_ns: exit.handling_ns.unwrap_or(0),
            meanwhile: None,
        });
    }
}

impl Destination for Longest {
    fn begin(&mut self, _recording: &str) {
        self.recordings += 1;
    }
}

/// Shows the exits longer than the bound.
pub(super) fn run(arguments: &Arguments, bound_ns: u64) -> anyhow::Result<ExitCode> {
    let most = arguments.rows.top().unwrap_or(ROWS);
    let options = LongOptions { bound_ns, sleep: arguments.sleep };
    let mut longest = Longest { exits: LongExits::new(options, most), recordings: 0 };
    let recordings = arguments.recordings.read(&mut longest)?;
    let document = || long::document(&longest.exits, &recordings, bound_ns);
    let text = || {
        let (width, colour) = (console::width(), console::colour());
        long::table(&longest.exits, &recordings, bound_ns, width, colour)
    };
    crate::output::print_table(arguments.json, document, text)?;
    warn_of_doubts(&recordings);
    Ok(exit_code(&recordings))
}
