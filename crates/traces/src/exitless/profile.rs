//! A profile as a recording: sums of exits in constant space, for recording over hours.

use std::io::{BufReader, Read, Write};

use exits::{Hypervisor, Isa, Profile, Vcpu};
use serde::{Deserialize, Serialize};

use super::schema::Header;
use super::writer::WriteError;
use crate::input::Input;
use crate::{Error, Format, Options, Origin, Reading, Sink};

/// The value that identifies the format.
const FORMAT: &str = "exitless-profile";
/// Within one number fields are added, never changed.
const VERSION: u32 = 1;
/// The most bytes that are read, uncompressed. A number in the text is hardly longer than what is made of it.
const MOST: u64 = 512 << 20;

/// The most memory for the contents. A hundred VMs with fifteen busy exit reasons have 50 MB of text, which become 180 MB; a
/// small compressed file can claim much more.
const MOST_MADE: u64 = 512 << 20;

/// The most memory for a profile that [`fit`] makes: the names in the header need some, too.
const MOST_FITTED: usize = 384 << 20;

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
    boot_id: &'p Option<String>,
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
    boot_id: Option<String>,
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

/// Adds up as much of a profile as is necessary for [`write_profile`] to accept it: slices of the timeline, the vCPUs of VMs
/// that do not run any more, these VMs, the vCPUs of all VMs, all VMs. `runs` tells which VMs run. Returns the coarsest sums
/// that were made of rows.
pub fn fit(profile: &mut Profile, runs: impl Fn(u32) -> bool) -> Option<&'static str> {
    fit_into(MOST_FITTED, profile, runs)
}

fn fit_into(most: usize, profile: &mut Profile, runs: impl Fn(u32) -> bool) -> Option<&'static str> {
    if profile.size_when_read() <= most {
        return None;
    }
    // A third for the timeline leaves most series some hundred slices.
    profile.timeline.fit(most / 3);
    let of_vm = |vcpu: Vcpu| Vcpu { vm: vcpu.vm, ..Vcpu::default() };
    let has_ended = |vcpu: Vcpu| vcpu.vm.is_some_and(|vm| !runs(vm));
    let steps: [(&'static str, &dyn Fn(Vcpu) -> Vcpu); 4] = [
        ("the vCPUs of each VM that has ended", &|vcpu: Vcpu| {
            if has_ended(vcpu) { of_vm(vcpu) } else { vcpu }
        }),
        ("the VMs that have ended", &|vcpu: Vcpu| if has_ended(vcpu) { Vcpu::default() } else { vcpu }),
        ("the vCPUs of each VM", &of_vm),
        ("all VMs", &|_: Vcpu| Vcpu::default()),
    ];
    let mut summed = None;
    for (what, key) in steps {
        if profile.size_when_read() <= most {
            break;
        }
        profile.regroup(key);
        summed = Some(what);
    }
    summed
}

/// Writes a profile as a recording of sums, which `exitless report`, `diff` and `timeline` read like single exits. An
/// incomplete file is useless, so write it next to its place and rename it.
///
/// # Errors
/// If writing to `to` fails, or if the profile is one that no reader accepts; see [`fit`].
pub fn write_profile(
    to: impl Write,
    header: &Header,
    profile: &Profile,
    packing: Packing,
) -> Result<(), WriteError> {
    check(profile, header.names.len())?;
    let stored = Stored {
        format: FORMAT,
        format_version: VERSION,
        exitless_version: env!("CARGO_PKG_VERSION"),
        isa: header.isa,
        host_name: &header.host_name,
        boot_id: &header.boot_id,
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

/// Tests whether a profile can be read, in a file with this number of names in its header.
fn check(profile: &Profile, names: usize) -> Result<(), WriteError> {
    let names = names * exits::parsing::of_entry::<u32, String>();
    let size = profile.size_when_read() + names;
    // A limit that is just reached counts as exceeded.
    if size as u64 >= MOST_MADE { Err(WriteError::TooLarge { mib: MOST_MADE >> 20 }) } else { Ok(()) }
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
                "record fewer VMs in one profile",
            ));
        }
        Err(_) if bytes == MOST => {
            return Err(unsupported(
                format!("a profile of more than {MOST} bytes"),
                "record fewer VMs in one profile",
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
        boot: read.boot_id,
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

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, SeriesKey, Slice};

    /// Eight VMs with four vCPUs each, all with three reasons.
    fn of_vms() -> Profile {
        let mut profile = Profile::new();
        for (vm, number) in (0..8).flat_map(|vm| (0..4).map(move |number| (vm, number))) {
            let vcpu = Vcpu { vm: Some(vm), number: Some(number), thread: Some(10 * vm + number) };
            for code in 0..3 {
                let exits = profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(code)).or_default();
                (0..100).for_each(|at| exits.handling.add(1000 + 10 * at));
                exits.count = 100;
            }
            profile.names.insert(vm, format!("vm{vm}"));
        }
        profile
    }

    #[test]
    fn rows_are_added_up_until_they_fit_and_all_of_them_are_there() {
        let whole = of_vms();
        let mut most = whole.size_when_read();
        let mut steps = Vec::new();
        loop {
            let mut fitted = whole.clone();
            let summed = fit_into(most, &mut fitted, |vm| vm < 2);
            if fitted.size_when_read() > most {
                break;
            }
            assert_eq!(fitted.reasons(), whole.reasons());
            steps.push((fitted.vcpus().len(), fitted.names.len(), summed));
            most = most * 19 / 20;
        }
        steps.dedup();
        let expected = [
            (32, 8, None),
            (14, 8, Some("the vCPUs of each VM that has ended")),
            (9, 2, Some("the VMs that have ended")),
            (3, 2, Some("the vCPUs of each VM")),
            (1, 0, Some("all VMs")),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_long_time_of_many_vms_is_written_and_read_with_fewer_slices() {
        let mut profile = of_vms();
        let rows = profile.size_when_read();
        for vm in 0..8 {
            let series = profile.timeline.series(SeriesKey { vm: Some(vm), reason: ExitReason::vmx(0) });
            for at in 0..2000 {
                profile.timeline.add(series, at << 20, Slice { count: 1, handling_ns: 1 });
            }
        }
        let most = 2 * rows;
        assert!(profile.size_when_read() > most);
        assert_eq!(fit_into(most, &mut profile, |_| true), None);
        let mut bytes = Vec::new();
        write_profile(&mut bytes, &Header::default(), &profile, Packing::Zstd).unwrap();
        let read = crate::read_bytes(&bytes, &Options::default(), &mut ()).unwrap().profile;
        assert_eq!(read, profile);
        let slices = read.timeline.by_reason().into_values().flatten();
        assert_eq!(slices.map(|slice| slice.count).sum::<u64>(), 8 * 2000);
    }

    #[test]
    fn a_profile_that_cannot_be_read_is_not_written() {
        let names = MOST_MADE as usize / exits::parsing::of_entry::<u32, String>();
        let profile = of_vms();
        assert!(check(&profile, 8).is_ok());
        let error = check(&profile, names).unwrap_err().to_string();
        assert!(error.contains("512 MiB"), "{error}");
    }
}
