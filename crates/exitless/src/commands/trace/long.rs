//! `exitless trace --longer-than`: single exits that took long.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use exits::LongOptions;
use host::vms::Vms;
use live::{LongOccurrence, LongTracer, Watch};
use report::trace::long;
use report::trace::terminal::Lines;

use super::{Arguments, PERIOD};
use crate::commands::watching::{HOST, turn};
use crate::{console, interrupt};

/// Traces the exits longer than the bound.
pub(super) fn run(arguments: &Arguments, bound_ns: u64) -> anyhow::Result<ExitCode> {
    let stop = interrupt::flag()?;
    let root = Path::new(HOST);
    let processes = match arguments.vms.as_slice() {
        [] => None,
        wanted => {
            let found = Vms::discover(root)?;
            Some(found.select(wanted)?.iter().filter_map(|vm| u32::try_from(vm.pid).ok()).collect())
        }
    };
    let watch = Watch { processes, accesses: true, ..Watch::default() };
    let options = LongOptions { bound_ns, sleep: arguments.sleep };
    let mut tracer = LongTracer::attach(root, &watch, options)?;
    console::say(long::beginning(bound_ns, tracer.without_context()));
    let mut told = tracer.without_context().is_some();
    let end = arguments.duration.and_then(|ns| Instant::now().checked_add(Duration::from_nanos(ns)));
    let mut out = BufWriter::new(std::io::stdout().lock());
    let lines = (!arguments.json).then(|| Lines::new(console::colour()));
    let mut write = |items: &[LongOccurrence], written: &mut u64| -> anyhow::Result<()> {
        for item in items {
            // One poll may return more than the requested number.
            if arguments.count.is_some_and(|count| *written >= count) {
                break;
            }
            *written += 1;
            match &lines {
                Some(lines) => out.write_all(console::shown(lines.long(item)).as_bytes())?,
                None => crate::json::write(&mut out, &long::json(item))?,
            }
        }
        Ok(out.flush()?)
    };
    let mut written = 0;
    loop {
        write(&tracer.poll(), &mut written)?;
        if let Some(why) = tracer.without_context().filter(|_| !told) {
            told = true;
            tracing::warn!("What the host does during exits of further vCPUs is not known: {why}");
        }
        let done = arguments.count.is_some_and(|count| written >= count);
        if done || !turn(end, PERIOD, &stop) {
            break;
        }
    }
    let (items, summary) = tracer.finish()?;
    write(&items, &mut written)?;
    console::say(long::summary(&summary));
    Ok(ExitCode::SUCCESS)
}
