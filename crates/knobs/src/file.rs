//! Whole files: looked at, replaced at once, removed.

use crate::error::Error;
use crate::{Content, FileState, cut_short, under};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

/// Files that are larger are not configuration, and the journal would keep two copies of them.
const LARGEST: u64 = 4 << 20;
/// Of files that are made: everybody may read the configuration of modules and boot loaders.
const NEW_MODE: u32 = 0o644;

/// The file below `root`; `Err` for a path that could lead out of it.
pub(crate) fn place(root: &Path, path: &str) -> Result<PathBuf, Error> {
    let whole = Path::new(path);
    let plain = whole.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if whole.is_absolute() && plain && whole.file_name().is_some() {
        Ok(under(root, path))
    } else {
        Err(Error::Path { path: path.to_owned() })
    }
}

/// The file as it is; `None` when there is none.
pub(crate) fn look(path: &Path) -> Result<Option<FileState>, Error> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::access("look at", path)(error)),
    };
    if about.is_symlink() {
        let target = fs::read_link(path).unwrap_or_default();
        let found = format!("a symbolic link to {}", target.display());
        return Err(Error::Kind { path: path.to_owned(), found });
    }
    if !about.is_file() {
        return Err(Error::Kind { path: path.to_owned(), found: "no file".to_owned() });
    }
    if about.len() > LARGEST {
        return Err(Error::TooLarge { path: path.to_owned(), size: about.len(), limit: LARGEST });
    }
    let content = Content(fs::read(path).map_err(Error::access("read", path))?);
    let mode = about.permissions().mode() & 0o7777;
    Ok(Some(FileState { content, mode, user: about.uid(), group: about.gid() }))
}

/// Directories above the file that are not there, the outermost first, as paths of a running host.
pub(crate) fn missing_directories(root: &Path, path: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1);
    let lacking = above.take_while(|directory| !under(root, &directory.to_string_lossy()).is_dir());
    let mut missing: Vec<String> =
        lacking.map(|directory| directory.to_string_lossy().into_owned()).collect();
    missing.reverse();
    missing
}

pub(crate) fn make_directories(root: &Path, missing: &[String]) -> Result<(), Error> {
    for directory in missing {
        let directory = under(root, directory);
        cut_short::here()
            .and_then(|()| fs::create_dir(&directory))
            .or_else(|error| if directory.is_dir() { Ok(()) } else { Err(error) })
            .map_err(Error::access("make the directory", &directory))?;
        sync_above(&directory)?;
    }
    Ok(())
}

/// Removes directories that were made, where nothing else came into them.
pub(crate) fn remove_directories(root: &Path, made: &[String]) -> Result<(), Error> {
    for directory in made.iter().rev() {
        let directory = under(root, directory);
        match cut_short::here().and_then(|()| fs::remove_dir(&directory)) {
            Ok(()) => sync_above(&directory)?,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {}
            Err(error) => return Err(Error::access("remove the directory", &directory)(error)),
        }
    }
    Ok(())
}

/// Puts the file in place at once: whoever reads it sees the old one or the new one. `id` names the file beside it that
/// a crash could leave behind; [`clear`] removes that.
///
/// `like` gives owner and permissions; without, they are those of new configuration files.
pub(crate) fn replace(
    path: &Path,
    content: &Content,
    like: Option<&FileState>,
    id: u64,
) -> Result<(), Error> {
    let beside = beside(path, id);
    clear(path, id)?;
    let mode = like.map_or(NEW_MODE, |like| like.mode);
    let write = || -> io::Result<()> {
        cut_short::here()?;
        // Until it has its owner nobody else may read what could be secret.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(cut_short::written(&content.0))?;
        cut_short::here()?;
        if let Some(like) = like {
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (like.user, like.group) {
                fchown(&file, Some(like.user), Some(like.group))?;
            }
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        copy_label(path, &file);
        file.sync_all()?;
        cut_short::here()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| {
        // The cause is what counts; what stays behind is removed by `restore`.
        if cut_short::here().is_ok() {
            let _ = fs::remove_file(&beside);
        }
        Error::access("write", path)(source)
    })?;
    sync_above(path)
}

pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match cut_short::here().and_then(|()| fs::remove_file(path)) {
        Ok(()) => sync_above(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::access("remove", path)(error)),
    }
}

/// Removes what a crash left beside the file.
pub(crate) fn clear(path: &Path, id: u64) -> Result<(), Error> {
    let beside = beside(path, id);
    match fs::symlink_metadata(&beside) {
        Ok(_) => remove(&beside),
        Err(_) => Ok(()),
    }
}

fn beside(path: &Path, id: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Neither modprobe nor grub-mkconfig reads a file with such an end.
    path.with_file_name(format!(".{name}.exitless-{id}"))
}

/// SELinux tells by a file's label who may read it; a new file would have its directory's.
fn copy_label(from: &Path, to: &File) {
    const LABEL: &str = "security.selinux";
    let mut label = [0_u8; 1024];
    if let Ok(length) = rustix::fs::getxattr(from, LABEL, &mut label[..]) {
        // Where there is no SELinux there is no label either; a file with its directory's label is readable too.
        let _ = rustix::fs::fsetxattr(to, LABEL, &label[..length], rustix::fs::XattrFlags::empty());
    }
}

/// A new name lasts when its directory has reached the disk.
pub(crate) fn sync_above(path: &Path) -> Result<(), Error> {
    let above = path.parent().unwrap_or(path);
    File::open(above).and_then(|directory| directory.sync_all()).map_err(Error::access("sync", above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_leaves_nothing_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("grub");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let old = look(&path).unwrap().unwrap();
        fs::write(root.path().join(".grub.exitless-7"), "half").unwrap();
        replace(&path, &Content::from("new"), Some(&old), 7).unwrap();
        let new = look(&path).unwrap().unwrap();
        assert_eq!((new.content, new.mode), (Content::from("new"), 0o640));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_and_paths_that_lead_elsewhere_are_refused() {
        let root = tempfile::tempdir().unwrap();
        symlink("/nix/store/x", root.path().join("grub")).unwrap();
        let error = look(&root.path().join("grub")).unwrap_err().to_string();
        assert!(error.contains("a symbolic link to /nix/store/x"), "{error}");
        for path in ["etc/x", "/etc/../x", "/", ""] {
            assert!(matches!(place(root.path(), path), Err(Error::Path { .. })), "{path}");
        }
        assert_eq!(place(root.path(), "/etc/x").unwrap(), root.path().join("etc/x"));
    }

    #[test]
    fn a_directory_that_others_use_since_stays() {
        let root = tempfile::tempdir().unwrap();
        let missing = missing_directories(root.path(), "/a/b/c");
        assert_eq!(missing, ["/a", "/a/b"]);
        make_directories(root.path(), &missing).unwrap();
        fs::write(root.path().join("a/theirs"), "").unwrap();
        remove_directories(root.path(), &missing).unwrap();
        assert!(root.path().join("a/theirs").exists());
        assert!(!root.path().join("a/b").exists());
    }
}
