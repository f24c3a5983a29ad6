//! The agent: the first process of a guest that was started for a study. It sets the guest up, and runs what the host
//! asks for.

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
use channel::{Channel, Sender};
use jobs::Jobs;

pub use channel::PORT_NAME;
pub use settings::{Network, Port, Settings};

/// The argument by which this program knows that it is the agent.
pub const AGENT_ARGUMENT: &str = "guest-agent";
/// Serial number of the disk with the root, by which it is told from others.
pub const ROOT_SERIAL: &str = "exitless-root";
/// The folder in which scripts start: on the disk of its own, if the guest has one.
const WORK: &str = "/work";

/// The first message of a guest that is up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// This program's version in the guest.
    pub version: String,
    /// Its address, if it got one.
    #[serde(default)]
    pub address: Option<std::net::IpAddr>,
    /// Lines about it: kernel, CPU model, clock source.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// Tests whether this process was started as the agent of a guest: as process 1, with the agent's argument.
pub fn is_agent() -> bool {
    // The kernel hands arguments of its own that it does not know to process 1 as well, before this one.
    std::process::id() == 1 && std::env::args().skip(1).any(|argument| argument == AGENT_ARGUMENT)
}

/// Serves the host until it asks to power off or is gone, and powers off.
pub fn run() -> ! {
    if let Err(message) = serve() {
        // The console is the last place to say something when there is no channel.
        last_words(&message);
        // The frame that says so too may still be on its way.
        std::thread::sleep(Duration::from_secs(1));
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    // A machine without ACPI cannot be powered off; QEMU is told to take a restart for the end.
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
        // Nothing can be done where this is not heard either; the console has it too.
        let _ = sender.send(&Frame::new(Kind::Failed, 0, message.as_str()));
    })?;
    let hello = serde_json::to_vec(&up).unwrap_or_default();
    sender.send(&Frame::new(Kind::Hello, 0, hello)).map_err(|error| format!("greeting the host: {error}"))?;
    attend(&mut channel, &sender)
}

/// Says in the kernel's log why process 1 ends: its death is the kernel's panic, and what was written to the console's
/// terminal but did not leave it yet is lost then. What the kernel logs is not.
fn last_words(words: &str) {
    let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") else {
        // Without `/dev` there is the console alone, and it may not take them: `eprintln!` would panic then.
        let _ = writeln!(io::stderr(), "exitless agent: {words}");
        return;
    };
    for line in words.lines() {
        // A record for each write; its level is "critical".
        let _ = log.write_all(format!("<2>exitless agent: {line}\n").as_bytes());
    }
}

fn set_up(settings: &Settings) -> Result<Hello, String> {
    machine::make_root(settings)?;
    let address = network::set_up(settings.network.as_ref())?;
    Ok(Hello { version: env!("CARGO_PKG_VERSION").to_owned(), address, facts: machine::facts() })
}

/// Does what the host asks until it asks to power off, or is gone.
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
