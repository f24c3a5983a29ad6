//! Boot entries that `kernel-install` writes, one for each kernel.
//!
//! The kernels are looked up when the entries are written and again when the change is undone, because updates may install
//! and remove kernels in between.

use files::Inside;
use std::fs;
use std::path::Path;

/// The stand-in for `kernel-install add` of each kernel. systemd has this command only since 257, and only for images
/// below `/usr/lib/modules`.
pub const ADD_ALL: [&str; 2] = ["kernel-install", "add-all"];

/// The mount points of boot partitions.
const PLACES: [&str; 3] = ["/boot", "/efi", "/boot/efi"];
const MODULES: &str = "/usr/lib/modules";
/// The size limit; entries have a few hundred bytes.
const LARGEST: u64 = 1 << 20;

/// The commands to run for a change's command on the host below `root`: usually just that command.
#[must_use]
pub fn commands(root: &Path, words: &[String]) -> Vec<Vec<String>> {
    if words.first().is_none_or(|program| program != ADD_ALL[0]) {
        return vec![words.to_vec()];
    }
    let add = |(release, image): (String, String)| vec![words[0].clone(), "add".to_owned(), release, image];
    kernels(root).into_iter().map(add).collect()
}

/// Entries of the boot loader specification on the host below `root`: paths and texts, sorted by path. Unreadable ones are
/// omitted.
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

/// The names in a directory; none if it cannot be read.
fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = Inside::find(root, folder, true).and_then(|found| fs::read_dir(found.path()));
    let names = entries.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The release and image of each installed kernel that has a boot entry.
fn kernels(root: &Path) -> Vec<(String, String)> {
    let entries = boot_entries(root);
    let mut found = Vec::new();
    for release in names(root, MODULES) {
        let says = |line: &str| line.split_whitespace().eq(["version", release.as_str()]);
        let has_entry = entries.iter().any(|(_, text)| text.lines().any(says));
        // Debian installs the image in /boot.
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
        // Journals of earlier versions name a release.
        assert_eq!(
            commands(root.path(), &words("kernel-install add 6.0 /usr/lib/modules/6.0/vmlinuz")),
            expected
        );
        assert_eq!(commands(root.path(), &words("update-grub")), [words("update-grub")]);
    }
}
