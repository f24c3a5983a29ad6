//! Control of a script that waits for its release, over any channel.

use std::io;

/// Control of a script.
pub trait Line: Send {
    /// Releases the script.
    ///
    /// # Errors
    /// Where the channel is gone.
    fn release(&mut self) -> io::Result<()>;

    /// Ends the script and its child processes; `group` is its process group, where it runs.
    ///
    /// # Errors
    /// Where the channel is gone.
    fn end(&mut self, how: Ending, group: i32) -> io::Result<()>;

    /// Waits for the end of the other processes of a script's group, and then kills them, once the script was told to end
    /// and has. For channels whose [`Line::end`] reports the end of the script alone.
    ///
    /// # Errors
    /// Where the channel is gone.
    fn end_rest(&mut self, group: i32) -> io::Result<()> {
        let _ = group;
        Ok(())
    }
}

/// The way to end a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By SIGTERM.
    Terminate,
    /// By SIGKILL.
    Kill,
}

impl Ending {
    /// The signal's name without SIG, for `kill -NAME -GROUP`, the form that all shells accept.
    #[must_use]
    pub fn signal(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::Kill => "KILL",
        }
    }
}
