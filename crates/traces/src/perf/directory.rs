//! Recordings in a directory, as `perf record --threads` makes them.
//!
//! `tools/perf/Documentation/perf.data-directory-format.txt`: the file `data` has the header and the records of perf
//! itself; `data.0` and so on have the records of some CPUs each, and no header.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::chunk::Chunk;
use super::feed::Records;
use crate::pipeline::Feed;
use crate::{Damage, Error};

/// The file with the header.
pub(super) const MAIN: &str = "data";

/// The other files in order of their numbers.
pub(super) fn parts(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix("data.")?.parse::<u32>().ok());
        parts.extend(number.map(|number| (number, path)));
    }
    parts.sort();
    Ok(parts.into_iter().map(|(_, path)| path).collect())
}

/// The files of a directory. They are read in step, so that events of the same time are read at about the same time.
pub(super) struct Parts {
    /// The records of each file, and its length in bytes.
    parts: Vec<(Records, u64)>,
}

impl Parts {
    /// Takes the records and the length of each file, first the one with the header.
    pub(super) fn new(parts: Vec<(Records, u64)>) -> Self {
        Self { parts }
    }

    pub(super) fn is_one(&self) -> bool {
        self.parts.len() == 1
    }

    /// The file with the header.
    pub(super) fn main(&self) -> &Records {
        &self.parts[0].0
    }

    /// The number of bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        let length = |(records, length): &(Records, u64)| records.position().max(length % u64::MAX);
        self.parts.iter().map(length).sum()
    }

    /// The first damage in any file.
    pub(super) fn damage(&self) -> Option<Damage> {
        let mut all = self.parts.iter().enumerate();
        let (part, damage) = all.find_map(|(part, (records, _))| Some((part, records.damage.clone()?)))?;
        Some(match part.checked_sub(1) {
            Some(part) => Damage { what: format!("{} (in {MAIN}.{part})", damage.what), ..damage },
            None => damage,
        })
    }

    /// The file of which the smallest share was read.
    fn next_part(&mut self) -> Option<&mut Records> {
        let share = |(records, length): &(Records, u64)| (records.position() << 16) / (*length).max(1);
        let open = self.parts.iter_mut().filter(|(records, _)| !records.is_done());
        open.min_by_key(|part| share(part)).map(|(records, _)| records)
    }
}

impl Feed for Parts {
    type Chunk = Chunk;

    fn next(&mut self, chunk: &mut Chunk) -> bool {
        while let Some(records) = self.next_part() {
            if records.next(chunk) {
                return true;
            }
        }
        false
    }
}

/// Opens a file, and returns its length in bytes. The user chose the directory, and its owner what is in it: only regular
/// files that are stored somewhere are opened.
pub(super) fn open(path: &Path) -> Result<(File, u64), Error> {
    let failed = |source| Error::Read { name: path.display().to_string(), source };
    let file = files::named(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    Ok((file, length))
}
