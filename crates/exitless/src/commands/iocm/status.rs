//! `exitless iocm status`: I/O cores with placement, load, and the monitor's last decision.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use iocm::config::SOCKET;
use iocm::control::client::{Client, ClientError};
use iocm::control::rates::Rates;
use iocm_monitor::{STATE, State};
use serde_json::json;

use crate::console;

/// The time over which the load is measured.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `iocm status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The control socket of the daemon.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// The monitor's state file.
    #[arg(long, value_name = "FILE", default_value = STATE)]
    state: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the I/O cores.
pub(super) fn run(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    let rates = rates(&arguments.socket);
    // Measuring the rates takes time; read the monitor's state afterwards, so that it is current.
    let state = State::read(&arguments.state);
    let rates = match rates {
        Ok(rates) => Some(rates),
        // A monitor of the kernel's vhost workers has no daemon.
        Err(_) if state.is_ok() => None,
        Err(error) => return Err(error.into()),
    };
    let alive = state.as_ref().is_ok_and(|state| state.is_alive(Path::new("/")));
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let monitor = state.ok().map(|state| json!({ "runs": alive, "state": state }));
        serde_json::to_writer_pretty(&mut out, &json!({ "format": 1, "daemon": rates, "monitor": monitor }))?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = console::width();
    if let Some(rates) = &rates {
        writeln!(out, "{}", report::iocm::rates::terminal(rates, width, console::colour()))?;
    }
    match &state {
        Ok(state) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
            out.write_all(report::iocm::monitor::terminal(state, alive, now, width).as_bytes())?;
        }
        Err(_) => writeln!(out, "No monitor runs; start one with `exitless iocm monitor`.")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn rates(socket: &Path) -> Result<Rates, ClientError> {
    let mut client = Client::connect(socket)?;
    client.watch("", LOOK, Some(2))?;
    let before = client.sample()?;
    Ok(Rates::between(&before, &client.sample()?))
}
