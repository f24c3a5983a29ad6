//! The configuration of modprobe for KVM's modules.

use crate::Root;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// A line of modprobe's configuration (modprobe.d(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModprobeLine {
    /// The file.
    pub file: String,
    /// The line's number, from 1.
    pub line: u32,
    /// Its first word: `options`, `blacklist`, `install`, `softdep`, `alias`, `remove`.
    pub command: String,
    /// The module, with `_` instead of `-`.
    pub module: String,
    /// The rest of the line: for `options` the parameters.
    pub rest: String,
    /// The file of the same name that is read instead of this one, if any.
    pub hidden_by: Option<String>,
}

/// The directories, in the order of precedence: a file hides those of the same name in later ones
/// (modprobe.d(5)).
const FOLDERS: &[&str] = &[
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
];
const COMMANDS: &[&str] = &["options", "blacklist", "install", "remove", "softdep", "weakdep", "alias"];

/// A file of modprobe's configuration.
#[derive(Debug)]
pub struct ModprobeFile {
    /// Its name; modprobe reads files in the order of their names.
    pub name: String,
    /// Its path.
    pub path: String,
    /// The file of the same name that is read instead of this one, if any.
    pub hidden_by: Option<String>,
    /// Its bytes.
    pub content: io::Result<Vec<u8>>,
}

impl ModprobeFile {
    /// All files, in the order in which modprobe reads them.
    #[must_use]
    pub fn all(root: &Root) -> Vec<Self> {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let mut files: Vec<(String, String, Option<String>)> = Vec::new();
        let mut before = Vec::new();
        for folder in FOLDERS {
            let names = root.entries(folder, |name| name.ends_with(".conf") && !name.starts_with('.'));
            let names = names.unwrap_or_default();
            if *folder == "/lib/modprobe.d" && names == before {
                // `/lib` is usually a link to `/usr/lib`: a file does not hide itself.
                root.forget(folder);
                continue;
            }
            before.clone_from(&names);
            for name in names {
                let path = format!("{folder}/{name}");
                let hidden_by = first.get(&name).cloned();
                first.entry(name.clone()).or_insert_with(|| path.clone());
                files.push((name, path, hidden_by));
            }
        }
        files.sort();
        let read = |(name, path, hidden_by): (String, String, Option<String>)| Self {
            content: root.read(&path),
            name,
            path,
            hidden_by,
        };
        files.into_iter().map(read).collect()
    }
}

impl ModprobeLine {
    /// The lines about these modules (names with `_`), from the files in the order in which modprobe reads
    /// them.
    pub(super) fn read(root: &Root, modules: &[&str]) -> Vec<Self> {
        let mut found = Vec::new();
        for file in ModprobeFile::all(root) {
            let Ok(content) = &file.content else { continue };
            let lines: Vec<Self> = parse(content)
                .into_iter()
                .filter(|line| modules.contains(&line.module.as_str()))
                .map(|line| Self { file: file.path.clone(), hidden_by: file.hidden_by.clone(), ..line })
                .collect();
            if lines.is_empty() {
                // Do not record files about other modules.
                root.forget(&file.path);
            }
            found.extend(lines);
        }
        found
    }

    /// The value that an `options` line gives a parameter. `-` and `_` are equal, a parameter without a value is `1`, and
    /// the last occurrence counts.
    #[must_use]
    pub fn value(&self, parameter: &str) -> Option<&str> {
        let words = self.rest.split(' ').filter(|_| self.command == "options");
        words.filter_map(|word| value_of(word, parameter)).next_back()
    }
}

/// A word of modprobe's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModprobeWord {
    /// The word; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Its place in the file.
    pub place: Range<usize>,
}

impl ModprobeWord {
    /// The value that it gives a module's parameter, by the rules of [`ModprobeLine::value`].
    #[must_use]
    pub fn value(&self, parameter: &str) -> Option<&str> {
        value_of(&self.text, parameter)
    }
}

fn value_of<'a>(word: &'a str, parameter: &str) -> Option<&'a str> {
    let (name, value) = word.split_once('=').unwrap_or((word, "1"));
    (name.replace('-', "_") == parameter).then_some(value)
}

