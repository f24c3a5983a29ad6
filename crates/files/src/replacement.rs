//! Files that are written whole or not at all.

use crate::directory::is_ours;
use crate::{Directory, Missing};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, openat, renameat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that is written under a temporary name in the same directory, synced and renamed. Readers see either the old
/// or the new file, even after a crash. If it is dropped before that, the temporary file is removed and the old file
/// stays.
///
/// A path that is not a regular file (`/dev/stdout`, a FIFO) is written in place, unless others can have put it there.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    /// `None` if the file is written in place.
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    directory: Directory,
    name: OsString,
    beside: OsString,
    placed: bool,
}

impl Replacement {
    /// Starts the replacement of `path`. It gets the permissions of an existing file, unless that is another user's in a
    /// directory of others, or else `mode` less the umask.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(path: &Path, mode: u32) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = Directory::open(parent.unwrap_or(Path::new(".")), Missing::Refused);
        let directory = directory.map_err(crate::Error::into_io)?;
        if !directory.is_ours()? {
            return Self::among_others(directory, name, path, mode);
        }
        let Ok(found) = std::fs::metadata(path) else { return Self::within(directory, name, mode) };
        if let Ok(link) = std::fs::read_link(directory.reach(name)) {
            let target = directory.path().join(link);
            // The links of /proc lead to open files, which need not have the path that is read.
            let is_open = fstatfs(&directory).is_ok_and(|about| about.f_type == PROC_SUPER_MAGIC);
            if is_open && found.is_file() && !is_at(&found, &target) {
                let why = format!(
                    "{} leads to an open file that was removed or replaced: name another file, or use a pipe",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            if found.is_file() || !is_open {
                // Keep the link, and replace its target, which may be in a directory of others.
                return Self::begin(&target, mode);
            }
        }
        if !found.is_file() {
            return Ok(Self { file: File::options().write(true).open(path)?, place: None });
        }
        Self::like(directory, name, mode, found.permissions().mode())
    }

    /// Starts the replacement of an entry that others can exchange at any time: it is not opened.
    fn among_others(directory: Directory, name: &OsStr, path: &Path, mode: u32) -> io::Result<Self> {
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Self::within(directory, name, mode),
            Err(error) => Err(error.into()),
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                // A link of another user could lead to any file, and opening a FIFO could block.
                let why = format!(
                    "{} is no regular file, in a directory of others: name a file, or one in your own directory",
                    path.display()
                );
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            // Nobody else chooses who may write to our file.
            Ok(found) if !is_ours(found.st_uid) => Self::within(directory, name, mode),
            Ok(found) => Self::like(directory, name, mode, found.st_mode),
        }
    }

    /// Like [`Self::within`], with the permissions of the old file.
    fn like(directory: Directory, name: &OsStr, mode: u32, old: u32) -> io::Result<Self> {
        let replacement = Self::within(directory, name, mode)?;
        replacement.file.set_permissions(Permissions::from_mode(old & 0o777))?;
        Ok(replacement)
    }

    /// Starts the replacement of the entry `name` of a directory, of whatever type it is: a link is replaced, not
    /// followed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn within(directory: Directory, name: &OsStr, mode: u32) -> io::Result<Self> {
        let (beside, file) = create_beside(&directory, name, mode)?;
        let place = Some(Place { directory, name: name.to_owned(), beside, placed: false });
        Ok(Self { file, place })
    }

    /// The new file, to write to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Tests whether the file is written under a temporary name and not in place.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        self.place.is_some()
    }

    /// Renames the file into place before it is complete, so that others can read it while it grows. The old file is
    /// gone from then on, and what was written so far stays under that name even if this process is killed.
    ///
    /// # Errors
    /// When it cannot be synced or renamed.
    pub fn place(&mut self) -> io::Result<()> {
        if self.place.as_ref().is_none_or(|place| place.placed) {
            return Ok(());
        }
        self.file.sync_all()?;
        self.rename()?;
        self.place.as_ref().map_or(Ok(()), |place| place.directory.sync())
    }

    fn rename(&mut self) -> io::Result<()> {
        if let Some(place) = self.place.as_mut().filter(|place| !place.placed) {
            renameat(&place.directory, &place.beside, &place.directory, &place.name)?;
            place.placed = true;
        }
        Ok(())
    }

    /// Renames the file into place without fsync(2), for files that need not survive a crash of the host.
    ///
    /// # Errors
    /// When it cannot be renamed; the old file then stays.
    pub fn swap(mut self) -> io::Result<()> {
        self.rename()
    }

    /// Syncs the file, renames it into place and syncs its directory.
    ///
    /// # Errors
    /// When it cannot be synced or renamed; the old file then stays, unless only the sync of the directory failed.
    pub fn finish(mut self) -> io::Result<()> {
        match &self.place {
            // Pipes and terminals cannot be synced.
            None => Ok(()),
            Some(place) if place.placed => self.file.sync_all(),
            Some(_) => self.place(),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(place) = self.place.as_ref().filter(|place| !place.placed) {
            let _ = place.directory.remove(&place.beside);
        }
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// Those of [`Replacement::begin`], [`Replacement::finish`] and write(2).
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = Replacement::begin(path, 0o666)?;
    new.file().write_all(bytes)?;
    new.finish()
}

/// Tests whether the entry at `path` is this file.
fn is_at(found: &Metadata, path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|at| (at.dev(), at.ino()) == (found.dev(), found.ino()))
}

/// The beginning of the temporary names of a file's replacements.
fn unfinished(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(".new-");
    beside
}

/// Tests whether an entry has the temporary name of a replacement of the file `name` in its directory. A process that
/// was killed leaves such an entry.
#[must_use]
pub fn is_unfinished(entry: &OsStr, name: &str) -> bool {
    entry.as_encoded_bytes().starts_with(unfinished(name.as_ref()).as_encoded_bytes())
}

