//! The last messages of a guest that has failed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The name of the console's file in the guest's folder.
pub(super) const CONSOLE: &str = "console";
/// The kernel's message about an initial RAM disk that does not fit (init/initramfs.c, `do_populate_rootfs`).
pub(super) const NOT_UNPACKED: &str = "Initramfs unpacking failed: write error";
const SHOWN_LINES: usize = 25;
/// The most bytes to read, from the end of a file: a guest can print without end.
const MOST_READ: u64 = 1 << 20;
/// The space on the disk that each of the files may take.
const LARGEST: u64 = 64 << 20;
/// Marks of lines that show why a kernel or its agent died; the lines after them are mostly registers.
const ALARMS: [&str; 6] =
    ["exitless agent: ", "BUG: ", "Oops: ", "general protection fault", NOT_UNPACKED, "Kernel panic"];

/// The files with the output of a guest's console and of its QEMU or xl; displays as the last lines of both.
#[derive(Debug, Clone)]
pub(super) struct LastWords {
    program: &'static str,
    messages: PathBuf,
    console: PathBuf,
}

impl LastWords {
    /// Names the files of the guest in `folder`, which was started by `program`.
    pub(super) fn new(folder: &Path, program: &'static str) -> Self {
        let messages = folder.join(format!("{}.log", program.to_ascii_lowercase()));
        Self { program, messages, console: folder.join(CONSOLE) }
    }

    /// The path of the console's file.
    pub(super) fn console(&self) -> &Path {
        &self.console
    }

    /// The path of the file of the program's messages.
    pub(super) fn messages(&self) -> &Path {
        &self.messages
    }

    /// Tests whether the console's output has this text.
    pub(super) fn console_has(&self, text: &str) -> bool {
        let console = files::read_end(&self.console, MOST_READ).unwrap_or_default();
        String::from_utf8_lossy(&console).contains(text)
    }

    /// Frees the space of all but the ends of both files `every` so often, until the sender is dropped.
    pub(super) fn bounded(&self, every: Duration) -> Sender<()> {
        let (sender, dropped) = channel();
        let files = [self.messages.clone(), self.console.clone()];
        std::thread::spawn(move || {
            while dropped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                for file in &files {
                    if let Err(error) = files::keep_end(file, LARGEST, MOST_READ) {
                        tracing::debug!("{} takes more and more space: {error}", file.display());
                    }
                }
            }
        });
        sender
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = [
            (format!("{}'s last messages", self.program), &self.messages),
            ("The last lines of its console".to_owned(), &self.console),
        ];
        for (title, path) in shown {
            let text = files::read_end(path, MOST_READ).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines = programs::last_lines(&text, usize::MAX);
            let last = telling(&lines);
            if !last.is_empty() {
                write!(formatter, "\n{title} ({}):\n  {}", path.display(), last.join("\n  "))?;
            }
        }
        Ok(())
    }
}

/// The last lines, or those from the first alarm on.
fn telling<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    let alarm = lines.iter().position(|line| ALARMS.iter().any(|alarm| line.contains(alarm)));
    let begin = alarm.unwrap_or(lines.len()).min(lines.len().saturating_sub(SHOWN_LINES));
    &lines[begin..lines.len().min(begin + SHOWN_LINES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_console_that_is_written_without_end_does_not_fill_the_disk() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let words = LastWords::new(folder.path(), "QEMU");
        fs::write(words.console(), vec![b'.'; LARGEST as usize + (1 << 20)]).unwrap();
        let _bounded = words.bounded(Duration::from_millis(10));
        while words.console().metadata().unwrap().blocks() * 512 > LARGEST {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(words.to_string().ends_with("...."));
    }

    #[test]
    fn the_cause_of_a_death_is_shown_rather_than_the_registers_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let words = LastWords::new(folder.path(), "QEMU");
        let mut console: Vec<String> = (0..40).map(|number| format!("line {number}")).collect();
        let write = |lines: &[String]| fs::write(folder.path().join("console"), lines.join("\r\n")).unwrap();
        write(&console);
        let shown = words.to_string();
        assert!(
            shown.contains("line 39") && shown.contains("line 15") && !shown.contains("line 14"),
            "{shown}"
        );
        console[10] = "[ 1.0] exitless agent: panicked at main.rs".to_owned();
        console[12] = "[ 1.1] Kernel panic - not syncing".to_owned();
        write(&console);
        let shown = words.to_string();
        assert!(shown.contains("panicked at") && shown.contains("line 34"), "{shown}");
        assert!(!shown.contains("line 9") && !shown.contains("line 35"), "{shown}");
    }
}
