//! What a guest that ended left behind.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

const SHOWN_LINES: usize = 25;

/// The files in which a guest's console and its QEMU's messages are; shows the last lines of both.
#[derive(Debug, Clone)]
pub(super) struct LastWords {
    messages: PathBuf,
    console: PathBuf,
}

impl LastWords {
    /// Of the guest that is kept in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self { messages: folder.join("qemu.log"), console: folder.join("console") }
    }

    /// Where QEMU's messages belong.
    pub(super) fn messages(&self) -> &Path {
        &self.messages
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            [("QEMU's last messages", &self.messages), ("The last lines of its console", &self.console)];
        for (title, path) in shown {
            let text = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
            let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            if !last.is_empty() {
                write!(formatter, "\n{title} ({}):\n  {}", path.display(), last.join("\n  "))?;
            }
        }
        Ok(())
    }
}
