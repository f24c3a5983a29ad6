//! QEMU's command line: read from a running process, a script, a log or a unit file, and changed in place.
//!
//! Texts with a NUL byte are what `/proc/PID/cmdline` gives. All others are texts that people or programs wrote: shell
//! scripts, `qm showcmd` of Proxmox, libvirt's logs, systemd units, or one argument a line.

mod argument;
mod arrays;
mod backends;
mod command;
mod cpu;
mod devices;
mod drives;
mod edit;
pub(crate) mod given;
mod implied;
mod items;
mod json;
mod machine;
mod models;
mod networks;
mod options;
pub(crate) mod properties;
mod readconfig;
mod reader;
mod reading;
mod words;

use crate::{Change, Definition, Edited, Error, Files, NoFiles, Text};

/// Reads a definition out of QEMU's arguments.
///
/// Files that the arguments refer to (`-readconfig`) come through `files`; one that cannot be read is a doubt.
///
/// # Errors
///
/// The text has no QEMU command line, or a quotation mark in it is not closed. Unknown options and values are doubts
/// in the definition, never errors.
pub fn read(text: &Text, files: &dyn Files) -> Result<Definition, Error> {
    reader::read(text, files).map(|reading| reading.definition)
}

/// Makes changes in QEMU's arguments; all bytes that they do not concern stay as they are.
///
/// Devices are named by their positions in the definition that [`read`] gives for the same text. For a running process
/// the result is a new command line with a NUL after each argument. A text that refers to other files (`-readconfig`)
/// has devices in them: changes of devices are refused then; see [`apply_with`].
///
/// # Errors
///
/// Those of [`read`]. A change that cannot be made is in [`Edited::refused`], and the others are made all the same.
pub fn apply(text: &Text, changes: &[Change]) -> Result<Edited, Error> {
    apply_with(text, &NoFiles, changes)
}

/// Makes changes as [`apply`], in a text that may refer to other files. Those are read, for devices in them have
/// positions too, and never changed.
///
/// # Errors
///
/// Those of [`apply`].
pub fn apply_with(text: &Text, files: &dyn Files, changes: &[Change]) -> Result<Edited, Error> {
    edit::apply(text, files, changes)
}
