//! Compares real recordings of perf with perf's own reports about them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exits::{AccessKind, ExitReason, Exits, HandlingTime, Losses, Profile};
use traces::{Error, ExitRecord, Format, Options, Reading, Source};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perf").join(name)
}

fn read(path: &Path) -> Result<Reading, Error> {
    traces::read(&Source::from(path), &Options::default(), &mut ())
}

fn recording(name: &str) -> Reading {
    read(&fixture(&format!("{name}.perf.data.zst"))).unwrap()
}

/// The recording's bytes, decompressed.
fn unpacked(name: &str) -> Vec<u8> {
    let packed = fs::read(fixture(&format!("{name}.perf.data.zst"))).unwrap();
    zstd::decode_all(&packed[..]).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Reading, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path())
}

/// Times as perf prints them: samples, minimum, maximum, mean with its error.
fn figures(times: &HandlingTime) -> String {
    let us = |ns: u64| format!("{:.2}us", ns as f64 / 1e3);
    format!(
        "{} {} {} {:.2}us {:.2}%",
        times.count(),
        us(times.min_ns().unwrap_or(0)),
        us(times.max_ns().unwrap_or(0)),
        times.mean_ns().unwrap_or(0.0) / 1e3,
        times.relative_error_percent().unwrap_or(0.0),
    )
}

/// The rows of one of perf's tables by name, and its total time.
fn reported(text: &str) -> (BTreeMap<String, String>, String) {
    let mut rows = BTreeMap::new();
    let table = text.split("Total Samples").next().unwrap();
    for line in table.lines().filter(|line| line.contains("( +-")) {
        let words: Vec<_> = line.split_whitespace().collect();
        // Name, samples, two shares, shortest, longest, mean, "(", "+-", error, ")".
        let [name @ .., samples, _, _, min, max, mean, _, _, error, _] = &words[..] else { panic!("{line}") };
        rows.insert(name.join(" "), format!("{samples} {min} {max} {mean} {error}"));
    }
    let total = text.lines().find_map(|line| line.split("handled time:").nth(1)).unwrap();
    (rows, total.trim_end_matches('.').to_owned())
}

fn rows<K: ToString>(exits: impl IntoIterator<Item = (K, Exits)>) -> (BTreeMap<String, String>, String) {
    let (mut rows, mut total_ns) = (BTreeMap::new(), 0);
    for (key, exits) in exits {
        total_ns += exits.handling.total_ns();
        if exits.handling.count() > 0 {
            rows.insert(key.to_string(), figures(&exits.handling));
        }
    }
    (rows, format!("{:.2}us", total_ns as f64 / 1e3))
}

/// Recordings for which every figure in perf's report is right.
const EQUAL: &[&str] = &[
    "aio",
    "all-kvm",
    "callchains",
    "clock-monotonic",
    "eight-vcpus",
    "injected",
    "killed",
    "killed-zstd",
    "migrating",
    "one-thread",
    "one-vcpu",
    "qemu",
    "scheduler",
    "several-vms",
    "small",
    "small61",
    "statistics",
    "switch-1",
    "vmx",
    "vmx-apicv",
    "workload",
    "zstd",
    "zstd3",
];

#[test]
fn every_figure_equals_perfs_to_the_last_digit() {
    for name in EQUAL {
        let report = fs::read_to_string(fixture(&format!("{name}.report.txt"))).unwrap();
        assert_eq!(rows(recording(name).profile.reasons()), reported(&report), "{name}");
    }
}

#[test]
fn accesses_equal_perfs_tables_of_ports_and_addresses() {
    let truth = fs::read_to_string(fixture("small.truth.txt")).unwrap();
    let profile = recording("small").profile;
    let of = |kind| rows(profile.accesses().into_iter().filter(move |(access, _)| access.kind() == kind));
    let ports = truth.split("--event=ioport").nth(1).unwrap();
    assert_eq!(of(AccessKind::Port), reported(ports));
    let addresses = fs::read_to_string(fixture("small.report.event_mmio.txt")).unwrap();
    assert_eq!(of(AccessKind::Mmio), reported(&addresses));
}

