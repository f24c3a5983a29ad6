//! Writing files to their destinations, and sending files to the host as one tar stream.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::channel::Channel;
use crate::frames::Frame;
use crate::job::{HOME, PlacedFile};

const PIECE: usize = 256 << 10;
/// The largest file that is read into memory before its header is sent, because its size is unknown.
const MOST_READ_FIRST: usize = 64 << 20;

/// Receives the order's files and writes them to their destinations.
pub(super) fn place(files: &[PlacedFile], channel: &mut Channel) -> Result<(), String> {
    for file in files {
        receive(&absolute(&file.path), file, channel)
            .map_err(|error| format!("putting {}: {error}", file.path))?;
    }
    Ok(())
}

fn receive(target: &Path, file: &PlacedFile, channel: &mut Channel) -> io::Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut out = fs::File::create(target)?;
    let mut missing = file.bytes;
    while missing > 0 {
        let Frame::Put(bytes) = channel.receive()? else {
            return Err(io::Error::other("the host sent something else than the file"));
        };
        missing = missing
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| io::Error::other("the host sent more than the file"))?;
        out.write_all(&bytes)?;
    }
    fs::set_permissions(target, fs::Permissions::from_mode(file.mode))
}

/// Sends those of `paths` that can be read, and a warning for each other one.
pub(super) fn send(paths: &[String], channel: &mut Channel) -> Result<(), String> {
    if paths.is_empty() {
        return Ok(());
    }
    let failed = |error: io::Error| format!("sending files: {error}");
    let archive = tar::Builder::new(Pieces { channel, pending: Vec::with_capacity(PIECE) });
    let mut outgoing = Outgoing { archive, above: Vec::new(), linked: false, warnings: Vec::new() };
    for path in paths {
        let name = Path::new(path).file_name().map_or_else(|| PathBuf::from("root"), PathBuf::from);
        outgoing.add(&name, &absolute(path)).map_err(failed)?;
    }
    let mut pieces = outgoing.archive.into_inner().map_err(failed)?;
    pieces.flush().map_err(failed)?;
    let Pieces { channel, .. } = pieces;
    for message in outgoing.warnings {
        channel.send(&Frame::Warning(message)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The archive to be sent. Symbolic links are followed, but below a linked folder no links to further
/// folders: in sysfs nearly every folder can be reached from every other one.
struct Outgoing<'a> {
    archive: tar::Builder<Pieces<'a>>,
    /// Device and inode of the folders above the current entry, against cycles.
    above: Vec<(u64, u64)>,
    /// One of the folders above is a link.
    linked: bool,
    warnings: Vec<String>,
}

impl Outgoing<'_> {
    /// Adds a file, or a folder with everything below it. What cannot be read becomes a warning.
    ///
    /// # Errors
    /// If the archive cannot be sent.
    fn add(&mut self, name: &Path, source: &Path) -> io::Result<()> {
        let added = match fs::metadata(source) {
            Ok(about) if about.is_dir() => self.add_folder(name, source, &about)?,
            Ok(about) if about.is_file() => self.add_file(name, source, &about)?,
            Ok(_) => Err(io::Error::other("it is neither a file nor a folder")),
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            self.warnings.push(format!("{} could not be brought out: {error}", source.display()));
        }
        Ok(())
    }

    fn add_folder(&mut self, name: &Path, source: &Path, about: &fs::Metadata) -> io::Result<io::Result<()>> {
        let id = (about.dev(), about.ino());
        let is_link = !self.above.is_empty() && source.is_symlink();
        if self.above.contains(&id) || (is_link && self.linked) {
            return Ok(Ok(()));
        }
        let entries = match fs::read_dir(source).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error)),
        };
        self.append(name, about, 0, io::empty())?;
        self.above.push(id);
        let linked = self.linked;
        self.linked |= is_link;
        for entry in entries {
            self.add(&name.join(entry.file_name()), &entry.path())?;
        }
        self.linked = linked;
        self.above.pop();
        Ok(Ok(()))
    }

    /// The header needs the size first. Files of procfs and sysfs have no blocks and a meaningless size, so
    /// read them before sending the header.
    fn add_file(&mut self, name: &Path, source: &Path, about: &fs::Metadata) -> io::Result<io::Result<()>> {
        // Do not wait for future content of files such as trace_pipe.
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(source);
        let file = match opened {
            Ok(file) => file,
            // Not meant to be read, as many files of sysfs.
            Err(_) if !self.above.is_empty() && about.mode() & 0o444 == 0 => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        if about.blocks() == 0 && !is_hole(&file, about.len()) {
            return match read_now(file) {
                Ok(contents) => self.append(name, about, contents.len() as u64, contents.as_slice()).map(Ok),
                Err(error) => Ok(Err(error)),
            };
        }
        let mut whole = Whole { file, left: about.len(), failure: None };
        self.append(name, about, about.len(), &mut whole)?;
        Ok(whole.failure.map_or(Ok(()), Err))
    }

    fn append(
        &mut self,
        name: &Path,
        about: &fs::Metadata,
        size: u64,
        contents: impl Read,
    ) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_metadata(about);
        if about.is_dir() {
            // Unpacking must be able to create files in the folder, even if the kernel's is read-only.
            header.set_mode(about.mode() | 0o700);
        }
        header.set_size(size);
        self.archive.append_data(&mut header, name, contents)
    }
}

