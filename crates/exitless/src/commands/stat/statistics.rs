//! `exitless stat` if eBPF cannot be used: KVM's own counters.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use host::vms::Vms;
use live::Watch;
use live::pause;
use report::vms::Running;

use super::{Arguments, Pace};
use crate::commands::vms::{exit_code, since, source};
use crate::commands::watching::{HOST, Watched};
use crate::commands::workload::Workload;
use crate::console;

/// Shows KVM's own statistics, after the reason. If no VM has any, returns the error.
pub(super) fn run(
    arguments: &Arguments,
    error: anyhow::Error,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let root = Path::new(HOST);
    let found = Vms::discover(root)?;
    let vms = found.select(arguments.watch.wanted())?;
    if vms.is_empty() {
        return Err(error);
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
    let processes = vms.iter().filter_map(|vm| u32::try_from(vm.pid).ok());
    let asked = (!arguments.watch.wanted().is_empty()).then(|| processes.collect());
    let watched = Watched::of(&Watch { processes: asked, ..Watch::default() }, &arguments.watch);
    if let Some(workload) = Workload::start(&arguments.command)? {
        let status = workload.wait(stop, || ())?;
        show()?;
        watched.status();
        return Ok(status);
    }
    let mut pace = Pace::begin(arguments);
    loop {
        let goes_on = pause(pace.next(), stop);
        let status = show()?;
        match watched.status() {
            0 if goes_on && !pace.is_over() => {}
            0 => return Ok(status),
            ended => return Ok(ExitCode::from(ended)),
        }
    }
}

fn print(running: &Running<'_>, json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if json {
        serde_json::to_writer(&mut out, &report::vms::json(running))?;
        writeln!(out)?;
    } else {
        out.write_all(report::vms::terminal(running, console::width(), console::colour()).as_bytes())?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
