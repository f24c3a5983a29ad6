//! Running the command.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;

use super::channel::Channel;
use crate::frames::{Ending, Frame};
use crate::job::{HOME, Order};

const PIECE: usize = 32 << 10;

pub(super) fn run(order: &Order, channel: &mut Channel) -> Result<Ending, String> {
    let (program, arguments) = order.command.split_first().ok_or("no command was given")?;
    let mut command = inside(program, order);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // The statuses that shells give for a program that cannot be found or run.
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let message = format!("{program}: {error}\n");
            channel.send(&Frame::Stderr(message.into_bytes())).map_err(|error| error.to_string())?;
            return Ok(Ending::Status(status));
        }
    };
    let (sender, frames) = mpsc::sync_channel(64);
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, Frame::Stdout, sender.clone())),
        child.stderr.take().map(|pipe| forward(pipe, Frame::Stderr, sender)),
    ];
    for frame in frames {
        channel.send(&frame).map_err(|error| format!("sending output: {error}"))?;
    }
    drop(readers);
    child.wait().map(ending).map_err(|error| format!("waiting for {program}: {error}"))
}

fn forward(
    mut pipe: impl Read + Send + 'static,
    wrap: fn(Vec<u8>) -> Frame,
    sender: mpsc::SyncSender<Frame>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send(wrap(buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    })
}

pub(super) fn inside(program: &str, order: &Order) -> Command {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", HOME)
        .env("TERM", &order.terminal_kind)
        .env("LANG", "C.UTF-8");
    command.current_dir(HOME);
    command
}

pub(super) fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Status(code),
        (None, signal) => Ending::Signal(signal.unwrap_or(0)),
    }
}
