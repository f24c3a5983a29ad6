//! `exitless iocm`: virtio devices of many VMs, served by shared I/O workers.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use experiment::pause;
use iocm::config::Config;
use iocm::daemon::Daemon;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;

use super::quantity;
use crate::interrupt;

/// Subcommands of `iocm`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the devices that a file names to their VMs over vhost-user, until a signal.
    ///
    /// Exit status: 0 when it was ended by a signal; 2 for a wrong command line, or a file that makes no daemon; 125 when
    /// a device cannot be served.
    Serve(ServeArguments),
}

/// Arguments of `iocm serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The file that names workers and devices.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print what was counted as a line of JSON so often, and at the end: 1s, 200ms.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait)]
    every: Option<u64>,
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve(&arguments),
    }
}

fn serve(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let config = Config::read(&arguments.config)?;
    let stop = interrupt::flag()?;
    let daemon = Daemon::start(&config)?;
    let (devices, workers) = (daemon.posts().len(), daemon.pool().workers().len());
    eprintln!("Waiting for front-ends: devices {devices}, I/O workers {workers}");
    let Some(every) = arguments.every else {
        // Nothing here wakes up in between.
        Signals::new(TERM_SIGNALS).context("Could not wait for signals")?.wait();
        return Ok(ExitCode::SUCCESS);
    };
    let interval = Duration::from_nanos(every);
    let mut next = Instant::now() + interval;
    loop {
        let goes_on = pause(next, &stop);
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &daemon.figures())?;
        writeln!(out)?;
        out.flush()?;
        if !goes_on {
            return Ok(ExitCode::SUCCESS);
        }
        next += interval;
    }
}
