//! Definitions for `xl create`: xl.cfg.
//!
//! The grammar is that of Xen's `tools/libs/util/libxlu_cfg_l.l` and `libxlu_cfg_y.y` (4.20); settings are
//! described in xl.cfg(5), xl-disk-configuration(5) and xl-network-configuration(5). `xl` refuses a file with
//! a single mistake; this reader continues, with a doubt for each mistake.

mod devices;
mod pins;
mod reading;
mod settings;
mod words;

use crate::{Definition, Error, Form, Text};

/// The typical settings. A definition has at least one of them; the variables of a shell script have other
/// names.
const TELLING: &[&str] =
    &["name", "type", "builder", "kernel", "bootloader", "firmware", "memory", "vcpus", "disk", "vif"];

/// Tests whether a text is xl.cfg: it begins, after comments, with a setting on a line of its own, has one of
/// the typical settings, and has few mistakes.
#[must_use]
pub fn is(bytes: &[u8]) -> bool {
    // A file with CRLF line ends is xl.cfg too, although `xl` refuses it.
    let unix: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != b'\r').collect();
    if !settings::begins_with_one(&unix) {
        return false;
    }
    let (found, doubts) = settings::parse(&unix);
    found.len() > doubts.len() && found.iter().any(|setting| TELLING.contains(&setting.name.as_str()))
}

/// Reads xl.cfg. Settings without a field in [`Definition`] are in `other`, by their names, with the items of
/// a list joined by `", "`; of repeated settings the last counts, as for `xl`.
/// # Errors
///
/// If the text has no setting.
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
