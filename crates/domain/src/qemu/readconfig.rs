//! The files of `-readconfig`: groups such as `[device "net0"]` with lines `key = "value"`.

use super::command::cut;
use super::properties::Property;

/// A group.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    /// The option to which it corresponds.
    pub(super) name: String,
    /// Its first line as written.
    pub(super) header: String,
    /// The number of that line, from 1.
    pub(super) line: usize,
    /// Its properties; the name in the header is `id`.
    pub(super) properties: Vec<Property>,
    /// The line of each property, with its number.
    pub(super) lines: Vec<(usize, String)>,
}

impl Group {
    fn add(&mut self, key: &str, value: &str, line: usize, shown: &str) {
        let property = Property {
            key: key.to_owned(),
            value: value.to_owned(),
            value_at: 0..0,
            whole: 0..0,
            pair: true,
        };
        self.properties.push(property);
        self.lines.push((line, shown.to_owned()));
    }
}

/// The groups of a file, parsed like `qemu_config_foreach` in QEMU's `util/qemu-config.c`.
pub(super) fn groups(text: &str, path: &str, doubts: &mut Vec<String>) -> Vec<Group> {
    let mut found: Vec<Group> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let header = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        match (header, pair, found.last_mut()) {
            (Some(header), _, _) => {
                let (name, id) = header.split_once(' ').unwrap_or((header, ""));
                let mut group = Group {
                    name: name.trim().to_owned(),
                    header: line.to_owned(),
                    line: number,
                    ..Group::default()
                };
                let id = id.trim().trim_matches('"');
                if !id.is_empty() {
                    group.add("id", id, number, line);
                }
                found.push(group);
            }
            (None, Some((key, value)), Some(group)) => {
                let value =
                    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
                group.add(key, value, number, line);
            }
            _ if doubts.len() < 100 => {
                let what = "is neither a group such as [device \"net0\"] nor a line key = \"value\" of one";
                doubts.push(format!("{path}, line {number}: {} {what}.", cut(line)));
            }
            _ => {}
        }
    }
    for group in &mut found {
        // Groups whose names differ from those of the options.
        match group.name.as_str() {
            "smp-opts" => group.name = "smp".to_owned(),
            "memory" => group.name = "m".to_owned(),
            _ => {}
        }
    }
    found
}
