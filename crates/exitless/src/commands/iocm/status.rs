//! `exitless iocm status`: I/O cores with placement, load, and the monitor's last decision.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use exits::with_causes;
use iocm::config::SOCKET;
use iocm::control::client::{Client, ClientError};
use iocm::control::rates::Rates;
use iocm_monitor::{NoState, STATE, State};
use report::json::Document;
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
    let alive = state.as_ref().is_ok_and(|state| state.is_alive(Path::new("/")));
    if let Some(error) = state.as_ref().err().filter(|error| !is_missing(error)) {
        tracing::warn!("{}", with_causes(error));
    }
    let rates = match rates {
        Ok(rates) => Some(rates),
        Err(error) if !alive => return Err(error.into()),
        // A monitor of the kernel's vhost workers has no daemon.
        Err(error) if is_without_daemon(&error) => None,
        Err(error) => {
            tracing::warn!("{}", with_causes(&error));
            None
        }
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let monitor = state.ok().map(|state| json!({ "runs": alive, "state": state }));
        let document = Document::new(json!({ "daemon": rates, "monitor": monitor }));
        crate::json::write_pretty(&mut out, &document)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = console::width();
    if let Some(rates) = &rates {
        writeln!(out, "{}", console::shown(report::iocm::rates::terminal(rates, width, console::colour())))?;
    }
    match &state {
        Ok(state) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
            let text = report::iocm::monitor::terminal(state, alive, now, width);
            out.write_all(console::shown(text).as_bytes())?;
        }
        Err(error) if is_missing(error) => {
            writeln!(out, "No monitor runs; start one with `exitless iocm monitor`.")?;
        }
        // The warning says why nothing is known of one.
        Err(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Tests whether there is no state file.
fn is_missing(error: &NoState) -> bool {
    matches!(error, NoState::Read { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Tests whether no daemon listens, as opposed to one that gives no answer to this user.
fn is_without_daemon(error: &ClientError) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    matches!(error, ClientError::Unreachable { source, .. } if kinds.contains(&source.kind()))
}

fn rates(socket: &Path) -> Result<Rates, ClientError> {
    let mut client = Client::connect(socket)?;
    client.watch("", LOOK, Some(2))?;
    let before = client.sample()?;
    Ok(Rates::between(&before, &client.sample()?))
}
