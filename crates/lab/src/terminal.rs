//! The user's terminal joined to the second serial line of an emulated host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::error::Error;
use crate::job::TerminalSize;

/// A pseudo-terminal whose far end the emulator opens as a serial line.
#[derive(Debug)]
pub(crate) struct Bridge {
    near: OwnedFd,
    line: PathBuf,
    size: TerminalSize,
    /// Held open so that the near end does not hang up before the emulator has opened it.
    far: File,
}

/// The user's terminal in raw mode; dropping this gives it back as it was.
#[derive(Debug)]
pub(crate) struct Connected {
    before: Termios,
    _far: File,
}

impl Bridge {
    pub(crate) fn open() -> Result<Self, Error> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            let message =
                io::Error::other("it is not a terminal; use `exitless lab run` for commands without one");
            return Err(Error::file("Could not open a shell on", "standard input")(message));
        }
        let size = tcgetwinsize(&stdin)
            .map(|size| TerminalSize { rows: size.ws_row, columns: size.ws_col })
            .unwrap_or(TerminalSize { rows: 24, columns: 80 });
        let (near, line) = pseudo_terminal().map_err(Error::file("Could not make", "a pseudo-terminal"))?;
        let far = File::options()
            .read(true)
            .write(true)
            .open(&line)
            .and_then(|far| raw(&far).map(|_| far))
            .map_err(Error::file("Could not open", &line))?;
        Ok(Self { near, line, size, far })
    }

    pub(crate) fn line(&self) -> &Path {
        &self.line
    }

    pub(crate) fn size(&self) -> TerminalSize {
        self.size
    }

    /// Passes bytes both ways until the process ends.
    pub(crate) fn connect(self) -> Result<Connected, Error> {
        let failed = || Error::file("Could not connect the terminal with", &self.line);
        let before = raw(&io::stdin()).map_err(failed())?;
        let near = File::from(self.near.try_clone().map_err(failed())?);
        let back = File::from(self.near);
        std::thread::spawn(move || pass(io::stdin(), near));
        std::thread::spawn(move || pass(back, io::stdout()));
        Ok(Connected { before, _far: self.far })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // The terminal may be gone, and then there is nothing to give back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

fn pseudo_terminal() -> io::Result<(OwnedFd, PathBuf)> {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    Ok((near, PathBuf::from(name.to_string_lossy().into_owned())))
}

/// Makes a terminal raw and returns its settings as they were.
fn raw(terminal: &impl std::os::fd::AsFd) -> io::Result<Termios> {
    let before = tcgetattr(terminal)?;
    let mut settings = before.clone();
    settings.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &settings)?;
    Ok(before)
}

fn pass(mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_err() {
            break;
        }
    }
}