#[test]
fn registers_have_names() {
    let accesses = recording("small").profile.accesses();
    let names: Vec<_> = accesses.keys().map(ToString::to_string).collect();
    for name in ["ICR:W", "EOI:W", "APICBASE:R", "0x3f8:POUT", "0x3fd:PIN"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
}

/// perf prints no table for these; the numbers come from an independent pairing of its text output.
#[test]
fn pipes_equal_an_independent_pairing() {
    for name in ["pipe", "pipe-two-events", "pipe-zstd", "killed-pipe", "sideband"] {
        let truth = fs::read_to_string(fixture(&format!("{name}.truth.txt"))).unwrap();
        let all = truth.lines().find(|line| line.starts_with("all ")).unwrap();
        let reading = recording(name);
        let times = reading.profile.reasons();
        let pairs: u64 = times.values().map(|exits| exits.handling.count()).sum();
        let total_ns: u64 = times.values().map(|exits| exits.handling.total_ns()).sum();
        let ours = format!("all {} {pairs} {total_ns}", reading.profile.total());
        assert_eq!(ours, all.split_whitespace().collect::<Vec<_>>().join(" "), "{name}");
        let format = if name == "sideband" { Format::PerfData } else { Format::PerfPipe };
        assert_eq!(reading.origin.format, format, "{name}");
    }
}

#[test]
fn losses_are_counted_and_no_time_is_taken_across_them() {
    let reading = recording("lost");
    let expected = Losses {
        lost_events: 9796,
        lost_exits: 4290,
        exits_without_entry: 44,
        exits_at_the_end: 2,
        entries_without_exit: 53,
        pairs_across_loss: 47,
        ..Losses::default()
    };
    assert_eq!(reading.profile.losses, expected);
    // perf has 23,480 pairs, 47 of which are across a loss.
    let pairs: u64 = reading.profile.reasons().values().map(|exits| exits.handling.count()).sum();
    assert_eq!((reading.profile.total(), pairs), (23_526, 23_480 - 47));
    let losses = recording("losses").profile.losses;
    assert_eq!((losses.lost_events, losses.lost_exits), (2410, 894));
}

#[test]
fn a_killed_recorder_leaves_everything_but_its_descriptions() {
    for name in ["killed", "killed-zstd"] {
        let reading = recording(name);
        assert!(reading.damage.unwrap().what.contains("killed"), "{name}");
        assert!(reading.warnings.iter().any(|warning| warning.contains("recognised by what they do")));
    }
    let nothing = recording("killed-by-SIGKILL");
    assert!(nothing.profile.is_empty() && nothing.damage.is_some());
}

#[test]
fn recordings_without_what_is_needed_say_so() {
    let error = read(&fixture("sched-only.perf.data.zst")).unwrap_err().to_string();
    assert!(error.contains("no kvm:kvm_exit events (it has sched:sched_switch)"), "{error}");
    let exits = recording("exit-only");
    assert_eq!(exits.profile.total(), 665);
    assert!(exits.profile.losses.is_whole());
    assert!(exits.warnings[0].contains("no kvm:kvm_entry events"));
}

#[test]
fn events_whose_descriptions_are_not_understood_are_named() {
    let whole = unpacked("small");
    let broken = |event: &str| {
        let mut bytes = whole.clone();
        let line = format!("name: {event}\nID: ").into_bytes();
        // They are at the end of the file.
        let at = bytes.windows(line.len()).rposition(|window| window == line).unwrap();
        bytes[at + line.len()] = b'x';
        read_bytes(&bytes)
    };
    let warnings = broken("kvm_pio").unwrap().warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("kvm:kvm_pio (`x") && warning.contains("were not read"), "{warning}");
    let error = broken("kvm_exit").unwrap_err().to_string();
    assert!(error.contains("no kvm:kvm_exit events") && error.contains("kvm:kvm_exit (`x"), "{error}");
}

