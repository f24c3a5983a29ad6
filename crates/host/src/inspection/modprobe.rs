//! The configuration of modprobe for KVM's modules.

use crate::Root;
use std::collections::BTreeMap;

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

/// In the order of precedence: a file hides those of the same name in later folders (modprobe.d(5)).
const FOLDERS: &[&str] = &[
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
];
const COMMANDS: &[&str] = &["options", "blacklist", "install", "remove", "softdep", "weakdep", "alias"];

impl ModprobeLine {
    /// The lines on these modules (names with `_`), with files in the order of their names, as modprobe reads
    /// them.
    pub(super) fn read(root: &Root, modules: &[&str]) -> Vec<Self> {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let mut files: Vec<(String, String, Option<String>)> = Vec::new();
        let mut before = Vec::new();
        for folder in FOLDERS {
            let names = root.entries(folder, |name| name.ends_with(".conf")).unwrap_or_default();
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
        let mut found = Vec::new();
        for (_, path, hidden_by) in files {
            let Ok(text) = root.text(&path, "lines of modprobe.d") else { continue };
            let lines = parse(&text).into_iter().filter(|line| modules.contains(&line.module.as_str()));
            let lines: Vec<Self> =
                lines.map(|line| Self { file: path.clone(), hidden_by: hidden_by.clone(), ..line }).collect();
            if lines.is_empty() {
                // Files on other modules are not recorded.
                root.forget(&path);
            }
            found.extend(lines);
        }
        found
    }
}

fn parse(text: &str) -> Vec<ModprobeLine> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let mut whole = line.trim().to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            whole.push(' ');
            whole.push_str(next.trim());
        }
        let mut words = whole.split_whitespace();
        let Some(command) = words.next().filter(|word| COMMANDS.contains(word)) else { continue };
        let Some(module) = words.next() else { continue };
        found.push(ModprobeLine {
            file: String::new(),
            line: number,
            command: command.to_owned(),
            module: module.replace('-', "_"),
            rest: words.collect::<Vec<_>>().join(" "),
            hidden_by: None,
        });
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
        assert_eq!(parse("options kvm a=1 \\")[0].rest, "a=1");
        assert!(parse("options\n\nodd kvm\n\\").is_empty());
    }
}
