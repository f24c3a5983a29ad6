//! A profile as a recording: sums of exits in constant space, for recording over hours.

use std::io::{BufReader, Read, Write};

use exits::{Hypervisor, Isa, Profile};
use serde::{Deserialize, Serialize};

use super::schema::Header;
use super::writer::WriteError;
use crate::input::Input;
use crate::{Error, Format, Options, Origin, Reading, Sink};

/// The value that identifies the format.
const FORMAT: &str = "exitless-profile";
/// Within one number fields are added, never changed.
const VERSION: u32 = 1;
/// The most bytes that are read, uncompressed. A hundred VMs with fifteen busy exit reasons have 50 MB.
const MOST: u64 = 256 << 20;

/// The most memory for the contents. The 50 MB above become 180 MB; a small compressed file can claim much more.
const MOST_MADE: u64 = 512 << 20;

/// The encoding of a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Packing {
    /// JSON, readable by any tool.
    #[default]
    None,
    /// JSON, compressed with zstd to about a tenth.
    Zstd,
}

/// The form in files. The profile is last, so that the other fields are within the first bytes.
#[derive(Serialize)]
struct Stored<'p> {
    format: &'static str,
    format_version: u32,
    exitless_version: &'static str,
    isa: Option<Isa>,
    host_name: &'p Option<String>,
    host: &'p Option<host::Fingerprint>,
    command: &'p Option<String>,
    clock: &'p Option<String>,
    start_ns: Option<u64>,
    started_unix_ns: Option<u64>,
    vm_names: &'p std::collections::BTreeMap<u32, String>,
    profile: &'p Profile,
}

/// The fields of a file that are read.
#[derive(Deserialize)]
struct ReadBack {
    format: String,
    format_version: u32,
    #[serde(default)]
    exitless_version: Option<String>,
    #[serde(default)]
    host_name: Option<String>,
    #[serde(default)]
    host: Option<Host>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default, deserialize_with = "exits::parsing::map")]
    vm_names: std::collections::BTreeMap<u32, String>,
    profile: Profile,
}

/// The parts of the host's fingerprint that are compared.
#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    kernel_release: Option<String>,
    #[serde(default)]
    cpu: Option<Processor>,
    #[serde(default)]
    hypervisor: Option<Xen>,
}

#[derive(Deserialize)]
struct Xen {
    #[serde(default)]
    version: Option<String>,
}

#[derive(Deserialize)]
struct Processor {
    #[serde(default)]
    name: Option<String>,
}

/// Writes a profile as a recording of sums, which `exitless report`, `diff` and `timeline` read like single exits. An
/// incomplete file is useless, so write it next to its place and rename it.
///
/// # Errors
/// If writing to `to` fails.
pub fn write_profile(
    to: impl Write,
    header: &Header,
    profile: &Profile,
    packing: Packing,
) -> Result<(), WriteError> {
    let stored = Stored {
        format: FORMAT,
        format_version: VERSION,
        exitless_version: env!("CARGO_PKG_VERSION"),
        isa: header.isa,
        host_name: &header.host_name,
        host: &header.host,
        command: &header.command,
        clock: &header.clock,
        start_ns: header.start_ns,
        started_unix_ns: header.started_unix_ns,
        vm_names: &header.names,
        profile,
    };
    let write = |mut to: &mut dyn Write| -> Result<(), WriteError> {
        serde_json::to_writer(&mut to, &stored).map_err(|error| match error.io_error_kind() {
            Some(_) => cannot_store(error.into()),
            None => WriteError::Describe(error),
        })?;
        to.write_all(b"\n").map_err(cannot_store)
    };
    let mut to = std::io::BufWriter::new(to);
    match packing {
        Packing::None => write(&mut to)?,
        Packing::Zstd => {
            let mut packed = zstd::Encoder::new(&mut to, 0).map_err(cannot_store)?;
            write(&mut packed)?;
            packed.finish().map_err(cannot_store)?;
        }
    }
    to.flush().map_err(cannot_store)
}

fn cannot_store(source: std::io::Error) -> WriteError {
    WriteError::StoreProfile { source }
}