#[test]
fn vms_and_vcpus_are_told_apart() {
    let profile = recording("several-vms").profile;
    let vcpus: Vec<_> = profile.vcpus().iter().map(|exits| exits.vcpu).collect();
    assert_eq!(vcpus.len(), 6);
    assert!(vcpus.iter().all(|vcpu| vcpu.vm.is_some() && vcpu.number.is_some() && vcpu.thread.is_some()));
    let vms: std::collections::BTreeSet<_> = vcpus.iter().filter_map(|vcpu| vcpu.vm).collect();
    assert_eq!(vms.len(), 3);
    assert_eq!(profile.names.values().collect::<Vec<_>>(), ["mix"; 3]);
}

#[test]
fn two_files_of_one_recording_merge() {
    let (first, second) = (recording("switch-1").profile, recording("switch-2").profile);
    let mut both = first.clone();
    both.merge(&second);
    assert_eq!(both.total(), 866 + 365);
    assert_eq!(both.vcpus().len(), first.vcpus().len());
}

#[test]
fn a_directory_is_one_recording() {
    let directory = tempfile::tempdir().unwrap();
    let packed = fs::read(fixture("threads.perf.data.tar.zst")).unwrap();
    let mut tar = Command::new("tar");
    let mut tar = tar.arg("-x").arg("-C").arg(directory.path()).stdin(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    assert!(tar.wait().unwrap().success());
    let path = directory.path().join("threads.perf.data");
    let report = fs::read_to_string(fixture("threads.report.txt")).unwrap();
    let profile = read(&path).unwrap().profile;
    assert_eq!(rows(profile.reasons()), reported(&report));
    // The process had another name before it ran the program.
    assert_eq!(profile.names.values().collect::<Vec<_>>(), ["mix"]);
    let part = read(&path.join("data")).unwrap_err().to_string();
    assert!(part.contains("give the directory"), "{part}");
}

#[test]
fn a_directory_leads_to_no_files_but_those_on_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let [main, part] = ["data", "data.0"].map(|name| directory.path().join(name));
    let refused = |path: &Path| {
        let error = read(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("Cannot read {}", path.display()));
    };
    // The kernel generates it; others are waited for, and reading takes their lines away from others.
    let generated = |path: &Path| std::os::unix::fs::symlink("/proc/version", path).unwrap();
    let fifo = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    for place in [&generated as &dyn Fn(&Path), &fifo] {
        place(&main);
        refused(&main);
        fs::remove_file(&main).unwrap();
        fs::write(&main, unpacked("one-thread")).unwrap();
        place(&part);
        refused(&part);
        fs::remove_file(&part).unwrap();
        assert!(read(directory.path()).is_ok());
        fs::remove_file(&main).unwrap();
    }
}

#[test]
fn the_origin_is_told() {
    let origin = recording("vmx").origin;
    assert_eq!(origin.format, Format::PerfData);
    assert!(origin.kernel.unwrap().starts_with("6.12"));
    assert!(origin.version.unwrap().starts_with("6.12"));
    assert!(origin.processor.is_some());
    assert!(origin.command.unwrap().contains("kvm stat record"));
}

#[test]
fn standard_input_is_read_as_files_are() {
    // Through a pipe, which cannot seek, although the descriptions are at the end of the file.
    let bytes = unpacked("one-vcpu");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer = std::thread::spawn({
        let (path, bytes) = (path.clone(), bytes.clone());
        move || fs::write(path, bytes)
    });
    let piped = read(&path).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(piped.profile, read_bytes(&bytes).unwrap().profile);
}

fn sum(records: &[ExitRecord]) -> (u64, u64) {
    (records.len() as u64, records.iter().filter_map(|record| record.handling_ns).sum())
}

