//! Writing files to their destinations, and sending files out as one tar stream.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::channel::Channel;
use crate::frames::Frame;
use crate::job::{HOME, PlacedFile};

const PIECE: usize = 256 << 10;

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

/// Sends those of `paths` that exist, and a warning for each of the others.
pub(super) fn send(paths: &[String], channel: &mut Channel) -> Result<(), String> {
    if paths.is_empty() {
        return Ok(());
    }
    let mut missing = Vec::new();
    let mut archive = tar::Builder::new(Pieces { channel, pending: Vec::with_capacity(PIECE) });
    archive.follow_symlinks(true);
    for path in paths {
        let source = absolute(path);
        let name = Path::new(path).file_name().map_or_else(|| PathBuf::from("root"), PathBuf::from);
        let added = match fs::metadata(&source) {
            Ok(metadata) if metadata.is_dir() => archive.append_dir_all(&name, &source),
            Ok(metadata) => append_file(&mut archive, &name, &source, &metadata),
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            missing.push(format!("{path} could not be brought out: {error}"));
        }
    }
    let mut pieces = archive.into_inner().map_err(|error| format!("sending files: {error}"))?;
    pieces.flush().map_err(|error| format!("sending files: {error}"))?;
    let Pieces { channel, .. } = pieces;
    for message in missing {
        channel.send(&Frame::Warning(message)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Files of /proc and /sys claim to be empty, so a file's contents are read before its header is written.
fn append_file(
    archive: &mut tar::Builder<Pieces<'_>>,
    name: &Path,
    source: &Path,
    metadata: &fs::Metadata,
) -> io::Result<()> {
    if metadata.len() > 0 {
        return archive.append_path_with_name(source, name);
    }
    let contents = fs::read(source)?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(metadata);
    header.set_size(contents.len() as u64);
    archive.append_data(&mut header, name, contents.as_slice())
}

/// Makes a path absolute; relative paths start at root's home.
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
