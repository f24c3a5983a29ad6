//! Reader of `perf.data`: a file, a pipe or a directory.
//!
//! Sources: `tools/perf/Documentation/perf.data-file-format.txt` and `perf.data-directory-format.txt`,
//! `tools/perf/util/session.c`, `perf_event_open(2)`.

mod ahead;
mod attribute;
mod batch;
mod chunk;
mod directory;
mod features;
mod feed;
mod header;
mod inferred;
mod inflate;
mod kind;
mod schema;
mod session;
mod short;

use exits::counted;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use features::{DIR_FORMAT, TRACING_DATA};
use feed::Records;
use header::Header;
use schema::Schema;
use session::Parts;

use crate::input::{Failure, Input};
use crate::{Error, Format, Options, Reading, Sink};

/// Reads a file: header, records, and sections at the end.
pub(crate) fn read_file(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let (file, length) = input.into_file()?;
    let header = Header::read(&file, length, &name)?;
    if header.has(DIR_FORMAT) {
        return Err(Error::Unsupported {
            name,
            what: "one part of a recording in a directory (`perf record --threads`)".into(),
            next: "give the directory that it is in, and all parts of it are read",
        });
    }
    let records = records(file, length, header, failure, &name)?;
    session::read(Parts::new(vec![(records, length)]), Format::PerfData, name, options, sink)
}

/// Reads from a pipe, or a file that was written through a pipe.
pub(crate) fn read_pipe(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let mut stream = input.into_stream();
    // `struct perf_pipe_file_header`.
    let mut header = [0; 16];
    stream.read_exact(&mut header).map_err(|source| Error::Read { name: name.clone(), source })?;
    let records = Records::new(stream, failure, header.len() as u64, None, Schema::new());
    session::read(Parts::new(vec![(records, u64::MAX)]), Format::PerfPipe, name, options, sink)
}

/// Reads a directory.
pub(crate) fn read_directory(path: &Path, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let name = path.display().to_string();
    let failed = |source| Error::Read { name: name.clone(), source };
    let main = path.join(directory::MAIN);
    let main_name = main.display().to_string();
    let (main, _) = directory::open(&main)?;
    let main = Input::of_file(main_name.clone(), main)?;
    let failure = main.failure();
    let (file, length) = main.into_file()?;
    let header = Header::read(&file, length, &main_name)?;
    let main = records(file, length, header, failure, &main_name)?;
    let schema = main.schema.clone();
    let mut parts = vec![(main, length)];
    for path in directory::parts(path).map_err(failed)? {
        let (file, length) = directory::open(&path)?;
        let records = Records::new(Box::new(file), Failure::default(), 0, Some(length), schema.clone());
        parts.push((records, length));
    }
    session::read(Parts::new(parts), Format::PerfData, name, options, sink)
}

/// The records of a file, with the facts in its header and the sections at its end.
fn records(
    mut file: File,
    length: u64,
    header: Header,
    failure: Failure,
    name: &str,
) -> Result<Records, Error> {
    let failed = |source| Error::Read { name: name.to_owned(), source };
    let (sections, whole) = header.features(&file, length, name)?;
    let mut records_at = |schema| {
        file.seek(SeekFrom::Start(header.data.offset)).map_err(failed)?;
        let file = Box::new(file.try_clone().map_err(failed)?);
        let known = Some(header.data.length).filter(|&length| length > 0);
        Ok(Records::new(file, failure.clone(), header.data.offset, known, schema))
    };
    let described = sections.iter().any(|(feature, _)| *feature == TRACING_DATA);
    let mut schema = header.schema.clone();
    let mut warning = None;
    if !described && header.has(TRACING_DATA) {
        let (formats, samples) = inferred::formats(&mut records_at(schema.clone())?);
        if !formats.is_empty() {
            let names: Vec<_> = formats.iter().map(|(_, format)| format.name.as_str()).collect();
            warning = Some(format!(
                "The descriptions of its events are cut off; {} were recognised by what they do in {}, other \
                 events are not counted",
                names.join(", "),
                counted(samples as u64, "sample")
            ));
        }
        schema.learn(&formats);
    }
    let mut records = records_at(schema)?;
    for (feature, section) in &sections {
        match *feature {
            TRACING_DATA => records.learn(section),
            feature => records.features.read(feature, section),
        }
    }
    records.warnings.extend(warning);
    if header.data.length == 0 {
        records.note_damage(length, "perf was killed before it completed the file".into());
    } else if !whole && header.data.offset.saturating_add(header.data.length) <= length {
        records.note_damage(length, "the sections at its end are cut off".into());
    }
    Ok(records)
}
