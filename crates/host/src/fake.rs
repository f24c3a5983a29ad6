//! Fake hosts for tests, each described by one text.
//!
//! ```text
//! Everything before the first entry is a comment.
//! == /proc/sys/kernel/osrelease
//! 6.12.107
//! == /proc/cpuinfo repeat=4
//! processor : {n}
//! == /sys/class/iommu/ivhd{n}/amd-iommu/features each=2
//! 25bf732fa2295afe
//! == /proc/4000/cmdline arguments
//! qemu-system-x86_64
//! -nodefaults
//! == /proc/4000/exe -> /usr/bin/qemu-system-x86_64
//! == /sys/module/irqbypass/
//! == /dev/kvm mode=0660 group=36 error=13
//! ```
//!
//! `repeat=N` writes the text N times into one file and `each=N` makes N entries; `{n}` counts from 0 in
//! both, also in paths and targets of links. `arguments` adds a NUL after each line. A path that ends with a
//! slash is a directory. With `error=N`, reading, listing or opening the path fails with that errno.

use crate::Root;
use crate::root::{Kind, Ownership, Tree};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// The fake hosts of this crate, by name.
pub const HOSTS: &[(&str, &str)] = &[
    ("container", include_str!("../tests/hosts/container.host")),
    ("guest", include_str!("../tests/hosts/guest.host")),
    ("ivy-bridge", include_str!("../tests/hosts/ivy-bridge.host")),
    ("lockdown", include_str!("../tests/hosts/lockdown.host")),
    ("sapphire-rapids", include_str!("../tests/hosts/sapphire-rapids.host")),
    ("xen-dom0", include_str!("../tests/hosts/xen-dom0.host")),
    ("xen-lab", include_str!("../tests/hosts/xen-lab.host")),
    ("zen2", include_str!("../tests/hosts/zen2.host")),
    ("zen4", include_str!("../tests/hosts/zen4.host")),
];

/// One of [`HOSTS`]; `None` for another name.
#[must_use]
pub fn host(name: &str) -> Option<Root> {
    HOSTS.iter().find(|(known, _)| *known == name).map(|(_, text)| root(text))
}

/// The host of a text. An entry replaces an earlier one with the same path, so a test can append its own
/// entries.
#[must_use]
pub fn root(text: &str) -> Root {
    Root::kept(tree(text))
}

/// Writes a host into a directory, for code that needs one. Errors and owners are left out.
///
/// # Errors
/// If the directory cannot be written.
pub fn unpack(text: &str, directory: &Path) -> io::Result<()> {
    for (path, node) in tree(text).nodes() {
        let place = directory.join(path.trim_start_matches('/'));
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        match &node.kind {
            Kind::Directory | Kind::Name => fs::create_dir_all(&place)?,
            Kind::Link(target) => symlink(target, &place)?,
            Kind::File(bytes) => {
                fs::write(&place, bytes)?;
                if let Some(ownership) = node.ownership {
                    fs::set_permissions(&place, fs::Permissions::from_mode(ownership.mode))?;
                }
            }
        }
    }
    Ok(())
}

fn tree(text: &str) -> Tree {
    let mut tree = Tree::default();
    for entry in format!("\n{text}").split("\n== ").skip(1) {
        let (head, body) = entry.split_once('\n').unwrap_or((entry, ""));
        let mut words = head.split_whitespace();
        let Some(path) = words.next() else { continue };
        let words: Vec<&str> = words.collect();
        let number = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
            u32::from_str_radix(value, if name == "mode" { 8 } else { 10 }).ok()
        };
        let body = if body.is_empty() { String::new() } else { format!("{}\n", body.trim_end_matches('\n')) };
        for each in 0..number("each").unwrap_or(1) {
            let count = |text: &str, at: u32| text.replace("{n}", &at.to_string());
            let kind = match words.as_slice() {
                ["->", target, ..] => Kind::Link(count(target, each).into()),
                _ if path.ends_with('/') => Kind::Directory,
                words if words.contains(&"arguments") => Kind::File(body.replace('\n', "\0").into_bytes()),
                _ => {
                    let repeated = (0..number("repeat").unwrap_or(1)).map(|at| match number("each") {
                        Some(_) => count(&body, each),
                        None if number("repeat").is_some() => count(&body, at),
                        None => body.clone(),
                    });
                    Kind::File(repeated.collect::<String>().into_bytes())
                }
            };
            let node = tree.make(count(path, each).trim_end_matches('/'));
            node.kind = kind;
            node.error = number("error").map(u32::cast_signed);
            node.ownership = number("mode").map(|mode| Ownership {
                mode,
                user: number("user").unwrap_or(0),
                group: number("group").unwrap_or(0),
            });
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a comment\n== /a repeat=2\nx {n}\n== /b{n}/c each=2\ny{n}\n== /d arguments\none\ntwo\n\
        == /e -> /f\n== /g/\n== /h mode=0640 group=3 error=13\n";

    #[test]
    fn every_kind_of_entry() {
        let root = root(TEXT);
        assert_eq!(root.read("/a").unwrap(), b"x 0\nx 1\n");
        assert_eq!(root.read("/b1/c").unwrap(), b"y1\n");
        assert_eq!(root.read("/d").unwrap(), b"one\0two\0");
        assert_eq!(root.link("/e").unwrap(), Path::new("/f"));
        assert!(root.is_directory("/g") && root.is_directory("/b0"));
        assert_eq!(root.open_device("/h").unwrap_err().raw_os_error(), Some(13));
        assert_eq!(root.ownership("/h").unwrap(), Ownership { mode: 0o640, user: 0, group: 3 });
    }

    #[test]
    fn a_host_in_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        unpack(TEXT, directory.path()).unwrap();
        let root = Root::directory(directory.path());
        assert_eq!(root.read("/b1/c").unwrap(), b"y1\n");
        assert_eq!(root.link("/e").unwrap(), Path::new("/f"));
        assert!(!root.is_live() && host("zen4").is_some() && host("none").is_none());
    }
}
