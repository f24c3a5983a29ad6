//! Converts libvirt's XML to QEMU's arguments, and the reverse.

mod arguments;
mod document;
mod seen;
mod shell;

use crate::{Error, Files, Text};
use serde::{Deserialize, Serialize};

/// A part that the other form cannot express.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The part, in the syntax of the old form.
    pub what: String,
    /// The reason, and a substitute if there is one: a sentence.
    pub why: String,
}

/// A definition in the other form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Converted {
    /// QEMU's arguments, the program first; empty if the result is XML.
    pub arguments: Vec<String>,
    /// The whole text: the arguments as a shell command with an option on each line, or an XML document.
    pub text: String,
    /// Arguments without an element in libvirt, which are in `<qemu:commandline>`, in order.
    pub passed_through: Vec<String>,
    /// Parts that are not in the new text.
    pub losses: Vec<Loss>,
    /// Notes on the new text: whole sentences.
    pub notes: Vec<String>,
}

/// QEMU's arguments for libvirt's XML.
///
/// # Errors
///
/// Those of [`libvirt::read`](crate::libvirt::read).
pub fn to_arguments(text: &Text) -> Result<Converted, Error> {
    arguments::convert(text)
}

/// libvirt's XML for QEMU's arguments.
///
/// # Errors
///
/// Those of [`qemu::read`](crate::qemu::read).
pub fn to_xml(text: &Text, files: &dyn Files) -> Result<Converted, Error> {
    document::convert(text, files)
}
