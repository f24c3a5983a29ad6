//! The agent: process 1 of an emulated host. It sets up the host, runs the command and sends the results to
//! this machine.

mod channel;
mod command;
mod debug_port;
mod files;
mod machine;
mod random;
mod shell;
mod xen;

use std::io;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};

use crate::frames::{Ending, Frame, Moment};
use crate::job::{AGENT_ARGUMENT, DEVICE_GUEST, DEVICE_GUEST_OFFERED, Order, Root, SETUP_PATH, Setup};
use crate::switch_cost;
use channel::Channel;

/// The time in which the host should end the emulator; afterwards the agent powers off.
const HOST_WAIT: Duration = Duration::from_secs(30);

/// Tests whether this process was started as the agent: process 1 with the agent's argument.
pub fn is_agent() -> bool {
    std::process::id() == 1 && std::env::args().nth(1).as_deref() == Some(AGENT_ARGUMENT)
}

/// Sets up the machine and carries out the order. Then the host should end the emulator; if it does not,
/// powers off.
pub fn run() -> ! {
    guest::reaping_orphans(serve_and_power_off)
}

fn serve_and_power_off() -> ! {
    match serve() {
        // The last frame may still be in transit; the host ends the emulator once it has arrived.
        Ok(()) => std::thread::sleep(HOST_WAIT),
        // Without a channel, only the console can show a message.
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
    let setup = std::fs::read(SETUP_PATH).map_err(|error| format!("reading {SETUP_PATH}: {error}"))?;
    let setup: Setup =
        serde_json::from_slice(&setup).map_err(|error| format!("reading {SETUP_PATH}: {error}"))?;
    load(&setup.channel_modules, &setup)?;
    let mut channel = Channel::open().map_err(|error| format!("opening the channel for results: {error}"))?;
    let frame = match carry_out(&setup, &mut channel) {
        Ok(ending) => Frame::Ended(ending),
        Err(message) => Frame::Failure(message),
    };
    channel.send(&frame).map_err(|error| format!("sending the result: {error}"))
}

fn load(modules: &[String], setup: &Setup) -> Result<(), String> {
    modules.iter().try_for_each(|module| machine::load_module(module, &setup.module_parameters))
}

fn carry_out(setup: &Setup, channel: &mut Channel) -> Result<Ending, String> {
    reached(channel, "init");
    load(&setup.modules, setup)?;
    reached(channel, "modules");
    let of_xen = setup.xen && setup.root == Root::Disk;
    // Xen's daemons are on the disk, and a snapshot of a Xen host includes changes to the disk. Other hosts
    // mount the disk after the snapshot, so that each run starts with the disk as built.
    if of_xen {
        prepare_root(setup)?;
    } else {
        machine::wait_for_disks(setup)?;
    }
    let order = receive_order(channel)?;
    machine::set_clock(order.clock)?;
    random::seed(order.seed)?;
    if order.switch_cycles != 0 {
        switch_cost::set(order.switch_cycles).map_err(|error| error.to_string())?;
    }
    if !of_xen {
        prepare_root(setup)?;
    }
    files::place(&order.put, channel)?;
    reached(channel, "root");
    let ending = match order.terminal {
        Some(size) => shell::run(&order, size, channel)?,
        None => command::run(&order, channel)?,
    };
    reached(channel, "command");
    files::send(&order.get, channel)?;
    reached(channel, "files");
    Ok(ending)
}

fn receive_order(channel: &mut Channel) -> Result<Order, String> {
    reached(channel, "waiting");
    channel.stop_to_be_saved().map_err(|error| format!("stopping to be saved: {error}"))?;
    let order = match channel.receive() {
        Ok(Frame::Order(order)) => *order,
        Ok(other) => return Err(format!("expected an order, found {other:?}")),
        Err(error) => return Err(format!("receiving the order: {error}")),
    };
    reached(channel, "order");
    Ok(order)
}

/// Makes the command's root file system and enters it.
fn prepare_root(setup: &Setup) -> Result<(), String> {
    if setup.xen {
        xen::mount_xenfs()?;
    }
    let root = machine::make_root(setup.root)?;
    if setup.own_modules {
        machine::offer_modules(&root)?;
    }
    if setup.devices {
        machine::offer(DEVICE_GUEST, DEVICE_GUEST_OFFERED, &root)?;
    }
    if setup.root == Root::Disk {
        machine::make_static_nodes(&root)?;
    }
    if setup.guest_image {
        machine::offer_guest_image(&root)?;
    }
    machine::change_root(&root)?;
    if setup.xen && setup.root == Root::Disk {
        xen::start_daemons()?;
    }
    Ok(())
}

fn reached(channel: &mut Channel, what: &str) {
    let uptime = std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_whitespace().next().and_then(|first| first.parse().ok()))
        .unwrap_or(0.0);
    // Ignore errors: a lost moment costs only a line of the timings.
    let _: io::Result<()> = channel.send(&Frame::Moment(Moment { reached: what.to_owned(), uptime }));
}
