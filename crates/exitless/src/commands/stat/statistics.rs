//! `exitless stat` without eBPF: KVM's own counters.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use host::vms::Vms;
use live::statistics::{StatisticsSource, VmStatistics};
use live::{Watch, pause};
use report::vms::{Counted, Running};

use super::{Arguments, Pace};
use crate::commands::vms::{exit_code, since, source};
use crate::commands::watching::{HOST, Watched};
use crate::commands::workload::Workload;
use crate::console;

/// Shows KVM's own counters, and why they are used. If no VM has any, returns the error.
pub(super) fn run(
    arguments: &Arguments,
    error: anyhow::Error,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let mut counting = Counting::begin(Path::new(HOST), arguments.watch.wanted())?;
    if counting.before.is_empty() {
        return Err(error);
    }
    tracing::warn!("{error:#}");
    tracing::warn!(
        "KVM's own statistics are shown instead: exits by few reasons, and no handling times; --by, --sort, --top, \
         --threshold and --self-cost have no effect"
    );
    let processes = counting.before.iter().filter_map(|vm| u32::try_from(vm.pid).ok());
    let asked = (!arguments.watch.wanted().is_empty()).then(|| processes.collect());
    let watched = Watched::of(&Watch { processes: asked, ..Watch::default() }, &arguments.watch);
    let mut show = || -> anyhow::Result<ExitCode> {
        let counted = counting.read()?;
        let vms = counting.found.select(arguments.watch.wanted())?;
        let running = Running { found: &counting.found, vms: &vms, counted: Some(&counted) };
        print(&running, arguments.json)?;
        Ok(ExitCode::from(exit_code(&running, arguments.watch.wanted())))
    };
    if let Some(workload) = Workload::start(&arguments.command, stop)? {
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

/// The VMs of the tables, and their last reading.
struct Counting<'a> {
    root: &'a Path,
    wanted: &'a [String],
    found: Vms,
    source: StatisticsSource,
    before: Vec<VmStatistics>,
}

impl<'a> Counting<'a> {
    fn begin(root: &'a Path, wanted: &'a [String]) -> anyhow::Result<Self> {
        let found = Vms::discover(root)?;
        let mut source = source(root, &found.select(wanted)?);
        let before = source.read();
        Ok(Self { root, wanted, found, source, before })
    }

    /// Reads the counters and their changes since the last reading. Without requested VMs, follows those that
    /// start and end.
    fn read(&mut self) -> anyhow::Result<Vec<Counted>> {
        if self.wanted.is_empty() {
            self.found = Vms::discover(self.root)?;
            self.source.watch(&self.found.vms);
        }
        let now = self.source.read();
        let counted = since(now.clone(), &self.before);
        self.before = now;
        Ok(counted)
    }
}

fn print(running: &Running<'_>, json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if json {
        crate::json::write(&mut out, &report::vms::json(running))?;
    } else {
        let text = report::vms::terminal(running, console::width(), console::colour());
        out.write_all(console::shown(text).as_bytes())?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Makes a process with a VM whose exits are counted in debugfs.
    fn start(root: &Path, pid: u32) {
        let process = root.join(format!("proc/{pid}"));
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join(format!("task/{pid}"))).unwrap();
        symlink("anon_inode:kvm-vm", process.join("fd/3")).unwrap();
        symlink("/usr/bin/qemu", process.join("exe")).unwrap();
        let stat = format!("{pid} (qemu) S 1{} 1234 5 6\n", " 0".repeat(17));
        let command = format!("qemu\0-name\0vm{pid}\0");
        for (name, text) in [("stat", stat.as_str()), ("cmdline", &command), ("comm", "qemu\n")] {
            fs::write(process.join(name), text).unwrap();
        }
        fs::write(process.join(format!("task/{pid}/comm")), "qemu\n").unwrap();
        count(root, pid, 10);
    }

    fn count(root: &Path, pid: u32, exits: u64) {
        let directory = root.join(format!("sys/kernel/debug/kvm/{pid}-3"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("exits"), format!("{exits}\n")).unwrap();
    }

    #[test]
    fn vms_that_start_later_are_seen_and_those_that_ended_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::write(root.join("proc/stat"), "btime 1700000000\n").unwrap();
        start(root, 8);
        let mut counting = Counting::begin(root, &[]).unwrap();
        let mut read = || {
            let counted = counting.read().unwrap();
            assert_eq!(counting.found.vms.len(), counted.len());
            let grown = |one: &Counted| one.change.as_ref().map(|change| change.total["exits"]);
            counted.iter().map(|one| (one.statistics.pid, grown(one))).collect::<Vec<_>>()
        };
        // VM 7 sorts before the one counted so far.
        start(root, 7);
        count(root, 8, 15);
        assert_eq!(read(), [(7, None), (8, Some(5))]);
        fs::remove_dir_all(root.join("proc/8")).unwrap();
        count(root, 7, 12);
        assert_eq!(read(), [(7, Some(2))]);
    }
}
