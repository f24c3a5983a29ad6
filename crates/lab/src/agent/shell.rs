//! A shell that is connected to the user's terminal through the second serial line.
//!
//! The shell runs on a pseudo-terminal, because a serial line has no window size. Input and changes of the
//! window's size arrive in frames; the shell's output is sent without framing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Winsize, tcdrain, tcgetattr, tcsetattr, tcsetwinsize};

use super::channel::Channel;
use super::command::{ending, inside};
use crate::frames::{Decoder, Ending, Frame};
use crate::job::{Order, TerminalSize};
use crate::terminal::{pass, pseudo_terminal};

const SERIAL: &str = "/dev/ttyS1";
/// The highest speed that the serial lines of both emulators and the kernel's driver support.
const SPEED: u32 = 115_200;
const PIECE: usize = 4096;
/// The time limit for the rest of the shell's output: a program left running may write forever.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) fn run(order: &Order, size: TerminalSize, channel: &mut Channel) -> Result<Ending, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let line = open_terminal(SERIAL.as_ref()).and_then(|line| set_raw(&line).map(|()| line));
    let line = line.map_err(failed("opening the terminal /dev/ttyS1"))?;
    let (master, path) = pseudo_terminal().map_err(failed("making a pseudo-terminal"))?;
    let master = File::from(master);
    set_size(&master, size).map_err(failed("setting the terminal's size"))?;
    let slave = open_terminal(&path).map_err(failed("opening a pseudo-terminal"))?;

    let copy = |file: &File| file.try_clone().map_err(failed("sharing the terminal"));
    let (typed, keys, output, screen) = (copy(&line)?, copy(&master)?, copy(&master)?, copy(&line)?);
    thread::spawn(move || take_input(typed, keys));
    let all_written = pass(output, screen);
    // `setsid -c` makes this the controlling terminal, which Ctrl-C and job control need.
    let mut command = inside("setsid", order);
    command.args(["-c", "sh", "-l"]);
    command.stdin(Stdio::from(copy(&slave)?)).stdout(Stdio::from(copy(&slave)?)).stderr(Stdio::from(slave));
    super::reached(channel, "terminal");
    let status = command.status().map_err(failed("starting a shell"))?;
    // Closes the command's side of the pseudo-terminal, so that reading the other side ends.
    drop(command);
    let _ = all_written.recv_timeout(LAST_WORDS);
    tcdrain(&line).map_err(|error| format!("waiting for the terminal: {error}"))?;
    Ok(ending(status))
}

/// Opens a terminal without making it this process's controlling terminal.
fn open_terminal(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
}

fn set_raw(line: &File) -> io::Result<()> {
    let mut settings = tcgetattr(line)?;
    settings.make_raw();
    settings.set_speed(SPEED)?;
    Ok(tcsetattr(line, OptionalActions::Now, &settings)?)
}

fn set_size(terminal: &File, size: TerminalSize) -> io::Result<()> {
    let TerminalSize { rows, columns } = size;
    Ok(tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
}

fn take_input(mut line: File, mut master: File) {
    let mut decoder = Decoder::default();
    let mut piece = [0; PIECE];
    while let Ok(count @ 1..) = line.read(&mut piece) {
        decoder.push(&piece[..count]);
        while let Some(frame) = decoder.next() {
            let taken = match frame {
                Frame::Typed(bytes) => master.write_all(&bytes),
                // The kernel sends SIGWINCH to the foreground programs.
                Frame::Resized(size) => set_size(&master, size),
                _ => Ok(()),
            };
            if taken.is_err() {
                return;
            }
        }
    }
}
