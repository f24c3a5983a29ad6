//! Reads, atomically replaces and removes whole files.
//!
//! A file can lie in a directory of another user, who could replace that directory meanwhile. So everything goes
//! through the directory's descriptor.

use crate::error::Error;
use crate::{Content, FileState, change, cut_short, under};
use files::{Directory, Missing};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, renameat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The size limit: larger files are not configuration, and the journal would keep two copies of them.
const LARGEST: u64 = 4 << 20;
/// The mode of new files: anyone may read the configuration of modules and boot loaders.
const NEW_MODE: u32 = 0o644;

/// The location of a file, which need not exist.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` if the directory does not exist.
    directory: Option<Directory>,
    name: OsString,
    path: PathBuf,
}

/// The path of the file below `root`; `Err` for a path that could lead out of `root`.
pub(crate) fn path(root: &Path, path: &str) -> Result<PathBuf, Error> {
    if change::is_path(path) { Ok(under(root, path)) } else { Err(Error::Path { path: path.to_owned() }) }
}

/// Opens the file's directory below `root`; `Err` for a path that could lead out of `root`.
pub(crate) fn place(root: &Path, file: &str) -> Result<Place, Error> {
    let path = path(root, file)?;
    let relative = Path::new(file);
    let name = relative.file_name().unwrap_or_default().to_owned();
    let above = relative.parent().unwrap_or(Path::new("/"));
    let directory = match Directory::below(root, above, Missing::Refused) {
        Ok(directory) => Some(directory),
        Err(files::Error::Open { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            None
        }
        Err(error) => return Err(Error::access("look at", path)(error.into_io())),
    };
    Ok(Place { directory, name, path })
}

impl Place {
    /// Tests whether the file's directory does not exist.
    pub(crate) fn is_gone(&self) -> bool {
        self.directory.is_none()
    }

    fn directory(&self, doing: &'static str) -> Result<&Directory, Error> {
        let missing = || Error::access(doing, &self.path)(io::ErrorKind::NotFound.into());
        self.directory.as_ref().ok_or_else(missing)
    }

    fn beside(&self, id: u64) -> OsString {
        // Neither modprobe nor grub-mkconfig reads files with this suffix.
        format!(".{}.exitless-{id}", self.name.to_string_lossy()).into()
    }
}

/// The file's present state; `None` if it does not exist.
pub(crate) fn look(place: &Place) -> Result<Option<FileState>, Error> {
    let Some(directory) = &place.directory else { return Ok(None) };
    let path = &place.path;
    let entry = match directory.entry(&place.name) {
        Ok(entry) => entry,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::access("look at", path)(error)),
    };
    let found = fstat(&entry).map_err(|errno| Error::access("look at", path)(errno.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            let target = readlinkat(&entry, "", Vec::new()).unwrap_or_default();
            let found = format!("a symbolic link to {}", target.to_string_lossy());
            return Err(Error::Kind { path: path.clone(), found });
        }
        _ => return Err(Error::Kind { path: path.clone(), found: "no file".to_owned() }),
    }
    let cannot = |error| Error::access("read", path)(error);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, &place.name, flags, Mode::empty()).map_err(|errno| cannot(errno.into()))?;
    let file = File::from(file);
    let about = file.metadata().map_err(cannot)?;
    if about.len() > LARGEST {
        return Err(Error::TooLarge { path: path.clone(), size: about.len(), limit: LARGEST });
    }
    let content = Content(files::read(&file, LARGEST).map_err(cannot)?);
    let mode = about.permissions().mode() & 0o7777;
    Ok(Some(FileState { content, mode, user: about.uid(), group: about.gid() }))
}

/// The missing directories above the file, the outermost first, as paths of a running host.
pub(crate) fn missing_directories(root: &Path, path: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1);
    let lacking = above.take_while(|directory| !under(root, &directory.to_string_lossy()).is_dir());
    let mut missing: Vec<String> =
        lacking.map(|directory| directory.to_string_lossy().into_owned()).collect();
    missing.reverse();
    missing
}

pub(crate) fn make_directories(root: &Path, missing: &[String]) -> Result<(), Error> {
    for path in missing {
        let cannot = |error| Error::access("make the directory", under(root, path))(error);
        cut_short::here().map_err(cannot)?;
        let made = Directory::below(root, Path::new(path), Missing::Made(0o777));
        made.map_err(|error| cannot(error.into_io()))?;
        let above =
            Directory::below(root, Path::new(path).parent().unwrap_or(Path::new("/")), Missing::Refused);
        above.map_err(files::Error::into_io).and_then(|above| above.sync()).map_err(cannot)?;
    }
    Ok(())
}

/// Removes the directories that were created, unless they contain other files now.
pub(crate) fn remove_directories(root: &Path, made: &[String]) -> Result<(), Error> {
    for path in made.iter().rev() {
        let directory = place(root, path)?;
        let Some(above) = &directory.directory else { continue };
        match cut_short::here().and_then(|()| above.remove_directory(&directory.name)) {
            Ok(()) => above.sync().map_err(Error::access("sync", above.path()))?,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {}
            Err(error) => return Err(Error::access("remove the directory", directory.path)(error)),
        }
    }
    Ok(())
}

