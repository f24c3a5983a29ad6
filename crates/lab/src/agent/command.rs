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
/// The time to wait for the end of the outputs after the command has ended: processes left in the background
/// may hold them open.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// The most bytes to send after the command's end, in case a process in the background prints without pause.
/// Far more than the pipes can still hold of the command's own output.
const MOST_LEFT: usize = 1 << 20;

enum Event {
    /// A frame of output, and its number of bytes.
    Printed(Frame, usize),
    Ended(io::Result<ExitStatus>),
}

pub(super) fn run(order: &Order, channel: &mut Channel) -> Result<Ending, String> {
    let (program, arguments) = order.command.split_first().ok_or("no command was given")?;
    let mut command = inside(program, order);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // A shell's exit statuses for a program that is not found, and for one that cannot be executed.
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let message = format!("{program}: {error}\n");
            channel.send(&Frame::Stderr(message.into_bytes())).map_err(|error| error.to_string())?;
            return Ok(Ending::Status(status));
        }
    };
    pass_on(child, channel).map_err(|error| format!("running {program}: {error}"))
}

/// Sends what the process prints until it has ended, and for a short time what it left in the background.
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
    let (mut patience, mut left) = (LEFTOVERS, MOST_LEFT);
    loop {
        let asked = Instant::now();
        let event = match end {
            None => events.recv().ok(),
            Some(_) if left == 0 => None,
            Some(_) => events.recv_timeout(patience).ok(),
        };
        if end.is_some() {
            // Count only the time spent waiting for output, not that in which the channel is slow.
            patience = patience.saturating_sub(asked.elapsed());
        }
        match (event, end) {
            (Some(Event::Printed(frame, bytes)), _) => {
                channel.send(&frame)?;
                if end.is_some() {
                    left = left.saturating_sub(bytes);
                }
            }
            (Some(Event::Ended(status)), _) => end = Some(status?),
            (None, Some(status)) => return Ok(ending(status)),
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
            if sender.send(Event::Printed(wrap(buffer[..count].to_vec()), count)).is_err() {
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
    use std::io::Write;

    use super::*;
    use crate::frames::Decoder;

    fn passed_on(script: &str, channel: &mut Channel) -> Ending {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).stdin(Stdio::null());
        let child = sh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        pass_on(child, channel).unwrap()
    }

    #[test]
    fn a_slow_channel_does_not_cut_the_output() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
        // Fill the pipe, so that the first frame blocks until it is read.
        writer.write_all(&vec![0; 64 << 10]).unwrap();
        let sent = thread::spawn(move || {
            thread::sleep(LEFTOVERS + Duration::from_millis(500));
            let mut sent = Vec::new();
            reader.read_to_end(&mut sent).unwrap();
            sent
        });
        let mut channel = Channel::Virtio(writer);
        // Printed after the command's end, within the time that the agent waits.
        let script = "(sleep 0.1; head -c 60000 /dev/zero) & exit 0";
        assert_eq!(passed_on(script, &mut channel), Ending::Status(0));
        drop(channel);
        let mut decoder = Decoder::default();
        decoder.push(&sent.join().unwrap()[64 << 10..]);
        let mut printed = 0;
        while let Some(Frame::Stdout(bytes)) = decoder.next() {
            printed += bytes.len();
        }
        assert_eq!(printed, 60_000);
    }

    #[test]
    fn output_without_an_end_is_not_waited_for() {
        let mut channel = Channel::Virtio(tempfile::tempfile().unwrap());
        assert_eq!(passed_on("yes & exit 3", &mut channel), Ending::Status(3));
    }

    #[test]
    fn a_command_has_ended_though_something_it_started_goes_on() {
        let begun = Instant::now();
        let mut channel = Channel::Virtio(tempfile::tempfile().unwrap());
        assert_eq!(passed_on("echo said; sleep 30 & exit 3", &mut channel), Ending::Status(3));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let Channel::Virtio(mut sent) = channel else { panic!("another channel") };
        io::Seek::rewind(&mut sent).unwrap();
        assert_eq!(Frame::read(&mut sent).unwrap(), Frame::Stdout(b"said\n".to_vec()));
    }
}
