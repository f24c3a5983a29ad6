//! libvirt's domain XML: read into a [`Definition`], and changed in place.
//!
//! The format is described in libvirt's "Domain XML format" (formatdomain). `virsh edit`, `virsh dumpxml`,
//! virt-install, Nova and KubeVirt write it, alone or within `<domstatus>` and `<domainsnapshot>`.

mod apply;
mod devices;
mod find;
mod names;
mod overrides;
mod platform;
mod processor;
mod reading;
mod resources;

use crate::xml::{Node, Tree};
use crate::{Definition, DefinitionChange, Edited, Error, Files, Text};

/// Reads a definition from libvirt's XML.
///
/// Files to which `<qemu:commandline>` refers are read through `files`.
///
/// # Errors
///
/// If the text is not well-formed XML in UTF-8, has a document type definition, is nested too deeply, has
/// more than 100 MiB, or contains no domain or more than one. Unknown elements and values become doubts in
/// the definition.
pub fn read(text: &Text, files: &dyn Files) -> Result<Definition, Error> {
    let tree = Tree::read(&text.name, &text.bytes)?;
    let domain = find::domain(&text.name, &tree)?;
    Ok(read_domain(domain, files))
}

fn read_domain(domain: Node<'_>, files: &dyn Files) -> Definition {
    let mut reading = reading::Reading::of(domain);
    reading.machine();
    reading.resources();
    reading.processor();
    reading.features();
    reading.hyperv();
    reading.clock();
    reading.devices();
    reading.overrides(files);
    reading.definition
}

/// Makes changes in libvirt's XML; all other bytes are unchanged.
///
/// # Errors
///
/// Those of [`read`]. A change that cannot be made is in [`Edited::refused`], and the others are still made.
pub fn apply(text: &Text, changes: &[DefinitionChange]) -> Result<Edited, Error> {
    apply::apply(text, changes)
}

#[cfg(test)]
#[path = "libvirt/read_tests.rs"]
mod tests;
