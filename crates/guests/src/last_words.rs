//! The last messages of a guest that has failed.

use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the console's file in the guest's folder.
pub(super) const CONSOLE: &str = "console";
const SHOWN_LINES: usize = 25;
/// The most bytes to read, from the end of a file: a guest can print without end.
const MOST_READ: u64 = 1 << 20;
/// Lines that show the cause when a kernel or the agent in it dies; the lines after them are mostly
/// registers.
const ALARMS: [&str; 5] = ["exitless agent: ", "BUG: ", "Oops: ", "general protection fault", "Kernel panic"];

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
            let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
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
