//! `exitless iocm`: virtio devices of many VMs, served by shared I/O workers.

mod ask;
pub(crate) mod device;
mod exits;
mod guard;
mod monitor;
mod report;
mod settings;
mod simulate;
mod status;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use iocm::config::Config;
use iocm::inherited::Inheritance;
use iocm::running::{Ready, Running};
use live::pause;
use signal_hook::iterator::Signals;

use super::quantity;
use crate::service_manager::ServiceManager;
use crate::{background_log, console, interrupt};

/// Subcommands of `iocm`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the devices in a configuration file to their VMs over vhost-user, until a signal.
    ///
    /// A disk that cannot be used, for instance because it begins like an image of a format other than raw, is left out,
    /// and the other devices are served: see the log, or the attribute `refused`.
    ///
    /// Exit status: 0 when it was ended by a signal, or --check found nothing wrong; 2 for a wrong command line, or an
    /// invalid configuration; 125 when none of the devices can be used, or a network device or a socket cannot.
    Serve(ServeArguments),
    /// Serve one device to one front-end, by QEMU's conventions for vhost-user back-end programs.
    ///
    /// It ends when the front-end disconnects, and then completes the requests in flight. Management programs
    /// find it by the files in /usr/share/qemu/vhost-user.
    ///
    /// Exit status: 0 when the front-end has disconnected, or a signal ended it; 1 when the front-end broke the
    /// protocol, or another program writes the disk; 2 for a wrong command line, or a file descriptor that is no
    /// vhost-user socket; 125 when the device cannot be served.
    Device(device::DeviceArguments),
    /// List a directory of a running daemon's control tree.
    ///
    /// Exit status: 0; 1 when the daemon refuses; 2 for a wrong command line, or a path that does not exist
    /// or does not accept the value; 125 when no daemon answers.
    Ls(ask::ListArguments),
    /// Read attributes of a running daemon.
    ///
    /// Exit status: as for `iocm ls`.
    Get(ask::GetArguments),
    /// Write an attribute of a running daemon.
    ///
    /// Exit status: as for `iocm ls`.
    Set(ask::SetArguments),
    /// Create an I/O worker or a device in a running daemon.
    ///
    /// Exit status: as for `iocm ls`.
    Create(ask::CreateArguments),
    /// Remove an I/O worker or a device from a running daemon, after its requests in flight have completed.
    ///
    /// Exit status: as for `iocm ls`.
    Remove(ask::RemoveArguments),
    /// Move a queue, or all queues of a device, to another I/O worker while guests use them.
    ///
    /// Exit status: as for `iocm ls`.
    Move(ask::MoveArguments),
    /// Show the rates of I/O workers, devices and queues repeatedly.
    ///
    /// Of each queue: the time in which its requests were served, polled for, or waited for by naps and by kicks, and the
    /// kicks that were asked for and came.
    ///
    /// Exit status: as for `iocm ls`; 125 also when the daemon ends.
    #[command(visible_alias = "top")]
    Watch(ask::WatchArguments),
    /// Let I/O cores follow the load: add, remove and balance I/O workers, or place the kernel's vhost
    /// threads.
    ///
    /// It does nothing, and says so, while the daemon or all VMs are gone, or too few CPUs are allowed.
    ///
    /// Exit status: 0 when it was ended by a signal or --for; 2 for a wrong command line or invalid settings;
    /// 125 when the journal of its changes, or the trace, cannot be written.
    Monitor(monitor::MonitorArguments),
    /// Show I/O cores: placement, load, and the monitor's last decision with its reason.
    ///
    /// Exit status: 0; 125 when neither a daemon nor a monitor answers.
    Status(status::StatusArguments),
    /// Replay a load against the monitor's policy, on a machine of any size, and compare it with the best
    /// constant number of I/O cores, and with a thread for each device.
    ///
    /// Exit status: 0; 2 for a wrong command line, or a file that is not a trace; 4 when the trace is damaged
    /// and its undamaged part was replayed.
    Simulate(simulate::SimulateArguments),
    /// Make a page with charts of the results of the bench `dynamic_load`.
    ///
    /// Exit status: 0; 1 when the monitor missed a target in a phase; 2 for a wrong command line, or a file
    /// that is not an evaluation; 125 when the page cannot be written.
    Report(report::ReportArguments),
    #[command(hide = true)]
    Guard(guard::GuardArguments),
}

/// Arguments of `iocm serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The configuration file with workers and devices.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print the counters as a line of JSON at this interval, and at the end: 1s, 200ms; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait)]
    every: Option<u64>,
    /// Only check the file, and that the users and groups that it names exist. This opens no disk, socket or interface,
    /// so it works while a daemon serves the same file.
    #[arg(long, conflicts_with = "every")]
    check: bool,
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve(&arguments),
        Command::Device(arguments) => device::run(&arguments),
        Command::Ls(arguments) => ask::list(&arguments),
        Command::Get(arguments) => ask::get(&arguments),
        Command::Set(arguments) => ask::set(&arguments),
        Command::Create(arguments) => ask::create(&arguments),
        Command::Remove(arguments) => ask::remove(&arguments),
        Command::Move(arguments) => ask::move_to(&arguments),
        Command::Watch(arguments) => ask::watch(&arguments),
        Command::Monitor(arguments) => monitor::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Guard(arguments) => guard::run(&arguments),
    }
}

