//! A module's parameters in modprobe.d, and the smallest change that sets them otherwise.
//!
//! Files are read in the order of their names; of several with one name only that of the first directory. Options add
//! up, and the kernel keeps the last value; those of the kernel's command line come behind all files (modprobe.d(5);
//! kmod's libkmod/libkmod-config.c, `kmod_config_new`).

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Ours, where no file sets the parameter yet.
const OWN: &str = "/etc/modprobe.d/exitless.conf";
/// Ours, where a file that is not the administrator's sets it under a later name.
const OWN_LAST: &str = "/etc/modprobe.d/zz-exitless.conf";
const FOLDERS: [&str; 5] = [
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
];
const HEADING: &str = "# Written by exitless. `exitless restore` undoes this.\n";

/// The files of modprobe.d that count, with changes that are not written yet.
#[derive(Debug, Clone)]
pub(super) struct Modprobe {
    /// By name, which is the order of reading: path and text.
    files: BTreeMap<String, (String, String)>,
    /// The earlier content, by path.
    before: BTreeMap<String, String>,
}

/// A word of an `options` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The file.
    pub(super) path: String,
    /// The value; a parameter without one is a switch that is on.
    pub(super) value: String,
    name: String,
    word: Range<usize>,
}

impl Modprobe {
    /// Reads the files of the host below `root`. Those that are not text are left out.
    pub(super) fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut before = BTreeMap::new();
        for folder in FOLDERS {
            let entries = fs::read_dir(root.join(folder.trim_start_matches('/')));
            for entry in entries.into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !name.ends_with(".conf") || name.starts_with('.') || files.contains_key(&name) {
                    continue;
                }
                let Ok(text) = fs::read_to_string(entry.path()) else { continue };
                let path = format!("{folder}/{name}");
                before.insert(path.clone(), text.clone());
                files.insert(name, (path, text));
            }
        }
        Self { files, before }
    }

    /// The word that decides, if any does.
    pub(super) fn setting(&self, module: &str, parameter: &str) -> Option<Setting> {
        let all = self.files.values().rev();
        all.filter_map(|(path, text)| last_setting(path, text, module, parameter)).next()
    }

    /// Lines that keep modprobe from what it would do: `install` and `blacklist`, each with its file.
    pub(super) fn obstacles(&self, module: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (path, text) in self.files.values() {
            for line in lines(text) {
                let words = line.words();
                let names = words.get(1).is_some_and(|(name, _)| name.replace('-', "_") == module);
                if names && matches!(words[0].0.as_str(), "install" | "blacklist") {
                    let told: Vec<_> = words.into_iter().map(|(word, _)| word).collect();
                    found.push((path.clone(), told.join(" ")));
                }
            }
        }
        found
    }

    /// Changes the word that decides, or adds a line to our own file. Files outside `/etc` are not ours to change.
    pub(super) fn set(&mut self, module: &str, parameter: &str, value: &str) {
        let line = format!("options {module} {parameter}={value}\n");
        let Some(setting) = self.setting(module, parameter) else { return self.add(OWN, &line) };
        if !setting.path.starts_with("/etc/") {
            let later = setting.path.rsplit('/').next().is_some_and(|name| name < "exitless.conf");
            return self.add(if later { OWN } else { OWN_LAST }, &line);
        }
        if let Some((_, text)) = self.files.values_mut().find(|(path, _)| *path == setting.path) {
            text.replace_range(setting.word, &format!("{}={value}", setting.name));
        }
    }

    fn add(&mut self, path: &str, line: &str) {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let (_, text) = self.files.entry(name).or_insert_with(|| (path.to_owned(), HEADING.to_owned()));
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
    }

    /// The files that differ from what is there: path, what is there, what is to be.
    pub(super) fn changes(&self) -> Vec<(String, Option<String>, String)> {
        let differing = self.files.values().filter(|(path, text)| self.before.get(path) != Some(text));
        differing.map(|(path, text)| (path.clone(), self.before.get(path).cloned(), text.clone())).collect()
    }
}

/// A line with those it goes on into, as characters with their places.
struct Line(Vec<(usize, char)>);

impl Line {
    /// Words with their places.
    fn words(&self) -> Vec<(String, Range<usize>)> {
        let mut found: Vec<(String, Range<usize>)> = Vec::new();
        let mut inside = false;
        for &(at, character) in &self.0 {
            if character.is_whitespace() {
                inside = false;
                continue;
            }
            let end = at + character.len_utf8();
            match found.last_mut() {
                Some((word, range)) if inside => {
                    word.push(character);
                    range.end = end;
                }
                _ => found.push((character.to_string(), at..end)),
            }
            inside = true;
        }
        found
    }
}

/// Lines that are not comments. A backslash at a line's end joins it with the next, without a blank between.
fn lines(text: &str) -> Vec<Line> {
    let mut found = vec![Line(Vec::new())];
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some((_, '\n'))) => {
                characters.next();
            }
            ('\n', _) => found.push(Line(Vec::new())),
            _ => {
                if let Some(line) = found.last_mut() {
                    line.0.push((at, character));
                }
            }
        }
    }
    found.retain(|line| line.words().first().is_some_and(|(word, _)| !word.starts_with('#')));
    found
}

fn last_setting(path: &str, text: &str, module: &str, parameter: &str) -> Option<Setting> {
    let mut last = None;
    for line in lines(text) {
        let words = line.words();
        let [(command, _), (name, _), options @ ..] = &words[..] else { continue };
        if command != "options" || name.replace('-', "_") != module {
            continue;
        }
        for (word, range) in options {
            let (name, value) = word.split_once('=').unwrap_or((word, "1"));
            if name.replace('-', "_") == parameter {
                last = Some(Setting {
                    path: path.to_owned(),
                    value: value.to_owned(),
                    name: name.to_owned(),
                    word: range.clone(),
                });
            }
        }
    }
    last
}

#[cfg(test)]
#[path = "modprobe_tests.rs"]
mod tests;
