//! Reading files that others may have created.

use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, fstatfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Raises the soft limit of open files (RLIMIT_NOFILE), usually 1024, to the hard one.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, opening reports the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Opens a file for reading; does not block on a FIFO.
fn unblocked(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Reads the first bytes of a file of any type, at most `most`. Does not block on a FIFO.
///
/// # Errors
/// Of open(2) and read(2).
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    unblocked(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the last bytes of a regular file, at most `most`, even if it grows meanwhile.
///
/// # Errors
/// Those of [`regular()`] and read(2).
pub fn read_end(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = regular(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Frees the disk space of all but the last `kept` bytes of a regular file that takes more than `most`. Its length stays, so that
/// its writer can go on at the same place.
///
/// # Errors
/// Of open(2) and fallocate(2).
pub fn keep_end(path: &Path, most: u64, kept: u64) -> io::Result<()> {
    let about = path.symlink_metadata()?;
    if !about.is_file() || about.blocks() * 512 <= most {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(&file, flags, 0, about.len().saturating_sub(kept))?)
}

/// Opens a regular file for reading. Does not block on a FIFO, and does nothing to a device except open it.
///
/// # Errors
/// Of open(2); [`io::ErrorKind::InvalidInput`] if it is not a regular file.
pub fn regular(path: &Path) -> io::Result<File> {
    let file = unblocked(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Opens a regular file for reading whose path others have chosen. A device is not even opened, because that can have effects
/// (a watchdog starts), and neither is a file that the kernel generates, because reading can: `/proc/kmsg` and tracefs's
/// `trace_pipe` give each line to one reader.
///
/// # Errors
/// Of open(2); [`io::ErrorKind::InvalidInput`] for other files.
pub fn named(path: &Path) -> io::Result<File> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&place)?.st_mode) != FileType::RegularFile {
        return refused("it is not a regular file");
    }
    // The kernel's own file systems have no blocks (fs/libfs.c, `simple_statfs`), and neither have those in memory without
    // a limit of size.
    let system = fstatfs(&place)?;
    if system.f_blocks == 0 && ![TMPFS, RAMFS].contains(&system.f_type) {
        return refused("its file system stores nothing, as procfs");
    }
    // By now the path can lead elsewhere.
    unblocked(Path::new(&format!("/proc/self/fd/{}", place.as_raw_fd())))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Those of [`regular()`]; [`io::ErrorKind::FileTooLarge`] for a larger one.
pub fn read(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_a_device_and_a_directory_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [fifo.as_path(), Path::new("/dev/zero"), folder.path()] {
            for open in [regular, named] {
                assert_eq!(open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
            }
        }
    }

    #[test]
    fn files_that_the_kernel_generates_are_not_opened_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("vm.cfg"), folder.path().join("link"));
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&named(&path).unwrap(), 5).unwrap(), b"12345");
        std::os::unix::fs::symlink("/proc/self/comm", &link).unwrap();
        for path in [Path::new("/proc/self/comm"), link.as_path()] {
            assert_eq!(named(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }

    #[test]
    fn the_end_of_a_long_file_is_read_without_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(
            (read_end(&path, 3).unwrap(), read_end(&path, 9).unwrap()),
            (b"345".to_vec(), b"12345".to_vec())
        );
        File::options().append(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_end(&path, 3).unwrap(), [0; 3]);
    }

    #[test]
    fn a_file_that_is_written_without_end_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let mut text = vec![b'.'; 8 << 20];
        text.extend(b"the end");
        std::fs::write(&console, &text).unwrap();
        keep_end(&console, 9 << 20, 1 << 20).unwrap();
        assert!(console.metadata().unwrap().blocks() * 512 >= 8 << 20);
        keep_end(&console, 7 << 20, 1 << 20).unwrap();
        let about = console.metadata().unwrap();
        assert_eq!(about.len(), text.len() as u64);
        assert!(about.blocks() * 512 < 2 << 20, "{}", about.blocks());
        assert!(read_end(&console, 9).unwrap().ends_with(b"..the end"));
    }

    #[test]
    fn what_is_too_long_is_not_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&regular(&path).unwrap(), 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&regular(&path).unwrap(), 5).unwrap(), b"12345");
    }
}