fn serve(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    if arguments.check {
        Ready::check(&Config::read(&arguments.config)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is opened: these descriptor numbers could be reused.
    let inheritance = Inheritance::from_environment()?;
    let config = Config::read(&arguments.config)?;
    let stop = interrupt::flag()?;
    let mut manager = ServiceManager::connect();
    let ready = Ready::open_with(&config, inheritance.with_store(manager.store()))?;
    // The guard keeps the privileges that the daemon drops next.
    let guard = ready.mounted().map(guard::Guard::start).transpose()?;
    let outcome = ready.run().map_err(anyhow::Error::from).and_then(|running| {
        background_log::begin()?;
        watch(arguments, &running, &mut manager, &stop)
    });
    background_log::flush();
    if let Some(guard) = guard {
        guard.end();
    }
    outcome
}

fn watch(
    arguments: &ServeArguments,
    running: &Running,
    manager: &mut ServiceManager,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let daemon = running.daemon();
    let (devices, workers) = (daemon.endpoints().len(), daemon.pool().workers().len());
    console::say(format_args!("Waiting for front-ends: devices {devices}, I/O workers {workers}"));
    manager.ready();
    if arguments.every.is_none() && manager.next().is_none() {
        // Nothing is due until a signal comes. If one came before `Signals::new`, it has set `stop`.
        let mut signals = Signals::new(interrupt::signals()).context("Could not wait for signals")?;
        if !stop.load(Ordering::Relaxed) {
            signals.wait();
        }
        manager.stopping();
        return Ok(ExitCode::SUCCESS);
    }
    let mut figures = arguments.every.map(|every| Every::new(Duration::from_nanos(every)));
    let mut printer = figures.as_ref().map(|_| Printer::start()).transpose()?;
    loop {
        let next = figures.as_ref().map(|every| every.next).into_iter().chain(manager.next()).min();
        let goes_on = next.is_none_or(|next| pause(next, stop));
        manager.tell(|within| daemon.pool().answers(within));
        if figures.as_mut().is_some_and(|every| every.is_due() || !goes_on) {
            let line = crate::json::line(&daemon.figures())?;
            if let Some(Err(error)) = printer.as_ref().map(|printer| printer.print(line)) {
                tracing::warn!("No more figures are printed: {error}");
                printer = None;
            }
        }
        if !goes_on {
            manager.stopping();
            if let Some(printer) = printer.take()
                && let Err(error) = printer.end()
            {
                tracing::warn!("The last figures were not printed: {error}");
            }
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The times at which figures are due.
struct Every {
    interval: Duration,
    next: Instant,
}

impl Every {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval }
    }

    /// Tests whether figures are due now, and if so sets the next time.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            // Skip times that have passed.
            let next = self.next + self.interval;
            self.next = if next > now { next } else { now + self.interval };
        }
        due
    }
}

/// The thread that prints: devices are served, and cores follow the load, whether or not somebody reads the lines.
struct Printer {
    lines: SyncSender<Vec<u8>>,
    /// The outcome of printing, once it has ended.
    ended: Receiver<std::io::Result<()>>,
}

/// The number of lines that wait for a slow reader. Further lines are dropped.
const LINES_WAITING: usize = 16;
/// The longest wait for a slow reader at the end.
const PRINTER_PATIENCE: Duration = Duration::from_secs(1);

impl Printer {
    fn start() -> anyhow::Result<Self> {
        Self::to(std::io::stdout())
    }

    fn to(mut out: impl Write + Send + 'static) -> anyhow::Result<Self> {
        let (lines, to_print) = sync_channel::<Vec<u8>>(LINES_WAITING);
        let (ends, ended) = channel();
        let print = move |line: Vec<u8>| out.write_all(&line).and_then(|()| out.flush());
        let body = move || {
            let outcome = to_print.iter().try_for_each(print);
            let _ = ends.send(outcome);
        };
        let thread = std::thread::Builder::new().name("printer".to_owned());
        thread.spawn(body).context("Could not start a thread that prints")?;
        Ok(Self { lines, ended })
    }

    /// Has lines printed, unless [`LINES_WAITING`] wait already for a slow reader.
    ///
    /// # Errors
    ///
    /// The reason why nothing can be printed any more.
    fn print(&self, lines: Vec<u8>) -> std::io::Result<()> {
        match self.lines.try_send(lines) {
            Err(TrySendError::Disconnected(_)) => {
                self.ended.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()))
            }
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
        }
    }

    /// Waits until all lines are printed, or for [`PRINTER_PATIENCE`].
    ///
    /// # Errors
    ///
    /// The reason why lines could not be printed; a reader that is slow is none.
    fn end(self) -> std::io::Result<()> {
        drop(self.lines);
        self.ended.recv_timeout(PRINTER_PATIENCE).unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_that_cannot_be_printed_are_an_error() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let printer = Printer::to(full).unwrap();
        printer.print(b"last\n".to_vec()).unwrap();
        assert_eq!(printer.end().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        let printer = Printer::to(std::io::sink()).unwrap();
        printer.print(b"last\n".to_vec()).unwrap();
        printer.end().unwrap();
    }

    #[test]
    fn figures_that_were_missed_are_left_out() {
        let interval = Duration::from_secs(10);
        for (late, next) in [(3, 7), (10, 10), (95, 10)] {
            let now = Instant::now();
            let mut every = Every { interval, next: now - Duration::from_secs(late) };
            assert!(every.is_due() && !every.is_due(), "{late}");
            let until = (every.next - now).as_secs_f64();
            assert!((until - f64::from(next)).abs() < 1.0, "{late}: {until}");
        }
    }
}
