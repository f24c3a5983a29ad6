//! QEMU's arguments out of libvirt's XML, and the other way round.

mod arguments;
mod document;
mod seen;
mod shell;

use crate::{Error, Files, Text};
use serde::{Deserialize, Serialize};

/// What the other form has no word for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The part, as it is written in the old form.
    pub what: String,
    /// Why it has no equal, and what stands in for it where something does: a sentence.
    pub why: String,
}

/// A definition in the other form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Converted {
    /// QEMU's arguments, the program first; empty when XML was made.
    pub arguments: Vec<String>,
    /// The whole text: the arguments as a shell command, one option a line, or an XML document.
    pub text: String,
    /// Arguments that libvirt has no element for and that stand in `<qemu:commandline>`, in order.
    pub passed_through: Vec<String>,
    /// What is not in the new text.
    pub losses: Vec<Loss>,
    /// What the reader should know of the new text: whole sentences.
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
