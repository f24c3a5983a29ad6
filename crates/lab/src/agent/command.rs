//! Running the command.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::channel::Channel;
use crate::frames::{Ending, Frame};
use crate::job::{HOME, Order};

const PIECE: usize = 32 << 10;
/// The time for which outputs are waited for after the command has ended: what it left in the background may hold them open.
const LEFTOVERS: Duration = Duration::from_secs(1);

enum Event {
    Printed(Frame),
    Ended(io::Result<ExitStatus>),
}

pub(super) fn run(order: &Order, channel: &mut Channel) -> Result<Ending, String> {
    let (program, arguments) = order.command.split_first().ok_or("no command was given")?;
    let mut command = inside(program, order);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // The statuses that shells give for a program that cannot be found or run.
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let message = format!("{program}: {error}\n");
            channel.send(&Frame::Stderr(message.into_bytes())).map_err(|error| error.to_string())?;
            return Ok(Ending::Status(status));
        }
    };
    pass_on(child, channel).map_err(|error| format!("running {program}: {error}"))
}

/// Sends what the process prints until it has ended. Its outputs may be open for longer, by what it left in the background.
fn pass_on(mut child: Child, channel: &mut Channel) -> io::Result<Ending> {
    let (sender, events) = mpsc::sync_channel(64);
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, Frame::Stdout, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, Frame::Stderr, sender.clone());
    }
    thread::spawn(move || sender.send(Event::Ended(child.wait())));
    let mut end = None;
    loop {
        let event = match &end {
            None => events.recv().ok(),
            Some((_, at)) => LEFTOVERS
                .checked_sub(Instant::elapsed(at))
                .and_then(|patience| events.recv_timeout(patience).ok()),
        };
        match (event, end.take()) {
            (Some(Event::Printed(frame)), ended) => {
                channel.send(&frame)?;
                end = ended;
            }
            (Some(Event::Ended(status)), _) => end = Some((status?, Instant::now())),
            (None, Some((status, _))) => return Ok(ending(status)),
            (None, None) => return Err(io::Error::other("its end was missed")),
        }
    }
}

fn forward(
    mut pipe: impl Read + Send + 'static,
    wrap: fn(Vec<u8>) -> Frame,
    sender: mpsc::SyncSender<Event>,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send(Event::Printed(wrap(buffer[..count].to_vec()))).is_err() {
                break;
            }
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_ended_though_something_it_started_goes_on() {
        let begun = Instant::now();
        let mut channel = Channel::Virtio(tempfile::tempfile().unwrap());
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo said; sleep 30 & exit 3"]).stdin(Stdio::null());
        let child = sh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(pass_on(child, &mut channel).unwrap(), Ending::Status(3));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let Channel::Virtio(mut sent) = channel else { panic!("another channel") };
        io::Seek::rewind(&mut sent).unwrap();
        assert_eq!(Frame::read(&mut sent).unwrap(), Frame::Stdout(b"said\n".to_vec()));
    }
}