/// Creates a file next to another; `O_EXCL` fails on a file or link that somebody put under that name.
fn create_beside(directory: &Directory, name: &OsStr, mode: u32) -> io::Result<(OsString, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let mut beside = unfinished(name);
        beside.push(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match openat(directory, &beside, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((beside, File::from(file))),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Syncs the directory of a file, so that the file's name survives a crash.
///
/// # Errors
/// Of open(2) and fsync(2).
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.map_or_else(|| PathBuf::from("."), PathBuf::from))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let new = Replacement::begin(&path, 0o666).unwrap();
        new.file().write_all(b"half").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(new);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let new = Replacement::begin(&path, 0o666).unwrap();
        new.file().write_all(b"new").unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_growing_file_is_at_its_place_once_it_is_put_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut new = Replacement::begin(&path, 0o666).unwrap();
        new.place().unwrap();
        new.file().write_all(b"more").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"more");
        drop(new);
        assert_eq!(std::fs::read(&path).unwrap(), b"more");
    }

    #[test]
    fn a_link_stays_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("kept"), folder.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let new = Replacement::begin(&link, 0o666).unwrap();
        new.file().write_all(b"new").unwrap();
        new.finish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let null = Replacement::begin(Path::new("/dev/null"), 0o666).unwrap();
        null.file().write_all(b"gone").unwrap();
        assert!(!null.is_beside());
        null.finish().unwrap();
    }

    #[test]
    fn an_open_file_is_replaced_at_its_path_and_refused_without_one() {
        use std::os::fd::AsRawFd as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let file = File::create(&path).unwrap();
        let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        write(&open, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        // By now, another file has the path.
        let error = write(&open, b"newer").unwrap_err();
        assert!(error.to_string().contains("removed or replaced: name another file"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    /// Makes `$1` the root of a container in which root's files on the host belong to nobody, and runs the test there.
    const CONTAINER: &str = r#"set -e
        mount -t tmpfs -o mode=755 tmpfs "$1"
        cd "$1"
        mkdir dev
        ln -s /proc/self/fd/1 dev/stdout
        for entry in /proc /usr /bin /lib*; do
            if [ -L "$entry" ]; then
                cp -P "$entry" .
            else
                mkdir ".$entry"
                mount --rbind "$entry" ".$entry"
            fi
        done
        touch test
        mount --bind "$2" test
        echo ready
        # This pipe belongs to the container's root, unlike that of the test outside.
        CONTAINED=1 chroot . /test --exact --nocapture "$3" | cat"#;

    #[test]
    fn standard_output_is_written_to_in_a_container_without_root() {
        if std::env::var_os("CONTAINED").is_some() {
            let output = Replacement::begin(Path::new("/dev/stdout"), 0o666).unwrap();
            assert!(!output.is_beside());
            output.file().write_all(b"written in place").unwrap();
            return output.finish().unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut words = if rustix::process::geteuid().is_root() { stranger.to_vec() } else { Vec::new() };
        words.extend(["unshare", "--map-root-user", "--mount", "sh", "-c", CONTAINER, "sh"]);
        let run = std::process::Command::new(words[0])
            .args(&words[1..])
            .args([folder.path(), &std::env::current_exe().unwrap()])
            .arg("replacement::tests::standard_output_is_written_to_in_a_container_without_root")
            .output();
        let told =
            run.map(|run| [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()));
        match told {
            Ok([output, errors]) if output.contains("ready") => {
                assert!(output.contains("written in place"), "{output}{errors}");
            }
            other => println!("not tested: a container without root: {other:?}"),
        }
    }

    #[test]
    fn a_link_or_a_fifo_that_others_can_have_put_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
        let (path, link) = (folder.path().join("kept"), theirs.join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = Replacement::begin(&link, 0o666).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        // No process reads from this FIFO, so opening it for writing would block forever.
        let pipe = theirs.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o666),
            0,
        )
        .unwrap();
        let error = Replacement::begin(&pipe, 0o666).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        // `within` does not follow the link, but replaces it.
        let directory = Directory::open(&theirs, Missing::Refused).unwrap();
        let new = Replacement::within(directory, "link".as_ref(), 0o644).unwrap();
        new.file().write_all(b"new").unwrap();
        new.swap().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read(&link).unwrap(), b"new");
    }

    #[test]
    fn another_users_old_file_does_not_say_who_may_write_to_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = folder.path().join("kept");
        std::fs::write(&path, "theirs").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let mode = || {
            let new = Replacement::begin(&path, 0o644).unwrap();
            new.file().metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(), 0o666);
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            println!("not tested: giving a file to another user needs root");
            return;
        }
        assert_eq!(mode() & 0o022, 0);
    }

    #[test]
    fn what_others_exchange_meanwhile_is_never_opened() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
        let (path, spare) = (theirs.join("report"), theirs.join("spare"));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::os::unix::fs::symlink("/dev/null", &spare).unwrap();
                    std::fs::rename(&spare, &path).unwrap();
                    std::fs::write(&spare, "").unwrap();
                    std::fs::rename(&spare, &path).unwrap();
                }
            });
            let opened = (0..5000).filter_map(|_| Replacement::begin(&path, 0o666).ok());
            let in_place = opened.filter(|new| !new.is_beside()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(in_place, 0);
        });
        // Nor is it opened where a link of ours leads to it.
        let (ours, theirs) = (folder.path().join("ours"), theirs.join("link"));
        std::os::unix::fs::symlink("/dev/null", &theirs).unwrap();
        std::os::unix::fs::symlink("theirs/link", &ours).unwrap();
        let error = Replacement::begin(&ours, 0o666).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