#[test]
fn every_exit_is_handed_out_once() {
    let mut records = Vec::new();
    let source = Source::from(&*fixture("small.perf.data.zst"));
    let reading =
        traces::read(&source, &Options::default(), &mut |exit: &ExitRecord| records.push(*exit)).unwrap();
    let times = reading.profile.reasons();
    let total_ns = times.values().map(|exits| exits.handling.total_ns()).sum();
    assert_eq!(sum(&records), (reading.profile.total(), total_ns));
    for vcpu in reading.profile.vcpus() {
        let own: Vec<_> = records.iter().filter(|record| record.vcpu.thread == vcpu.vcpu.thread).collect();
        assert!(own.is_sorted_by_key(|record| record.time_ns));
    }
    let io: Vec<_> = records.iter().filter(|record| record.reason == ExitReason::svm(0x7b)).collect();
    assert!(io.iter().filter(|record| record.access.is_some()).count() + 2 >= io.len());
    assert!(records.iter().all(|record| record.guest_rip != 0));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let path = fixture("lost.perf.data.zst");
    let with = |threads| {
        let options = Options { threads: NonZeroUsize::new(threads), ..Options::default() };
        traces::read(&Source::from(&*path), &options, &mut ()).unwrap().profile
    };
    let one = with(1);
    for threads in 2..6 {
        assert_eq!(with(threads), one);
    }
}

#[test]
fn a_part_of_the_time_is_a_part_of_the_exits() {
    let whole = recording("small").profile;
    let bytes = unpacked("small");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let part = |from_ns, to_ns| {
        let options = Options { from_ns, to_ns, ..Options::default() };
        traces::read(&Source::from(file.path()), &options, &mut ()).unwrap().profile
    };
    let middle = whole.span.unwrap().length_ns() / 2;
    let (early, late) = (part(None, Some(middle)), part(Some(middle), None));
    let mut both = early.clone();
    both.merge(&late);
    assert!(early.total() > 0 && late.total() > 0);
    assert_eq!(both.reasons(), whole.reasons());
    assert_eq!(both.timeline, whole.timeline);
}

/// Cuts a recording at many places: everything before the cut is read, and the cut is reported.
fn cut(name: &str, places: impl Iterator<Item = usize>) {
    let bytes = unpacked(name);
    let mut most = 0;
    for at in places.map(|at| at.min(bytes.len() - 1)) {
        match read_bytes(&bytes[..at]) {
            Ok(reading) => {
                let damage = reading.damage.unwrap_or_else(|| panic!("{name} cut at {at} was not noticed"));
                assert!(damage.offset <= at as u64, "{name} cut at {at}: {damage}");
                assert!(reading.profile.total() >= most, "{name} cut at {at} lost exits");
                most = reading.profile.total();
            }
            // If the header is cut, nothing can be read.
            Err(error) => assert!(at < 2048 && !error.to_string().is_empty(), "{name} cut at {at}: {error}"),
        }
    }
    assert!(most > 0);
}

#[test]
fn cut_files_give_what_is_whole() {
    let length = unpacked("one-vcpu").len();
    cut("one-vcpu", (0..24).map(|n| n * 97).chain((1..40).map(|n| n * length / 40 + n % 8)));
    // A cut in the last bytes only concerns the sections at the end.
    cut("one-vcpu", [length - 1].into_iter());
}

#[test]
fn cut_pipes_give_what_is_whole() {
    for name in ["pipe", "pipe-zstd"] {
        let length = unpacked(name).len();
        let exits = recording(name).profile.total();
        let reading = read_bytes(&unpacked(name)[..length - 100]).unwrap();
        assert!(reading.damage.is_some());
        assert!(reading.profile.total() <= exits && reading.profile.total() + 2000 > exits);
    }
}

#[test]
fn bytes_that_are_no_record_end_the_reading() {
    let mut bytes = unpacked("one-vcpu");
    let middle = bytes.len() / 2 / 8 * 8;
    bytes[middle..middle + 4096].fill(0);
    let reading = read_bytes(&bytes).unwrap();
    let damage = reading.damage.unwrap();
    assert!(damage.what.contains("not continue with a record"), "{damage}");
    assert!(
        (middle..middle + 4096).contains(&(damage.offset as usize)) && reading.profile.total() > 300,
        "{damage}"
    );
}