/// Tests whether the first bytes are a profile, even if it is indented or its fields are in alphabetical order.
pub(crate) fn begins(start: &[u8]) -> bool {
    let quoted = [b"\"", FORMAT.as_bytes(), b"\""].concat();
    start.trim_ascii_start().starts_with(b"{") && start.windows(quoted.len()).any(|bytes| bytes == quoted)
}

/// Reads a profile.
pub(crate) fn read<S: Sink>(input: Input, options: Options, _: &mut S) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let unsupported = |what: String, next| Error::Unsupported { name: name.clone(), what, next };
    let version = version(input.start());
    if let Some(version) = version.filter(|&version| version != u64::from(VERSION)) {
        let what = format!("a profile of format version {version}, not {VERSION}");
        return Err(unsupported(what, "read it with the exitless that wrote it, or a later one"));
    }
    if options.from_ns.is_some() || options.to_ns.is_some() {
        let what = "a profile where a part of the time is asked for".to_owned();
        return Err(unsupported(what, "leave out --from and --to, or record single exits"));
    }
    if S::WANTS_EXITS {
        let what = "a profile where single exits are asked for".to_owned();
        return Err(unsupported(
            what,
            "leave out what needs them (--parquet, rows finer than reasons), or record them",
        ));
    }
    let limit = exits::parsing::limit(MOST_MADE);
    let mut counted = Counted { from: input.into_stream().take(MOST), bytes: 0 };
    let read: Result<ReadBack, _> = serde_json::from_reader(BufReader::new(&mut counted));
    if let Some(source) = failure.take() {
        return Err(Error::Read { name, source });
    }
    let bytes = counted.bytes;
    let read = match read {
        Ok(read) if read.format == FORMAT && read.format_version == VERSION => read,
        Ok(_) => return Err(header_error(name, format!("its `format` is not `{FORMAT}`"), 0)),
        Err(_) if limit.was_reached() => {
            return Err(unsupported(
                format!("a profile that would take more than {} MiB of memory", MOST_MADE >> 20),
                "record fewer VMs in one",
            ));
        }
        Err(_) if bytes == MOST => {
            return Err(unsupported(
                format!("a profile of more than {MOST} bytes"),
                "record fewer VMs in one",
            ));
        }
        Err(error) => {
            // We write a single line, where the column is the offset. For other tools' files, the error has the line
            // too.
            let offset = if error.line() == 1 { error.column() as u64 } else { 0 };
            return Err(header_error(name, format!("a profile is broken ({error})"), offset));
        }
    };
    let mut profile = read.profile;
    for (vm, name) in read.vm_names {
        if profile.vcpus().iter().any(|exits| exits.vcpu.vm == Some(vm)) {
            profile.names.entry(vm).or_insert(name);
        }
    }
    let (kernel, processor, xen) = match read.host {
        Some(host) => (host.kernel_release, host.cpu.and_then(|cpu| cpu.name), host.hypervisor),
        None => (None, None, None),
    };
    let origin = Origin {
        version: read.exitless_version,
        host: read.host_name,
        hypervisor: if xen.is_some() { Hypervisor::Xen } else { Hypervisor::Kvm },
        xen_version: xen.and_then(|xen| xen.version),
        kernel,
        processor,
        command: read.command,
        bytes,
        ..Origin::new(Format::Profile)
    };
    let mut warnings = Vec::new();
    if profile.is_of_two_clocks() {
        profile.set_length(profile.span.map_or(0, exits::Span::length_ns));
        warnings.push(
            "Its time and its exits are of different clocks; the time is taken to begin with the exits"
                .into(),
        );
    }
    Ok(Reading { profile, origin, damage: None, warnings })
}

fn header_error(name: String, what: String, offset: u64) -> Error {
    Error::Header { name, what, offset, next: "a profile is whole or useless, so take another copy of it" }
}

/// The version in the first bytes: the rest of a later version may not be parseable.
fn version(start: &[u8]) -> Option<u64> {
    let key = b"\"format_version\"";
    let at = start.windows(key.len()).position(|bytes| bytes == key)? + key.len();
    let rest = start[at..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Counts the bytes that are read.
struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.bytes += length as u64;
        Ok(length)
    }
}
