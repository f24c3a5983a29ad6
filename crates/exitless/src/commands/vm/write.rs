//! Writes a fixed definition back in a way that can be undone.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use domain::Text;
use files::{Directory, Missing, Replacement};
use knobs::{Change, Changes, Content, Lasting, RunningHost};
use rustix::fs::{OFlags, readlinkat};
use rustix::io::Errno;

use super::subject::virsh;
use crate::command_line::command_line;
use crate::status::Usage;

/// The way in which a change was written, and can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// The change is in the journal; `exitless restore` undoes it.
    Journalled,
    /// There is no journal, because the user is not root or it cannot be written; the old text is in a file
    /// next to the new one.
    KeptBeside {
        /// The file that was written, after resolving links.
        new: PathBuf,
        /// The file with the old text.
        old: PathBuf,
    },
}

/// The folder of domain definitions for `exitless restore`. The directory above is readable only by root,
/// because definitions may contain passwords.
const DOMAINS: &str = "/var/lib/exitless/domains";

/// The number of links that the kernel follows (`MAXSYMLINKS`, include/linux/namei.h).
const MOST_LINKS: u32 = 40;

/// Replaces a file that still has the content `old`, atomically; mode and owner are kept.
pub(super) fn file(path: &Path, old: &[u8], bytes: &[u8]) -> anyhow::Result<Written> {
    let path = resolved(path).with_context(|| format!("Finding {} failed", path.display()))?;
    let name = path.to_str().ok_or_else(|| anyhow!("{} is not a UTF-8 path. Rename it", path.display()))?;
    // Only root may write the journal and run `exitless restore`.
    if !rustix::process::geteuid().is_root() {
        return beside(&path, old, bytes);
    }
    let mut changes = match journal() {
        Ok(changes) => changes,
        Err(knobs::Error::JournalWrite { .. }) => return beside(&path, old, bytes),
        Err(error) => return Err(error.into()),
    };
    let change = Change::File { path: name.to_owned(), content: Content(bytes.to_vec()) };
    changes.make_from(Some(&Content(old.to_vec())), change, Lasting::UntilRestored)?;
    Ok(Written::Journalled)
}

/// The place of a file, to replace the target of a link and not the link. Does not follow a link that others can have
/// created.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = Directory::open(folder.unwrap_or(Path::new(".")), Missing::Refused);
        let folder = folder.map_err(files::Error::into_io)?;
        // The absolute path, without `..`.
        let above = fs::read_link(folder.itself())?;
        let place = above.join(name);
        match readlinkat(&folder, name, Vec::new()) {
            Ok(_) if !folder.is_ours()? => {
                let why = "it is a link in a directory that others can write to: name its target";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(target) => path = above.join(OsString::from_vec(target.into_bytes())),
            Err(Errno::INVAL) => return Ok(place),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::LOOP.into())
}

fn journal() -> Result<Changes<RunningHost>, knobs::Error> {
    Changes::begin(Path::new("/"), RunningHost, command_line())
}

/// Replaces a file atomically, and keeps the old one under a new name.
fn beside(path: &Path, old: &[u8], bytes: &[u8]) -> anyhow::Result<Written> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let reading = || format!("Reading {} failed", path.display());
    // By descriptor: root's fallback must not follow links that the folder's owner puts there meanwhile.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = Directory::open(folder, Missing::Refused).with_context(reading)?;
    let (found, about) = content(&folder, name, old.len()).with_context(reading)?;
    if found != old {
        return Err(knobs::Error::Outdated { what: path.display().to_string() }.into());
    }
    let kept = keep(&folder, name, old, &about)
        .with_context(|| format!("Keeping the old {} beside it failed", path.display()))?;
    let write = || -> io::Result<()> {
        let new = Replacement::within(folder, name.as_ref(), 0o600)?;
        fill(new.file(), bytes, &about)?;
        new.finish()
    };
    write().with_context(|| format!("Writing {} failed; the old text is intact", path.display()))?;
    Ok(Written::KeptBeside { new: path.to_owned(), old: path.with_file_name(kept) })
}

/// The content of a file, with at most one byte more than expected.
fn content(folder: &Directory, name: &str, expected: usize) -> io::Result<(Vec<u8>, Metadata)> {
    let file = folder.open_file(name, OFlags::RDONLY, 0)?;
    let about = file.metadata()?;
    let mut found = Vec::new();
    file.take(expected as u64 + 1).read_to_end(&mut found)?;
    Ok((found, about))
}

/// Writes the old text to a new file, under the first free name with the suffix `.orig`.
fn keep(folder: &Directory, name: &str, old: &[u8], about: &Metadata) -> io::Result<String> {
    for number in 0..1000 {
        let kept = if number == 0 { format!("{name}.orig") } else { format!("{name}.orig.{number}") };
        match folder.open_file(&kept, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return fill(&file, old, about).map(|()| kept),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "all names up to .orig.999 are taken"))
}

