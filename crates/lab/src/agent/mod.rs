//! The agent: the first process of an emulated host. It sets the host up, runs the command and sends the results out.

mod channel;
mod command;
mod debug_port;
mod files;
mod machine;
mod xen;

use std::io;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};

use crate::frames::{Ending, Frame, Moment};
use crate::job::{AGENT_ARGUMENT, JOB_PATH, Job, Root};
use channel::Channel;

/// How long the host is given to end the emulator before the emulated host does it.
const HOST_WAIT: Duration = Duration::from_secs(30);

/// Whether this process was started as the agent: as process 1, with the agent's argument.
pub fn is_agent() -> bool {
    std::process::id() == 1 && std::env::args().nth(1).as_deref() == Some(AGENT_ARGUMENT)
}

/// Runs the job of the initial RAM disk, waits for the host to end the emulator, and else powers off.
pub fn run() -> ! {
    match serve() {
        // The last frame may still be on its way. The host ends the emulator when it has it.
        Ok(()) => std::thread::sleep(HOST_WAIT),
        // The console is the last place to say something when there is no channel.
        Err(message) => eprintln!("exitless agent: {message}"),
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

fn serve() -> Result<(), String> {
    machine::mount_kernel_file_systems()
        .map_err(|error| format!("mounting /proc, /sys and /dev: {error}"))?;
    let mut channel = Channel::open().map_err(|error| format!("opening the channel for results: {error}"))?;
    let frame = match carry_out(&mut channel) {
        Ok(ending) => Frame::Ended(ending),
        Err(message) => Frame::Failure(message),
    };
    channel.send(&frame).map_err(|error| format!("sending the result: {error}"))
}

fn carry_out(channel: &mut Channel) -> Result<Ending, String> {
    reached(channel, "init");
    let job = std::fs::read(JOB_PATH).map_err(|error| format!("reading {JOB_PATH}: {error}"))?;
    let job: Job = serde_json::from_slice(&job).map_err(|error| format!("reading {JOB_PATH}: {error}"))?;
    for module in &job.modules {
        machine::load_module(module, &job.module_parameters)?;
    }
    reached(channel, "modules");
    if job.xen {
        xen::mount_xenfs()?;
    }
    let root = machine::make_root(job.root)?;
    if job.guest_image {
        machine::offer_guest_image(&root)?;
    }
    files::place(&root, &job.put)?;
    machine::change_root(&root)?;
    if job.xen && job.root == Root::Disk {
        xen::start_daemons()?;
    }
    reached(channel, "root");
    let ending = match job.terminal {
        Some(size) => command::shell(&job, size)?,
        None => command::run(&job, channel)?,
    };
    reached(channel, "command");
    files::send(&job.get, channel)?;
    reached(channel, "files");
    Ok(ending)
}

fn reached(channel: &mut Channel, what: &str) {
    let uptime = std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_whitespace().next().and_then(|first| first.parse().ok()))
        .unwrap_or(0.0);
    // A lost moment costs a line of the timings and nothing else.
    let _: io::Result<()> = channel.send(&Frame::Moment(Moment { reached: what.to_owned(), uptime }));
}
