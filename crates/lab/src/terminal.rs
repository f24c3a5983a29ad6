//! Connects the user's terminal to the second serial line of an emulated host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::{Handle, Signals};

use crate::error::Error;
use crate::frames::Frame;
use crate::job::TerminalSize;

/// The size of a frame of input. Keys arrive one by one; pasted text goes in frames that suit a slow line.
const PIECE: usize = 256;
/// The time limit for showing the rest of the output: a terminal stopped with Ctrl-S takes none.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A pseudo-terminal whose far end the emulator opens as its serial line.
#[derive(Debug)]
pub(crate) struct Bridge {
    near: OwnedFd,
    line: PathBuf,
    size: TerminalSize,
    /// Kept open, because the near end would hang up before the emulator has opened the far end.
    far: File,
}

/// The user's terminal in raw mode. To be dropped after the emulator's end; shows the rest of the output and
/// restores the terminal's settings.
#[derive(Debug)]
pub(crate) struct Connected {
    before: Termios,
    sizes: Handle,
    screen: Option<Screen>,
}

/// Copies output to the user's terminal.
#[derive(Debug)]
struct Screen {
    far: Option<File>,
    all_shown: Receiver<()>,
}

/// Fails if standard input is not a terminal, which a shell needs.
///
/// # Errors
/// [`Error::File`].
pub fn require_terminal() -> Result<(), Error> {
    if isatty(io::stdin()) {
        return Ok(());
    }
    let message = io::Error::other("it is not a terminal; use `exitless lab run` for commands without one");
    Err(Error::file("Could not open a shell on", "standard input")(message))
}

impl Bridge {
    pub(crate) fn open() -> Result<Self, Error> {
        require_terminal()?;
        let (near, line) = pseudo_terminal().map_err(Error::file("Could not make", "a pseudo-terminal"))?;
        let far = File::options()
            .read(true)
            .write(true)
            .open(&line)
            .and_then(|far| raw(&far).map(|_| far))
            .map_err(Error::file("Could not open", &line))?;
        Ok(Self { near, line, size: window().unwrap_or(TerminalSize { rows: 24, columns: 80 }), far })
    }

    pub(crate) fn line(&self) -> &Path {
        &self.line
    }

    pub(crate) fn size(&self) -> TerminalSize {
        self.size
    }

    /// Forwards input, changes of the window's size, and output, until the emulator ends.
    pub(crate) fn connect(self) -> Result<Connected, Error> {
        let failed = || Error::file("Could not connect the terminal with", &self.line);
        let near = File::from(self.near.try_clone().map_err(failed())?);
        let back = File::from(self.near);
        let changes = Signals::new([SIGWINCH]).map_err(failed())?;
        // Nothing may fail after this: only `Connected` restores the terminal.
        let before = raw(&io::stdin()).map_err(failed())?;
        let sizes = changes.handle();
        let (typed, frames) = channel();
        let resized = typed.clone();
        let size = self.size;
        thread::spawn(move || send(&frames, near));
        thread::spawn(move || read_keys(&typed));
        thread::spawn(move || follow_window(size, changes, &resized));
        Ok(Connected { before, sizes, screen: Some(Screen::show(back, self.far, io::stdout())) })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.sizes.close();
        drop(self.screen.take());
        // Fails if the terminal is gone; then there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

impl Screen {
    fn show(back: File, far: File, to: impl Write + Send + 'static) -> Self {
        Self { far: Some(far), all_shown: pass(back, to) }
    }
}

impl Drop for Screen {
    /// Waits for the last output: the command's end is reported through another channel, which may be faster.
    fn drop(&mut self) {
        // This is the last open descriptor of the far end, so reading the near end will reach its end.
        drop(self.far.take());
        let _ = self.all_shown.recv_timeout(LAST_WORDS);
    }
}

/// Creates a pseudo-terminal. Returns its near end, and the path of the far end.
pub(crate) fn pseudo_terminal() -> io::Result<(OwnedFd, PathBuf)> {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    Ok((near, PathBuf::from(name.to_string_lossy().into_owned())))
}

/// Puts a terminal into raw mode, and returns its previous settings.
fn raw(terminal: &impl std::os::fd::AsFd) -> io::Result<Termios> {
    let before = tcgetattr(terminal)?;
    let mut settings = before.clone();
    settings.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &settings)?;
    Ok(before)
}

/// The size of the user's terminal; `None` if it is unknown.
fn window() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    Some(TerminalSize { rows: size.ws_row, columns: size.ws_col })
}

fn send(frames: &Receiver<Frame>, mut near: File) {
    for frame in frames {
        if near.write_all(&frame.encode()).is_err() {
            break;
        }
    }
}

fn read_keys(frames: &Sender<Frame>) {
    let mut piece = [0; PIECE];
    while let Ok(count @ 1..) = io::stdin().read(&mut piece) {
        if frames.send(Frame::Typed(piece[..count].to_vec())).is_err() {
            break;
        }
    }
}

/// Sends changes of the window's size; `told` is the size that was sent last.
fn follow_window(mut told: TerminalSize, mut changes: Signals, frames: &Sender<Frame>) {
    loop {
        // The size may have changed before the signals were caught.
        if let Some(size) = window().filter(|size| *size != told) {
            told = size;
            if frames.send(Frame::Resized(size)).is_err() {
                return;
            }
        }
        if changes.forever().next().is_none() {
            return;
        }
    }
}

/// Copies a terminal's output in a thread, which sends a message when it has copied everything.
pub(crate) fn pass(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> Receiver<()> {
    let (passed, all_passed) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
        // The receiver has given up waiting; ignore that.
        let _ = passed.send(());
    });
    all_passed
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A terminal that accepts one byte per millisecond.
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(1));
            self.0.lock().unwrap().extend(bytes.first());
            Ok(bytes.len().min(1))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_that_nobody_has_seen_at_the_end_is_shown() {
        let (near, line) = pseudo_terminal().unwrap();
        let open = || File::options().read(true).write(true).open(&line).unwrap();
        let (far, mut emulator) = (open(), open());
        raw(&far).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let screen = Screen::show(File::from(near), far, Slow(Arc::clone(&seen)));
        emulator.write_all(&[b'x'; 200]).unwrap();
        drop(emulator);
        drop(screen);
        assert_eq!(*seen.lock().unwrap(), [b'x'; 200]);
    }
}
