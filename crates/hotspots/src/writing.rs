//! The file of hot spots: JSON lines, each independent of the rest, so that damage costs only the lines that it hits.
//! `docs/profile.md` describes it.

use std::io::{self, Write};

use exits::ExitReason;
use serde::{Deserialize, Serialize};

use crate::{Activity, Away, Frame, FrameNumber, Head, Losses, Recording, Stack};

/// The format's number. Within one number fields are added, never changed.
pub const FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeadLine {
    /// The format's number.
    pub(crate) exitless_hot_spots: u32,
    #[serde(flatten)]
    pub(crate) head: Head,
}

/// Any line after the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Vm {
        vm: u32,
        name: String,
    },
    Exits {
        vm: Option<u32>,
        reason: ExitReason,
        exits: u64,
        handling_ns: u64,
        #[serde(flatten)]
        away: Away,
    },
    Frame {
        number: FrameNumber,
        #[serde(flatten)]
        frame: Frame,
    },
    Stack {
        vm: Option<u32>,
        thread: Option<u32>,
        activity: Word,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ExitReason>,
        frames: Vec<FrameNumber>,
        samples: u64,
        #[serde(flatten)]
        away: Away,
        #[serde(default)]
        cut: bool,
    },
    End(Losses),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    Guest,
    Exit,
    Monitor,
}

impl Word {
    const fn of(activity: Activity) -> (Self, Option<ExitReason>) {
        match activity {
            Activity::Guest => (Self::Guest, None),
            Activity::Exit(reason) => (Self::Exit, Some(reason)),
            Activity::Monitor => (Self::Monitor, None),
        }
    }

    /// The activity that [`Self::of`] was given; `None` for an exit if the reason is missing.
    pub(crate) fn activity(self, reason: Option<ExitReason>) -> Option<Activity> {
        match self {
            Self::Guest => Some(Activity::Guest),
            Self::Exit => reason.map(Activity::Exit),
            Self::Monitor => Some(Activity::Monitor),
        }
    }
}

/// Writes a recording.
///
/// # Errors
/// If writing to `to` fails.
pub fn write(recording: &Recording, to: &mut impl Write) -> io::Result<()> {
    line(to, &HeadLine { exitless_hot_spots: FORMAT, head: recording.head.clone() })?;
    for (&vm, name) in &recording.names {
        line(to, &Line::Vm { vm, name: name.clone() })?;
    }
    for (&(vm, reason), measured) in &recording.measured {
        let (exits, handling_ns, away) = (measured.exits, measured.handling_ns, measured.away);
        line(to, &Line::Exits { vm, reason, exits, handling_ns, away })?;
    }
    for (number, frame) in (0..).zip(&recording.frames) {
        line(to, &Line::Frame { number, frame: Frame::clone(frame) })?;
    }
    for stack in &recording.stacks {
        let Stack { vm, thread, frames, samples, away, cut, .. } = stack.clone();
        let (activity, reason) = Word::of(stack.activity);
        line(to, &Line::Stack { vm, thread, activity, reason, frames, samples, away, cut })?;
    }
    line(to, &Line::End(recording.losses))?;
    to.flush()
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}
