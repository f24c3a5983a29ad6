//! The agent: the first process of a guest that was started for a study. It sets up the guest, and runs the host's
//! scripts.

mod channel;
mod jobs;
mod machine;
mod network;
mod settings;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};
use serde::{Deserialize, Serialize};

use crate::frames::{Decoder, Frame, Kind};
use crate::orphans::reaping_orphans;
use channel::{Channel, Sender};
use jobs::Jobs;

pub use channel::PORT_NAME;
pub use settings::{Network, Port, Settings};

/// The argument that makes this program the agent.
pub const AGENT_ARGUMENT: &str = "guest-agent";
/// Serial number of the disk with the root file system.
pub const ROOT_SERIAL: &str = "exitless-root";
/// Serial number of the data disk, which the agent formats.
pub const DATA_SERIAL: &str = "exitless-data";
/// The working directory of scripts; the data disk is mounted there, if the guest has one.
const WORK: &str = "/work";

/// The agent's first message, sent once the guest is set up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's version.
    pub version: String,
    /// The guest's address, if it has one.
    #[serde(default)]
    pub address: Option<std::net::IpAddr>,
    /// Facts about the guest: kernel, CPU model, clock source.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// Tests whether this process was started as the agent of a guest: as process 1, with the agent's argument.
pub fn is_agent() -> bool {
    // The kernel also passes init the parameters that it does not know itself, before this argument.
    std::process::id() == 1 && std::env::args().skip(1).any(|argument| argument == AGENT_ARGUMENT)
}

/// Serves the host until it asks for power-off or disconnects, then powers the guest off.
pub fn run() -> ! {
    reaping_orphans(serve_and_power_off)
}

fn serve_and_power_off() -> ! {
    if let Err(message) = serve() {
        // There may be no channel yet, but there is always the console.
        last_words(&message);
        // Leave the host time to read the frame that reports the failure.
        std::thread::sleep(Duration::from_secs(1));
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    // A machine without ACPI cannot be powered off; the host's QEMU exits on a reboot (`-no-reboot`).
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}

fn serve() -> Result<(), String> {
    machine::mount_kernel_file_systems()?;
    std::panic::set_hook(Box::new(|panic| last_words(&panic.to_string())));
    let settings = Settings::of_kernel()?;
    machine::load_modules(&settings.modules)?;
    let (mut channel, sender) = Channel::open(settings.port)?;
    let up = set_up(&settings).inspect_err(|message| {
        // If this fails too, the message is still in the kernel's log.
        let _ = sender.send(&Frame::new(Kind::Failed, 0, message.as_str()));
    })?;
    let hello = serde_json::to_vec(&up).unwrap_or_default();
    sender.send(&Frame::new(Kind::Hello, 0, hello)).map_err(|error| format!("greeting the host: {error}"))?;
    attend(&mut channel, &sender)
}

/// Writes the reason for the exit of process 1 to the kernel's log. When process 1 dies the kernel panics, and output
/// that is still in the console's terminal buffer is lost, but not what the kernel has logged.
fn last_words(words: &str) {
    let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") else {
        // Without `/dev` there is only standard error, and `eprintln!` would panic if writing to it failed.
        let _ = writeln!(io::stderr(), "exitless agent: {words}");
        return;
    };
    for line in words.lines() {
        // Each write is one record; `<2>` is the level KERN_CRIT.
        let _ = log.write_all(format!("<2>exitless agent: {line}\n").as_bytes());
    }
}

fn set_up(settings: &Settings) -> Result<Hello, String> {
    machine::make_root(settings)?;
    let address = network::set_up(settings.network.as_ref())?;
    Ok(Hello { version: env!("CARGO_PKG_VERSION").to_owned(), address, facts: machine::facts() })
}

/// Executes the host's requests until it asks for power-off or disconnects.
fn attend(channel: &mut Channel, sender: &Arc<Sender>) -> Result<(), String> {
    let mut decoder = Decoder::default();
    let mut jobs = Jobs::new(Arc::clone(sender));
    loop {
        while let Some(frame) = decoder.next_frame() {
            if frame.kind == Kind::PowerOff {
                return Ok(());
            }
            jobs.attend(&frame);
        }
        match channel.read() {
            Ok([]) => return Ok(()),
            Ok(bytes) => decoder.push(bytes),
            Err(error) => return Err(format!("reading what the host asks: {error}")),
        }
    }
}