#[test]
fn machines_of_another_kind_are_refused() {
    let mut bytes = unpacked("exit-only");
    let at = bytes.windows(6).rposition(|window| window == b"x86_64").unwrap();
    bytes[at..at + 6].copy_from_slice(b"s390x\0");
    let error = read_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("was recorded on s390x"), "{error}");
    bytes[..8].reverse();
    assert!(read_bytes(&bytes).unwrap_err().to_string().contains("big-endian"));
}

#[test]
fn a_recording_read_in_halves_by_thread_is_the_whole() {
    let whole = recording("eight-vcpus").profile;
    let threads: Vec<_> = whole.vcpus().iter().filter_map(|exits| exits.vcpu.thread).collect();
    let mut merged = Profile::new();
    for half in threads.chunks(4) {
        let part = whole.only(|vcpu| vcpu.thread.is_some_and(|thread| half.contains(&thread)));
        merged.merge(&part);
    }
    assert_eq!(merged.vcpus(), whole.vcpus());
}

#[test]
fn packed_with_gzip_it_is_the_same() {
    let bytes = unpacked("one-thread");
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(&bytes[..], flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    assert_eq!(read_bytes(&packed).unwrap().profile, read_bytes(&bytes).unwrap().profile);
}

/// The recording with `change` applied to the attribute of each event.
fn with_attributes(name: &str, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = unpacked(name);
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (each, at, length) = (number(16), number(24), number(32));
    bytes[at..at + length].chunks_exact_mut(each).for_each(change);
    bytes
}

#[test]
fn samples_of_events_are_no_counts_and_have_no_times() {
    let frequency = with_attributes("small", |attribute| {
        attribute[16..24].copy_from_slice(&99u64.to_le_bytes());
        attribute[41] |= 1 << 2;
    });
    let period = with_attributes("small", |attribute| {
        attribute[16..24].copy_from_slice(&100u64.to_le_bytes());
    });
    // Members of a group that is sampled with its leader.
    let group = with_attributes("small", |attribute| attribute[16..24].fill(0));
    let whole = recording("small");
    for bytes in [frequency, period] {
        let Reading { profile, warnings, .. } = read_bytes(&bytes).unwrap();
        assert_eq!(profile.total(), whole.profile.total());
        let timed = |exits: &BTreeMap<_, Exits>| exits.values().map(|one| one.handling.count()).sum::<u64>();
        assert_eq!(timed(&profile.reasons()), 0);
        let accesses = profile.accesses();
        assert!(accesses.values().all(|one| one.handling.count() == 0) && !accesses.is_empty());
        assert!(profile.losses.is_whole(), "{:?}", profile.losses);
        let told =
            warnings.iter().any(|told| told.starts_with("Only samples of") && told.contains("kvm:kvm_exit"));
        assert!(told && warnings[0].contains("record without -F and -c"), "{warnings:?}");
    }
    assert_eq!(read_bytes(&group).unwrap().warnings, whole.warnings);
    assert_eq!(whole.warnings, Vec::<String>::new());
}

#[test]
fn a_sparse_file_takes_no_memory() {
    const TOO_LONG: u64 = 40 << 30;
    // The IDs of the first event, and a section at the end, with a length that is not in the file.
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let whole = unpacked("small");
    let first = number(&whole, 24) + number(&whole, 16) - 16;
    let sections = number(&whole, 40) + number(&whole, 48);
    for (place, said) in
        [(first, "more than 1,048,576 identities"), (sections, "a section of 42949672960 bytes")]
    {
        let mut bytes = whole.clone();
        let place = place as usize;
        bytes[place..place + 8].copy_from_slice(&(whole.len() as u64).to_le_bytes());
        bytes[place + 8..place + 16].copy_from_slice(&TOO_LONG.to_le_bytes());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file.as_file().set_len(whole.len() as u64 + TOO_LONG).unwrap();
        let error = read(file.path()).unwrap_err();
        assert!(matches!(error, Error::Header { .. }) && error.to_string().contains(said), "{error}");
    }
}
