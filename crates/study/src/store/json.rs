//! Reading the JSON files of a result, and comparing their contents.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use host::Difference;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest accepted file, far above the size of any `run.json` or `study.json`.
const LARGEST: u64 = 64 << 20;

/// Reads a JSON file; the error names the byte at which it is damaged.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    value(path, bytes(path))
}

/// The value in the content of a file.
pub(super) fn value<T: DeserializeOwned>(path: &Path, content: io::Result<Vec<u8>>) -> Result<T, String> {
    let bytes = content.map_err(|error| format!("{}: could not be read: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let offset = offset(&bytes, error.line(), error.column());
        format!("{}: damaged at byte {offset}: {error}", path.display())
    })
}

/// Tests whether a file that could not be read may be whole, as with too many open files or an error of its disk.
pub(super) fn may_be_whole(error: &io::Error) -> bool {
    let is_none = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    error.raw_os_error().is_some() && !is_none
}

/// The content of a file of at most [`LARGEST`] bytes. The folder may be somebody else's, who could replace the file: a
/// link is not followed, and a FIFO does not block.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::LOOP) => None,
        opened => Some(File::from(opened?)),
    };
    let is_regular = |file: &File| file.metadata().is_ok_and(|about| about.is_file());
    let file = opened.filter(is_regular).ok_or_else(|| io::Error::other("it is not a regular file"))?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20)));
    }
    Ok(bytes)
}

/// The byte offset of a line and a column, which are counted from 1.
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        bytes.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)).min(bytes.len())
}

/// Fields in which two values differ, each as `field was A, is B`.
pub(crate) fn differences<T: Serialize>(then: &T, now: &T) -> Vec<String> {
    unlike(then, now).iter().map(told).collect()
}

/// A field that differs as `field was A, is B`.
pub(crate) fn told((field, then, now): &Difference) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
    format!("{field} was {}, is {}", shown(then), shown(now))
}

/// Fields in which two values differ, with both values.
pub(crate) fn unlike<T: Serialize>(then: &T, now: &T) -> Vec<Difference> {
    let leaves = |value: &T| {
        let mut leaves = BTreeMap::new();
        collect(String::new(), &serde_json::to_value(value).unwrap_or_default(), &mut leaves);
        leaves
    };
    host::between(&leaves(then), &leaves(now))
}

fn collect(name: String, value: &Value, leaves: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                collect(format!("{name}{dot}{key}"), value, leaves);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(format!("{name}[{index}]"), value, leaves);
            }
        }
        Value::Null => {}
        other => {
            leaves.insert(name, other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use serde_json::json;

    #[test]
    fn fields_that_differ_are_named_with_both_values() {
        let then = json!({"order": {"repeats": 4}, "levels": ["a", "b"], "seed": null});
        let now = json!({"order": {"repeats": 5}, "levels": ["a"]});
        assert_eq!(
            differences(&then, &now),
            ["levels[1] was \"b\", is not there", "order.repeats was 4, is 5"]
        );
        assert_eq!(differences(&then, &then), Vec::<String>::new());
    }

    #[test]
    fn a_link_is_not_followed_and_a_fifo_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link, fifo] = ["real.json", "link.json", "fifo.json"].map(|name| folder.path().join(name));
        std::fs::write(&real, "1").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read::<u32>(&real), Ok(1));
        for path in [&link, &fifo] {
            let error = read::<u32>(path).unwrap_err();
            assert!(error.ends_with("could not be read: it is not a regular file"), "{error}");
        }
    }

    #[test]
    fn damage_is_told_by_its_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, "{\n \"a\": 1,\n \"b\": }").unwrap();
        let error = read::<Value>(&path).unwrap_err();
        assert!(error.contains("damaged at byte 17"), "{error}");
        std::fs::write(&path, "{\"a\": ").unwrap();
        assert!(read::<Value>(&path).unwrap_err().contains("damaged at byte 5"));
    }
}
