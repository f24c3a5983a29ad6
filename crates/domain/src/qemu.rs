//! QEMU's command line: read from a running process, a script, a log or a unit file, and changed in place.
//!
//! Texts with a NUL byte are from `/proc/PID/cmdline`. All others were written by people or programs: shell
//! scripts, `qm showcmd` of Proxmox, libvirt's logs, systemd units, or one argument on each line.

mod argument;
mod arrays;
mod backends;
mod command;
mod cpu;
mod devices;
mod drives;
mod edit;
mod implied;
mod items;
mod machine;
mod models;
mod networks;
mod options;
mod properties;
mod readconfig;
mod reader;
mod reading;
mod words;

pub use properties::escaped;

use crate::{Definition, DefinitionChange, Edited, Error, Files, NoFiles, Text};

/// Reads a definition from QEMU's arguments.
///
/// Files to which the arguments refer (`-readconfig`) are read through `files`; one that cannot be read
/// becomes a doubt.
///
/// # Errors
///
/// If the text has no QEMU command line, or a quotation mark in it is not closed. Unknown options and values
/// become doubts in the definition.
pub fn read(text: &Text, files: &dyn Files) -> Result<Definition, Error> {
    reader::read(text, files).map(|reading| reading.definition)
}

/// Makes changes in QEMU's arguments; all other bytes are unchanged.
///
/// Devices are identified by their indices in the definition that [`read`] returns for the same text. For a
/// running process the result is a new command line with a NUL after each argument. If the text refers to
/// other files (`-readconfig`), changes of devices are refused, because devices in those files would shift
/// the indices; see [`apply_with`].
///
/// # Errors
///
/// Those of [`read`]. A change that cannot be made is in [`Edited::refused`], and the others are still made.
pub fn apply(text: &Text, changes: &[DefinitionChange]) -> Result<Edited, Error> {
    apply_with(text, &NoFiles, changes)
}

/// Makes changes like [`apply`], in a text that may refer to other files. The files are read, because devices
/// in them have indices too, but never changed.
///
/// # Errors
///
/// Those of [`apply`].
pub fn apply_with(text: &Text, files: &dyn Files, changes: &[DefinitionChange]) -> Result<Edited, Error> {
    edit::apply(text, files, changes)
}
