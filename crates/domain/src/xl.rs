//! Definitions for `xl create`: xl.cfg.
//!
//! The grammar is that of Xen's `tools/libs/util/libxlu_cfg_l.l` and `libxlu_cfg_y.y` (4.20), what settings mean is in
//! xl.cfg(5), xl-disk-configuration(5) and xl-network-configuration(5). `xl` refuses a file with one mistake in it; here
//! the rest is read all the same, with a doubt for each mistake.

mod devices;
mod guest_type;
mod pins;
mod reading;
mod settings;
mod words;

use crate::{Definition, Error, Form, Text};

pub use guest_type::GuestType;

/// Settings of which a definition has one; a shell's script has variables of other names.
const TELLING: &[&str] =
    &["name", "type", "builder", "kernel", "bootloader", "firmware", "memory", "vcpus", "disk", "vif"];

/// Whether a text is xl.cfg: it begins, but for comments, with a setting that is a line of its own, one of its settings
/// tells, and mistakes are the smaller part.
#[must_use]
pub fn is(bytes: &[u8]) -> bool {
    // Wrong ends of lines are no reason to take it for something else.
    let unix: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != b'\r').collect();
    if !settings::begins_with_one(&unix) {
        return false;
    }
    let (found, doubts) = settings::parse(&unix);
    found.len() > doubts.len() && found.iter().any(|setting| TELLING.contains(&setting.name.as_str()))
}

/// Reads xl.cfg. Settings that no field of [`Definition`] has are in `other`, by their names, with the items of a list
/// joined by `", "`; of settings that are made more than once the last counts, as for `xl`.
///
/// # Errors
///
/// When there is no setting in the text at all.
pub fn read(text: &Text) -> Result<Definition, Error> {
    let (found, doubts) = settings::parse(&text.bytes);
    if found.is_empty() && text.bytes.windows(2).any(|two| two == b"\r\n") {
        return Err(Error::new(
            text.name.clone(),
            "its lines end with CR and LF, which `xl` refuses",
            "Convert it, as with `sed -i 's/\\r$//'`",
        ));
    }
    if found.is_empty() {
        return Err(Error::new(
            text.name.clone(),
            "there is no setting such as name = \"web\" in it",
            "Name a file that `xl create` takes",
        ));
    }
    let mut definition = Definition::empty(Form::Xl);
    definition.doubts = doubts;
    reading::fill(&mut definition, &found);
    Ok(definition)
}

#[cfg(test)]
#[path = "xl/xl_tests.rs"]
mod tests;