/// The words of each line that is not a comment, with the line's number, from 1. A backslash at the end of a line joins
/// it with the next one, without a blank between; elsewhere it is removed (kmod's shared/util.c, `freadline_wrapped`).
#[must_use]
pub fn modprobe_lines(content: &[u8]) -> Vec<(u32, Vec<ModprobeWord>)> {
    let mut found = Vec::new();
    let mut bytes = content.iter().copied().enumerate().peekable();
    let mut number = 0;
    while bytes.peek().is_some() {
        number += 1;
        let first = number;
        let mut words: Vec<(Vec<u8>, Range<usize>)> = Vec::new();
        let mut inside = false;
        while let Some((at, mut byte)) = bytes.next() {
            let mut end = at + 1;
            if byte == b'\\' {
                match bytes.next() {
                    None => break,
                    Some((_, b'\n')) => {
                        number += 1;
                        continue;
                    }
                    Some((_, escaped)) => (byte, end) = (escaped, at + 2),
                }
            } else if byte == b'\n' {
                break;
            }
            if byte.is_ascii_whitespace() {
                inside = false;
                continue;
            }
            match words.last_mut() {
                Some((word, place)) if inside => {
                    word.push(byte);
                    place.end = end;
                }
                _ => words.push((vec![byte], at..end)),
            }
            inside = true;
        }
        if words.first().is_some_and(|(word, _)| word[0] != b'#') {
            let word = |(bytes, place): (Vec<u8>, Range<usize>)| ModprobeWord {
                text: String::from_utf8_lossy(&bytes).into_owned(),
                place,
            };
            found.push((first, words.into_iter().map(word).collect()));
        }
    }
    found
}

fn parse(content: &[u8]) -> Vec<ModprobeLine> {
    let mut found = Vec::new();
    for (line, words) in modprobe_lines(content) {
        let [command, module, rest @ ..] = &words[..] else { continue };
        if COMMANDS.contains(&command.text.as_str()) {
            let rest: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
            found.push(ModprobeLine {
                file: String::new(),
                line,
                command: command.text.clone(),
                module: module.text.replace('-', "_"),
                rest: rest.join(" "),
                hidden_by: None,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{Kind, Tree};

    #[test]
    fn files_hide_those_of_the_same_name() {
        let mut tree = Tree::default();
        for (path, text) in [
            (
                "/etc/modprobe.d/kvm.conf",
                "# options kvm_amd avic=0\noptions kvm-amd avic=1 \\\n  nested=0\nblacklist x\n",
            ),
            ("/usr/lib/modprobe.d/kvm.conf", "options kvm_amd avic=0\n"),
            ("/usr/lib/modprobe.d/a.conf", "options kvm_intel nested=1\n"),
            ("/usr/lib/modprobe.d/b.conf", "options snd index=1\n"),
            ("/usr/lib/modprobe.d/README", "options kvm_amd avic=0\n"),
        ] {
            tree.make(path).kind = Kind::File(text.as_bytes().to_vec());
        }
        let root = Root::kept(tree).recording();
        let found = ModprobeLine::read(&root, &["kvm_amd", "kvm_intel"]);
        let told: Vec<_> = found
            .iter()
            .map(|line| (line.file.as_str(), line.line, line.rest.as_str(), line.hidden_by.as_deref()))
            .collect();
        let own = "/etc/modprobe.d/kvm.conf";
        let expected = [
            ("/usr/lib/modprobe.d/a.conf", 1, "nested=1", None),
            (own, 2, "avic=1 nested=0", None),
            ("/usr/lib/modprobe.d/kvm.conf", 1, "avic=0", Some(own)),
        ];
        assert_eq!(told, expected);
        let record = root.into_record();
        assert!(record.node(own).is_some() && record.node("/usr/lib/modprobe.d/b.conf").is_none());
    }

    #[test]
    fn a_line_that_goes_on_into_nothing() {
        assert_eq!(parse(b"options kvm a=1 \\")[0].rest, "a=1");
        assert!(parse(b"options\n\nodd kvm\n\\").is_empty());
    }

    #[test]
    fn words_have_their_places_whatever_their_bytes() {
        let content = b"# f\xfcr\nopt\\\nions kvm-amd av\\\nic=\xfc npt\n\noptions kvm_amd\tnested=0";
        let lines = modprobe_lines(content);
        let numbers: Vec<u32> = lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 6]);
        let avic = &lines[0].1[2];
        assert_eq!(
            (&content[avic.place.clone()], avic.value("avic")),
            (&b"av\\\nic=\xfc"[..], Some("\u{fffd}"))
        );
        let parsed = parse(content);
        assert_eq!(
            (parsed[0].line, parsed[0].module.as_str(), parsed[0].value("npt")),
            (2, "kvm_amd", Some("1"))
        );
        assert_eq!((parsed[1].line, parsed[1].value("nested"), parsed[1].value("npt")), (6, Some("0"), None));
    }

    #[test]
    fn the_last_value_of_a_parameter_counts_however_it_is_written() {
        for (line, value) in [
            ("options kvm_amd avic=0 avic=1", Some("1")),
            ("options kvm-amd avic", Some("1")),
            ("options kvm_amd enable-apicv=0", None),
            ("options kvm_amd enable-avic=0 avic_x=0", None),
            ("options kvm_amd av\\\nic=off", Some("off")),
            ("options kvm_amd avic=1\\\nnpt=0", Some("1npt=0")),
            ("softdep kvm_amd avic=0", None),
        ] {
            assert_eq!(parse(line.as_bytes())[0].value("avic"), value, "{line}");
        }
        assert_eq!(parse(b"options kvm_intel enable-apicv=0")[0].value("enable_apicv"), Some("0"));
    }
}
