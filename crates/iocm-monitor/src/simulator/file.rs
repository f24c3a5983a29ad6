//! Traces as files of one JSON object a line, so that a truncated file keeps its complete lines.
//!
//! ```text
//! {"trace":1,"machine":{"cores":8,"nodes":1}}
//! {"group":{"name":"web","vms":4,"queues":2}}
//! {"phase":{"name":"busy","seconds":10.0,"loads":{"web":{"computing":1.5,"requests":2e5,"cost_us":1.2,"bytes":300.0}}}}
//! ```
//!
//! The first line describes the machine. A group comes before the phases that name it, possibly between other phases: a
//! recorder writes a group when it first sees it.

use super::trace::{BadTrace, Group, KnownGroups, Machine, Phase, Trace};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The format's number. Within one number fields are added, never changed.
pub const TRACE_FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Head {
    trace: u32,
    machine: Machine,
}

/// Each other line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fact {
    Group(Group),
    Phase(Phase),
}

/// A line that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceDamage {
    /// The offset of the line in the file, bytes.
    pub offset: usize,
    /// The reason why it is damaged.
    pub why: String,
}

/// The reason why a file is no trace at all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTrace {
    /// The first line is not the head of a trace.
    #[error(
        "The first line is not the head of a trace, such as {{\"trace\":1,\"machine\":{{\"cores\":8}}}}; write one with \
         `exitless iocm monitor --record` or `exitless iocm simulate --made steps --write`: {why}"
    )]
    Head {
        /// The parser's message.
        why: String,
    },
    /// Another program wrote it.
    #[error(
        "The trace has format {found}, and this exitless reads {TRACE_FORMAT}; use the exitless that wrote it"
    )]
    Format {
        /// Its number.
        found: u32,
    },
    /// Nothing of it can be replayed.
    #[error(transparent)]
    Bad(#[from] BadTrace),
}

impl Trace {
    /// Reads a trace. Keeps the valid lines, and returns each damaged one with its offset.
    ///
    /// # Errors
    /// [`NoTrace`] when nothing can be replayed.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<TraceDamage>), NoTrace> {
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let head: Head = serde_json::from_slice(first.trim_ascii())
            .map_err(|error| NoTrace::Head { why: error.to_string() })?;
        if head.trace != TRACE_FORMAT {
            return Err(NoTrace::Format { found: head.trace });
        }
        let mut trace = Self { machine: head.machine, groups: Vec::new(), phases: Vec::new() };
        trace.machine.check()?;
        let mut known = KnownGroups::default();
        let mut damage = Vec::new();
        let mut offset = first.len();
        for line in lines {
            let text = line.trim_ascii();
            if !text.is_empty()
                && let Err(why) = trace.take(&mut known, text)
            {
                let cut = if line.ends_with(b"\n") { "" } else { "the line is cut: " };
                damage.push(TraceDamage { offset, why: format!("{cut}{why}") });
            }
            offset += line.len();
        }
        trace.check()?;
        Ok((trace, damage))
    }

    fn take(&mut self, known: &mut KnownGroups, line: &[u8]) -> Result<(), String> {
        match serde_json::from_slice(line).map_err(|error| error.to_string())? {
            Fact::Group(group) => {
                known.add(self.machine, &group).map_err(|bad| bad.to_string())?;
                self.groups.push(group);
                Ok(())
            }
            Fact::Phase(phase) => {
                known.check_phase(&phase).map_err(|bad| bad.to_string())?;
                self.phases.push(phase);
                Ok(())
            }
        }
    }

    /// Writes it as a file.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut writer = TraceWriter::begin(&mut *to, self.machine)?;
        self.groups.iter().try_for_each(|group| writer.group(group))?;
        self.phases.iter().try_for_each(|phase| writer.phase(phase))
    }
}

/// Writes a trace line by line, without buffering.
#[derive(Debug)]
pub struct TraceWriter<W: Write>(W);

impl<W: Write> TraceWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// The writer's.
    pub fn begin(to: W, machine: Machine) -> io::Result<Self> {
        let mut writer = Self(to);
        writer.line(&Head { trace: TRACE_FORMAT, machine })?;
        Ok(writer)
    }

    /// Writes a group, which phases after it may name.
    ///
    /// # Errors
    /// The writer's.
    pub fn group(&mut self, group: &Group) -> io::Result<()> {
        self.line(&Fact::Group(group.clone()))
    }

    /// Writes a phase.
    ///
    /// # Errors
    /// The writer's.
    pub fn phase(&mut self, phase: &Phase) -> io::Result<()> {
        self.line(&Fact::Phase(phase.clone()))
    }

    /// Writes a line with one call, so that a recorder that is killed leaves complete lines.
    fn line(&mut self, fact: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(fact)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.flush()
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
