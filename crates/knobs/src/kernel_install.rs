//! Boot entries that `kernel-install` writes, one for each kernel.
//!
//! The kernels are looked up when the entries are written, and again when that is undone: updates install and remove some in
//! between.

use files::Inside;
use std::fs;
use std::path::Path;

/// Stands for `kernel-install add` of each kernel. Only systemd from 257 on has such a command, and only for images below
/// `/usr/lib/modules`.
pub const ADD_ALL: [&str; 2] = ["kernel-install", "add-all"];

/// The mount points of boot partitions.
const PLACES: [&str; 3] = ["/boot", "/efi", "/boot/efi"];
const MODULES: &str = "/usr/lib/modules";
/// Entries have a few hundred bytes.
const LARGEST: u64 = 1 << 20;

/// The commands for which a command of a change stands on the host below `root`: mostly itself.
#[must_use]
pub fn commands(root: &Path, words: &[String]) -> Vec<Vec<String>> {
    if words.first().is_none_or(|program| program != ADD_ALL[0]) {
        return vec![words.to_vec()];
    }
    let add = |(release, image): (String, String)| vec![words[0].clone(), "add".to_owned(), release, image];
    kernels(root).into_iter().map(add).collect()
}

/// Entries of the boot loader specification on the host below `root`: path and text, by path. Those that may not be read are
/// left out.
#[must_use]
pub fn boot_entries(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for place in PLACES {
        let folder = format!("{place}/loader/entries");
        for name in names(root, &folder).into_iter().filter(|name| name.ends_with(".conf")) {
            let path = format!("{folder}/{name}");
            let bytes =
                Inside::find(root, &path, true).and_then(|found| files::read_start(&found.path(), LARGEST));
            let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
            found.extend(text.map(|text| (path, text)));
        }
    }
    found.sort();
    found
}

/// The names in a folder; none if it may not be read.
fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = Inside::find(root, folder, true).and_then(|found| fs::read_dir(found.path()));
    let names = entries.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Installed kernels that have an entry: release and image, by release.
fn kernels(root: &Path) -> Vec<(String, String)> {
    let entries = boot_entries(root);
    let mut found = Vec::new();
    for release in names(root, MODULES) {
        let says = |line: &str| line.split_whitespace().eq(["version", release.as_str()]);
        let has_entry = entries.iter().any(|(_, text)| text.lines().any(says));
        // Debian's packages have it in /boot.
        let images = [format!("{MODULES}/{release}/vmlinuz"), format!("/boot/vmlinuz-{release}")];
        let image = images.into_iter().find(|image| Inside::find(root, image, true).is_ok());
        found.extend(image.filter(|_| has_entry).map(|image| (release, image)));
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::under;

    #[test]
    fn each_kernel_with_an_image_and_an_entry_is_added() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("/usr/lib/modules/6.1/vmlinuz", ""),
            ("/usr/lib/modules/6.2/modules.dep", ""),
            ("/boot/vmlinuz-6.2", ""),
            ("/usr/lib/modules/6.3/vmlinuz", ""),
            ("/usr/lib/modules/6.4/modules.dep", ""),
            ("/boot/efi/loader/entries/m-6.1.conf", "title 6.1\nversion    6.1\n"),
            ("/boot/efi/loader/entries/m-6.2+3.conf", "version 6.2\n"),
            ("/boot/efi/loader/entries/m-6.4.conf", "version 6.4\n"),
            ("/boot/efi/loader/entries/own.conf", "title 6.3\n"),
        ] {
            let path = under(root.path(), path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let expected = [
            words("kernel-install add 6.1 /usr/lib/modules/6.1/vmlinuz"),
            words("kernel-install add 6.2 /boot/vmlinuz-6.2"),
        ];
        assert_eq!(commands(root.path(), &ADD_ALL.map(str::to_owned)), expected);
        // Journals of versions before say a release.
        assert_eq!(
            commands(root.path(), &words("kernel-install add 6.0 /usr/lib/modules/6.0/vmlinuz")),
            expected
        );
        assert_eq!(commands(root.path(), &words("update-grub")), [words("update-grub")]);
    }
}
