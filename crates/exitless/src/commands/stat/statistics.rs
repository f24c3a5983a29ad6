//! `exitless stat` where eBPF cannot be used: what KVM counts by itself.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use experiment::pause;
use host::vms::Vms;
use live::Error;
use report::Running;

use super::Arguments;
use crate::commands::vms::{exit_code, since, source};
use crate::commands::watching::HOST;
use crate::commands::workload::Workload;
use crate::console;

/// Shows KVM's own statistics, after saying why. Without a VM that has any, the error is what is left to say.
pub(super) fn run(arguments: &Arguments, error: Error, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let root = Path::new(HOST);
    let found = Vms::discover(root)?;
    let vms = found.select(arguments.watch.wanted())?;
    if vms.is_empty() {
        return Err(error.into());
    }
    tracing::warn!("{error}");
    tracing::warn!("KVM's own statistics are shown instead: exits by few reasons, and no handling times");
    let mut source = source(root, &vms);
    let mut before = source.read();
    let mut show = || -> anyhow::Result<ExitCode> {
        let now = source.read();
        let counted = since(now.clone(), &before);
        before = now;
        let running = Running { found: &found, vms: &vms, counted: Some(&counted) };
        print(&running, arguments.json)?;
        Ok(ExitCode::from(exit_code(&running)))
    };
    if let Some(workload) = Workload::start(&arguments.command)? {
        let status = workload.wait(stop)?;
        show()?;
        return Ok(status);
    }
    let mut next = Instant::now();
    let mut tables = 0;
    let mut status = ExitCode::SUCCESS;
    while arguments.count.is_none_or(|count| tables < count) && !stop.load(Ordering::Relaxed) {
        next += Duration::from_nanos(arguments.interval);
        let _ = pause(next, stop);
        status = show()?;
        tables += 1;
    }
    Ok(status)
}

fn print(running: &Running<'_>, json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if json {
        serde_json::to_writer(&mut out, &report::json::vms(running))?;
        writeln!(out)?;
    } else {
        out.write_all(report::terminal::vms(running, console::width(), console::colour()).as_bytes())?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
