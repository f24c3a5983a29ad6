//! A module's parameters in modprobe.d, and the smallest change that sets them.
//!
//! Files are read in the order of their names; of several files with the same name only that in the first directory.
//! Options accumulate, and the kernel keeps the last value; those of the kernel's command line come after all files
//! (modprobe.d(5); kmod's libkmod/libkmod-config.c, `kmod_config_new`). The files may be in any encoding.

use host::Root;
use host::inspection::{ModprobeFile, modprobe_lines};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;

/// Our file, if no file sets the parameter yet.
const OWN: &str = "/etc/modprobe.d/exitless.conf";
/// Our file, if a file outside `/etc` with a later name sets the parameter.
const OWN_LAST: &str = "/etc/modprobe.d/zz-exitless.conf";
const HEADING: &str = "# Written by exitless. `exitless restore` undoes this.\n";

/// The effective files of modprobe.d, with changes that are not written yet.
#[derive(Debug, Clone)]
pub(super) struct Modprobe {
    /// Path and content by name, which is the order of reading.
    files: BTreeMap<String, (String, Vec<u8>)>,
    /// The earlier content, by path.
    before: BTreeMap<String, Vec<u8>>,
    /// The first file that cannot be read, with the reason, and the next step.
    unread: Option<(String, &'static str)>,
}

/// A word of an `options` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The file.
    pub(super) path: String,
    /// The value; `1` for a parameter without one.
    pub(super) value: String,
    name: String,
    word: Range<usize>,
}

impl Modprobe {
    /// Reads the files of a host.
    pub(super) fn read(root: &Root) -> Self {
        let mut found = Self { files: BTreeMap::new(), before: BTreeMap::new(), unread: None };
        for file in ModprobeFile::all(root).into_iter().filter(|file| file.hidden_by.is_none()) {
            match file.content {
                Ok(content) => {
                    found.before.insert(file.path.clone(), content.clone());
                    found.files.insert(file.name, (file.path, content));
                }
                // modprobe ignores these too.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {}
                Err(error) => {
                    let next = match error.kind() {
                        ErrorKind::PermissionDenied => "run as root",
                        _ => "make it readable: it may set the parameter too",
                    };
                    let why = format!("{} cannot be read: {error}", file.path);
                    found.unread.get_or_insert((why, next));
                }
            }
        }
        found
    }

    /// The first file that cannot be read, with the reason, and the next step.
    pub(super) fn unread(&self) -> Option<(String, &'static str)> {
        self.unread.clone()
    }

    /// The effective setting of a parameter, if there is one.
    pub(super) fn setting(&self, module: &str, parameter: &str) -> Option<Setting> {
        let all = self.files.values().rev();
        all.filter_map(|(path, content)| last_setting(path, content, module, parameter)).next()
    }

    /// Lines that stop modprobe from loading the module: `install` and `blacklist`, each with its file.
    pub(super) fn obstacles(&self, module: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (path, content) in self.files.values() {
            for (_, words) in modprobe_lines(content) {
                let names = words.get(1).is_some_and(|name| name.text.replace('-', "_") == module);
                if names && matches!(words[0].text.as_str(), "install" | "blacklist") {
                    let told: Vec<_> = words.into_iter().map(|word| word.text).collect();
                    found.push((path.clone(), told.join(" ")));
                }
            }
        }
        found
    }

    /// Changes the effective setting, or adds a line to our own file: files outside `/etc` are not changed.
    pub(super) fn set(&mut self, module: &str, parameter: &str, value: &str) {
        let line = format!("options {module} {parameter}={value}\n");
        let Some(setting) = self.setting(module, parameter) else { return self.add(OWN, &line) };
        if !setting.path.starts_with("/etc/") {
            let later = setting.path.rsplit('/').next().is_some_and(|name| name < "exitless.conf");
            return self.add(if later { OWN } else { OWN_LAST }, &line);
        }
        if let Some((_, content)) = self.files.values_mut().find(|(path, _)| *path == setting.path) {
            content.splice(setting.word, format!("{}={value}", setting.name).into_bytes());
        }
    }

    fn add(&mut self, path: &str, line: &str) {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let (_, content) = self.files.entry(name).or_insert_with(|| (path.to_owned(), HEADING.into()));
        if content.last().is_some_and(|last| *last != b'\n') {
            content.push(b'\n');
        }
        content.extend_from_slice(line.as_bytes());
    }

    /// The changed files: path, and new content.
    pub(super) fn changes(&self) -> Vec<(String, Vec<u8>)> {
        let differing = |(path, content): &&(String, Vec<u8>)| self.before.get(path) != Some(content);
        self.files.values().filter(differing).cloned().collect()
    }
}

fn last_setting(path: &str, content: &[u8], module: &str, parameter: &str) -> Option<Setting> {
    let mut last = None;
    for (_, words) in modprobe_lines(content) {
        let [command, name, options @ ..] = &words[..] else { continue };
        if command.text != "options" || name.text.replace('-', "_") != module {
            continue;
        }
        for word in options {
            if let Some(value) = word.value(parameter) {
                last = Some(Setting {
                    path: path.to_owned(),
                    value: value.to_owned(),
                    name: word.text.split('=').next().unwrap_or_default().to_owned(),
                    word: word.place.clone(),
                });
            }
        }
    }
    last
}

#[cfg(test)]
#[path = "modprobe_tests.rs"]
mod tests;