/// Fills a new file, with the owner and permissions of another one.
fn fill(mut file: &File, bytes: &[u8], like: &Metadata) -> io::Result<()> {
    file.write_all(bytes)?;
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
        fchown(file, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    file.sync_all()
}

/// Passes the new definition of a domain to libvirt. `fixed` makes it from the persistent definition with the passwords
/// that `virsh dumpxml` omits by default.
pub(super) fn domain(
    name: &str,
    fixed: impl FnOnce(&Text) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Written> {
    let found = programs::virsh::domain(name, |words| {
        asked(name, words).map(|listed| String::from_utf8_lossy(&listed).into_owned())
    })?;
    let domain = found.ok_or_else(|| {
        Usage(format!("libvirt has no domain {name:?}. `virsh list --all` lists its domains."))
    })?;
    // `virsh define` would make a transient domain persistent, and whatever creates it would still use the
    // old definition.
    let about = asked(name, &["dominfo", "--domain", &domain])?;
    if is_transient(&String::from_utf8_lossy(&about)) {
        return Err(Usage(format!(
            "libvirt keeps no definition of {name}: the domain is transient and ends when it stops. Change what \
             starts it: the file of `virsh create`, or the settings of the program that made it. `exitless vm lint \
             libvirt:{name}` says what to change."
        ))
        .into());
    }
    let dump = asked(name, &["dumpxml", "--inactive", "--security-info", "--domain", &domain])?;
    let old = Text::new(format!("libvirt domain {name}"), dump);
    let new = fixed(&old)?;
    // `exitless restore` passes the name of the file to virsh.
    let [before, after] = ["before", "after"].map(|when| format!("{DOMAINS}/{domain}.{when}.xml"));
    let define = |path: &str| Some(vec!["virsh".to_owned(), "define".to_owned(), path.to_owned()]);
    let steps = vec![
        Change::File { path: before.clone(), content: Content(old.bytes.clone()) },
        Change::File { path: after.clone(), content: Content(new) },
        Change::Command { run: define(&after), undo: define(&before) },
    ];
    journal()?.make_together_from(&old.bytes, steps, Lasting::UntilRestored).with_context(|| {
        format!(
            "Giving libvirt the new definition of {name} failed. If libvirt is too old for a part of it: `exitless vm fix \
             libvirt:{name}` notes the versions that parts need, and `--rule NAME` makes the changes of one rule alone"
        )
    })?;
    Ok(Written::Journalled)
}

/// The output of virsh about a domain.
fn asked(name: &str, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let said = virsh(words).with_context(|| {
        format!(
            "Running virsh failed. Save the definition to a file, fix it with `exitless vm fix FILE --apply`, and give \
             it to libvirt where virsh is, by `virsh define FILE` (domain {name})"
        )
    })?;
    said.output().map_err(|said| anyhow!("`virsh {}` failed: {said}", words.join(" ")))
}

/// Tests whether `virsh dominfo` describes a transient domain, of which libvirt keeps no definition.
fn is_transient(about: &str) -> bool {
    let persistent = about.lines().find_map(|line| line.strip_prefix("Persistent:"));
    persistent.is_some_and(|value| value.trim() == "no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_journal_the_old_text_is_kept_beside_and_no_copy_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.xml");
        fs::write(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        for (number, (old, new)) in [("one", "two"), ("two", "three")].into_iter().enumerate() {
            let Written::KeptBeside { old: kept, .. } =
                beside(&path, old.as_bytes(), new.as_bytes()).unwrap()
            else {
                panic!("{number}")
            };
            assert_eq!(fs::read_to_string(&kept).unwrap(), old);
            assert_eq!(fs::read_to_string(&path).unwrap(), new);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        }
        let changed = beside(&path, b"two", b"four").unwrap_err();
        assert!(changed.to_string().contains("try again"), "{changed}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(beside(&folder.path().join("none"), b"", b"").is_err());
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "`make test` lists what was not tested")]
    fn without_a_journal_both_texts_keep_the_owner_and_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.xml");
        fs::write(&path, "old").unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_err() {
            return println!("not tested: giving a file to another user needs root");
        }
        let written = beside(&path, b"old", b"new").unwrap();
        let Written::KeptBeside { new, old } = written else { panic!("{written:?}") };
        for (path, text) in [(old, "old"), (new, "new")] {
            let about = fs::metadata(&path).unwrap();
            assert_eq!((about.uid(), about.gid()), (12_345, 54_321), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    /// A folder of this user, and one that all users may write to.
    fn folders(above: &Path) -> [PathBuf; 2] {
        let folders = ["ours", "theirs"].map(|name| above.join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::set_permissions(&folders[1], Permissions::from_mode(0o777)).unwrap();
        folders
    }

    #[test]
    fn without_a_journal_no_link_in_a_folder_of_others_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = folders(folder.path());
        fs::write(ours.join("vm.xml"), "old").unwrap();
        std::os::unix::fs::symlink(&ours, theirs.join("vms")).unwrap();
        std::os::unix::fs::symlink(ours.join("vm.xml"), theirs.join("vm.xml")).unwrap();
        for path in ["vms/vm.xml", "vm.xml"] {
            beside(&theirs.join(path), b"old", b"new").unwrap_err();
        }
        assert_eq!(fs::read_to_string(ours.join("vm.xml")).unwrap(), "old");
        assert_eq!(fs::read_dir(&ours).unwrap().count(), 1);
    }

    #[test]
    fn a_link_leads_to_its_target_unless_others_can_have_put_it_there() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = folders(folder.path());
        let (file, link) = (ours.join("vm.xml"), ours.join("link.xml"));
        fs::write(&file, "old").unwrap();
        fs::write(theirs.join("file.xml"), "old").unwrap();
        std::os::unix::fs::symlink("../ours/vm.xml", &link).unwrap();
        std::os::unix::fs::symlink(&ours, theirs.join("vms")).unwrap();
        std::os::unix::fs::symlink(&file, theirs.join("vm.xml")).unwrap();
        let place = |path: &Path| fs::canonicalize(path).unwrap();
        for path in [&file, &link, &theirs.join("file.xml")] {
            assert_eq!(resolved(path).unwrap(), place(path), "{}", path.display());
        }
        for path in ["vms/vm.xml", "vm.xml"] {
            let error = resolved(&theirs.join(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}");
        }
        std::os::unix::fs::symlink("loop.xml", ours.join("loop.xml")).unwrap();
        resolved(&ours.join("loop.xml")).unwrap_err();
        resolved(&ours.join("none.xml")).unwrap_err();
    }
}