/// Tests whether a file without blocks is sparse, with zeros only. The kernel's own file systems report data
/// at its start.
fn is_hole(file: &File, size: u64) -> bool {
    if size == 0 {
        return false;
    }
    let data = seek(file, SeekFrom::Data(0));
    // If this fails, the file cannot seek, so its position has not changed.
    let _ = seek(file, SeekFrom::Start(0));
    data == Err(Errno::NXIO)
}

/// Reads what a file of the kernel has now, without waiting for more.
fn read_now(mut file: impl Read) -> io::Result<Vec<u8>> {
    let (mut contents, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(contents),
            Ok(count) => contents.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(contents),
            Err(error) => return Err(error),
        }
        if contents.len() > MOST_READ_FIRST {
            return Err(io::Error::other(format!(
                "it does not tell its size, and had no end after {} bytes",
                contents.len()
            )));
        }
    }
}

/// Reads exactly as many bytes as the header says: ignores what is appended meanwhile, and pads with zeros if
/// the file has become shorter.
struct Whole {
    file: File,
    left: u64,
    failure: Option<io::Error>,
}

impl Read for Whole {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes = &mut bytes[..most];
        let mut count = 0;
        if self.failure.is_none() {
            let why = match self.file.read(bytes) {
                Ok(0) if most > 0 => Some("it became shorter".to_owned()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => Some(error.to_string()),
                read => {
                    count = read?;
                    None
                }
            };
            self.failure =
                why.map(|why| io::Error::other(format!("{why}; zeros replace its last {} bytes", self.left)));
        }
        if self.failure.is_some() {
            bytes.fill(0);
            count = most;
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Makes a path absolute. Relative paths start at root's home.
fn absolute(path: &str) -> PathBuf {
    Path::new(HOME).join(path)
}

struct Pieces<'a> {
    channel: &'a mut Channel,
    pending: Vec<u8>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for piece in std::mem::take(&mut self.pending).chunks(PIECE) {
            self.channel.send(&Frame::Files(piece.to_vec()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Decoder;

    /// The unpacked output of `send`, and its warnings.
    fn sent(paths: &[&Path]) -> (tempfile::TempDir, Vec<String>) {
        let stream = tempfile::NamedTempFile::new().unwrap();
        let mut channel = Channel::Virtio(stream.reopen().unwrap());
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        send(&paths, &mut channel).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&fs::read(stream.path()).unwrap());
        let (mut archive, mut warnings) = (Vec::new(), Vec::new());
        while let Some(frame) = decoder.next() {
            match frame {
                Frame::Files(bytes) => archive.extend(bytes),
                Frame::Warning(text) => warnings.push(text),
                other => panic!("{other:?}"),
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let mut unpacked = tempfile::tempfile().unwrap();
        unpacked.write_all(&archive).unwrap();
        crate::run::take_out(&mut unpacked, folder.path(), &mut Vec::new()).unwrap();
        (folder, warnings)
    }

    #[test]
    fn files_of_the_kernel_come_out_whatever_size_they_tell() {
        let sysfs = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        let sysfs = if sysfs.exists() { sysfs } else { Path::new("/sys/kernel/notes") };
        let proc = Path::new("/proc/version");
        let (folder, warnings) = sent(&[sysfs, proc]);
        assert_eq!(warnings, [""; 0]);
        for path in [sysfs, proc] {
            let out = fs::read(folder.path().join(path.file_name().unwrap())).unwrap();
            assert_eq!(out, fs::read(path).unwrap(), "{}", path.display());
        }
    }

    #[test]
    fn a_folder_comes_out_with_files_of_size_0_that_have_contents() {
        let (folder, _) = sent(&[Path::new("/proc/sys/kernel/random")]);
        let out = fs::read_to_string(folder.path().join("random/boot_id")).unwrap();
        assert_eq!(out, fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap());
        let mode = fs::metadata(folder.path().join("random")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o755, "its files are unpacked after it, by any user");
    }

    #[test]
    fn a_file_without_blocks_comes_out_however_large_it_is() {
        let from = tempfile::tempdir().unwrap();
        let disk = from.path().join("disk");
        let size = MOST_READ_FIRST as u64 + 1;
        File::create(&disk).unwrap().set_len(size).unwrap();
        let (folder, warnings) = sent(&[&disk]);
        assert_eq!(warnings, [""; 0]);
        assert_eq!(fs::metadata(folder.path().join("disk")).unwrap().len(), size);
    }

    #[test]
    fn what_is_below_a_folder_comes_out_and_circles_of_links_end() {
        let from = tempfile::tempdir().unwrap();
        let top = from.path().join("top");
        fs::create_dir_all(top.join("below")).unwrap();
        fs::write(top.join("below/file"), vec![7; 3 * PIECE + 5]).unwrap();
        std::os::unix::fs::symlink("below/file", top.join("link")).unwrap();
        std::os::unix::fs::symlink("below", top.join("latest")).unwrap();
        std::os::unix::fs::symlink("..", top.join("below/up")).unwrap();
        let (folder, warnings) = sent(&[&top, &from.path().join("missing")]);
        for name in ["top/below/file", "top/link", "top/latest/file"] {
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), vec![7; 3 * PIECE + 5], "{name}");
        }
        assert!(
            !folder.path().join("top/below/up").exists() && !folder.path().join("top/latest/up").exists()
        );
        assert!(
            warnings.len() == 1 && warnings[0].contains("missing could not be brought out: No such file"),
            "{warnings:?}"
        );
    }

    #[test]
    fn files_that_nobody_can_read_are_left_out_of_a_folder() {
        let is_empty = |path: PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        let buses = fs::read_dir("/sys/bus").unwrap().flatten().map(|entry| entry.path());
        let without =
            |bus: &PathBuf| ["devices", "drivers"].into_iter().all(|below| is_empty(bus.join(below)));
        let Some(bus) = { buses }.find(without) else {
            println!("not tested: each bus of this machine has devices or drivers");
            return;
        };
        let (folder, warnings) = sent(&[&bus]);
        assert_eq!(warnings, [""; 0]);
        let out = folder.path().join(bus.file_name().unwrap());
        assert!(out.join("drivers_autoprobe").exists() && !out.join("drivers_probe").exists());
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_has_the_size_of_its_header() {
        let read = |tells: u64| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"12345678").unwrap();
            io::Seek::rewind(&mut file).unwrap();
            let mut whole = Whole { file, left: tells, failure: None };
            let mut bytes = Vec::new();
            whole.read_to_end(&mut bytes).unwrap();
            (bytes, whole.failure.map(|failure| failure.to_string()))
        };
        assert_eq!(read(5), (b"12345".to_vec(), None));
        assert_eq!(read(8), (b"12345678".to_vec(), None));
        let shorter = "it became shorter; zeros replace its last 2 bytes".to_owned();
        assert_eq!(read(10), (b"12345678\0\0".to_vec(), Some(shorter)));
    }

    #[test]
    fn a_stream_without_an_end_is_not_read_for_ever() {
        assert!(read_now(io::repeat(7)).unwrap_err().to_string().contains("had no end"));
        let (mut writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        writer.write_all(b"now").unwrap();
        assert_eq!(read_now(reader).unwrap(), b"now");
    }
}