/// Replaces the file atomically: readers see the old content or the new. `id` is part of the temporary file's name; a
/// crash can leave that file behind, and [`clear`] removes it.
///
/// `like` determines owner and permissions; without it they are those of new configuration files.
pub(crate) fn replace(
    place: &Place,
    content: &Content,
    like: Option<&FileState>,
    id: u64,
) -> Result<(), Error> {
    let (directory, beside) = (place.directory("write")?, place.beside(id));
    clear(place, id)?;
    let mode = like.map_or(NEW_MODE, |like| like.mode);
    let write = || -> io::Result<()> {
        cut_short::here()?;
        // The content may be secret: only this user may read it until the owner is set.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(directory, &beside, flags, Mode::from_raw_mode(0o600))?);
        file.write_all(cut_short::written(&content.0))?;
        cut_short::here()?;
        if let Some(like) = like {
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (like.user, like.group) {
                fchown(&file, Some(like.user), Some(like.group))?;
            }
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        copy_label(place, &file);
        file.sync_all()?;
        cut_short::here()?;
        Ok(renameat(directory, &beside, directory, &place.name)?)
    };
    write().map_err(|source| {
        // Report the cause; if the temporary file cannot be removed now, `restore` removes it.
        if cut_short::here().is_ok() {
            let _ = directory.remove(&beside);
        }
        Error::access("write", &place.path)(source)
    })?;
    directory.sync().map_err(Error::access("sync", directory.path()))
}

pub(crate) fn remove(place: &Place) -> Result<(), Error> {
    remove_named(place, &place.name)
}

fn remove_named(place: &Place, name: &OsStr) -> Result<(), Error> {
    let Some(directory) = &place.directory else { return Ok(()) };
    match cut_short::here().and_then(|()| directory.remove(name)) {
        Ok(()) => directory.sync().map_err(Error::access("sync", directory.path())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::access("remove", place.path.with_file_name(name))(error)),
    }
}

/// Removes the temporary file that a crash left.
pub(crate) fn clear(place: &Place, id: u64) -> Result<(), Error> {
    let (Some(directory), beside) = (&place.directory, place.beside(id)) else { return Ok(()) };
    match statat(directory, &beside, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        _ => remove_named(place, &beside),
    }
}

/// Copies the SELinux label, which decides who may read the file; a new file would get its directory's.
fn copy_label(from: &Place, to: &File) {
    const LABEL: &str = "security.selinux";
    let mut label = [0_u8; 1024];
    let Some(directory) = &from.directory else { return };
    if let Ok(length) = rustix::fs::lgetxattr(directory.reach(&from.name), LABEL, &mut label[..]) {
        // Ignore errors: without SELinux there is no label, and the directory's label also works.
        let _ = rustix::fs::fsetxattr(to, LABEL, &label[..length], rustix::fs::XattrFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_leaves_nothing_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("grub");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let place = place(root.path(), "/grub").unwrap();
        let old = look(&place).unwrap().unwrap();
        fs::write(root.path().join(".grub.exitless-7"), "half").unwrap();
        replace(&place, &Content::from("new"), Some(&old), 7).unwrap();
        let new = look(&place).unwrap().unwrap();
        assert_eq!((new.content, new.mode), (Content::from("new"), 0o640));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replaced_file_keeps_its_owner_and_its_group() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("grub");
        fs::write(&path, "old").unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_err() {
            return println!("not tested: giving a file to another user needs root");
        }
        let place = place(root.path(), "/grub").unwrap();
        let old = look(&place).unwrap().unwrap();
        replace(&place, &Content::from("new"), Some(&old), 7).unwrap();
        let new = look(&place).unwrap().unwrap();
        assert_eq!((new.content, new.user, new.group), (Content::from("new"), 12_345, 54_321));
    }

    #[test]
    fn links_and_paths_that_lead_elsewhere_are_refused() {
        let root = tempfile::tempdir().unwrap();
        symlink("/nix/store/x", root.path().join("grub")).unwrap();
        let error = look(&place(root.path(), "/grub").unwrap()).unwrap_err().to_string();
        assert!(error.contains("a symbolic link to /nix/store/x"), "{error}");
        for path in ["etc/x", "/etc/../x", "/", ""] {
            assert!(matches!(place(root.path(), path), Err(Error::Path { .. })), "{path}");
        }
        assert_eq!(path(root.path(), "/etc/x").unwrap(), root.path().join("etc/x"));
    }

    #[test]
    fn a_directory_that_its_owner_exchanges_leads_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let theirs = root.path().join("home/vms");
        fs::create_dir_all(&theirs).unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::set_permissions(theirs.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        let found = place(root.path(), "/home/vms/web.xml").unwrap();
        fs::rename(&theirs, root.path().join("home/away")).unwrap();
        symlink(root.path().join("etc"), &theirs).unwrap();
        replace(&found, &Content::from("new"), None, 1).unwrap();
        assert!(root.path().join("home/away/web.xml").exists());
        // A new lookup reports the link.
        let error = place(root.path(), "/home/vms/web.xml").unwrap_err();
        assert!(matches!(error, Error::Access { .. }), "{error}");
        assert_eq!(fs::read_dir(root.path().join("etc")).unwrap().count(), 0);
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
