//! Recordings of other tools that are converted to our format have the same profile.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use exits::{Access, Direction, Isa, Losses, Profile, Span};
use traces::exitless::{Header, Summary, Writer};
use traces::{Error, ExitRecord, Format, Options, Reading, Sink, Source};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Recordings in all formats.
fn fixtures() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (folder, ending) in
        [("perf", ".perf.data.zst"), ("trace-cmd", ".zst"), ("xentrace", ".trace.zst"), ("text", ".txt.zst")]
    {
        for entry in fs::read_dir(fixture(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path, options: &Options) -> Result<Reading, Error> {
    traces::read(&Source::from(path), options, &mut ())
}

/// The facts that a recorder would know at the end.
fn summary(profile: &Profile) -> Summary {
    Summary {
        losses: profile.losses,
        names: profile.names.clone(),
        events: profile.events.clone(),
        last_ns: profile.span.map(|span| span.last_ns),
    }
}

/// Converts a recording of another tool to our format.
fn converted(path: &Path, profile: &Profile) -> Vec<u8> {
    let start_ns = profile.span.map(|span| span.first_ns);
    let header = Header { start_ns, ..Header::default() };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    traces::read(&Source::from(path), &Options::default(), &mut writer).unwrap();
    writer.finish(summary(profile)).unwrap();
    bytes
}

fn read_bytes(bytes: &[u8], options: &Options) -> Reading {
    traces::read_bytes(bytes, options, &mut ()).unwrap()
}

/// Compares profiles except for accesses whose exit was not recorded: other formats count them, without a time.
fn same_but_for_accesses_alone(original: &Profile, again: &Profile) -> bool {
    let [mut original, mut again] = [original, again].map(Clone::clone);
    let vcpus: Vec<_> = original.vcpus().iter().map(|exits| exits.vcpu).collect();
    for vcpu in vcpus {
        let theirs = std::mem::take(&mut again.vcpu(vcpu).accesses);
        let ours = std::mem::take(&mut original.vcpu(vcpu).accesses);
        let none = Default::default();
        let same_times = ours.iter().all(|(access, exits)| {
            let theirs = theirs.get(access).unwrap_or(&none);
            exits.handling == theirs.handling && exits.count >= theirs.count
        });
        if !same_times || theirs.keys().any(|access| !ours.contains_key(access)) {
            return false;
        }
    }
    original == again
}

#[test]
fn profiles_survive_our_own_format() {
    let (mut same, mut others) = (0, Vec::new());
    for path in fixtures() {
        let Ok(original) = read(&path, &Options::default()) else { continue };
        let again = read_bytes(&converted(&path, &original.profile), &Options::default());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(again.origin.format, Format::Exits);
        assert_eq!((again.damage, again.warnings), (None, vec![]), "{name}");
        assert!(same_but_for_accesses_alone(&original.profile, &again.profile), "{name}");
        if original.profile == again.profile {
            same += 1;
        } else {
            others.push(name);
        }
    }
    println!("{same} are the same, {} have accesses without an exit", others.len());
    assert!(same >= 58, "{same} are the same; {others:?} have accesses without an exit");
    assert!(others.len() <= 12, "{others:?}");
}

#[test]
fn a_part_of_the_time_is_the_same_part() {
    let path = fixture("perf/small.perf.data.zst");
    let whole = read(&path, &Options::default()).unwrap();
    let bytes = converted(&path, &whole.profile);
    let length_ns = whole.profile.span.unwrap().length_ns();
    for (from, to) in
        [(None, Some(length_ns / 3)), (Some(length_ns / 3), Some(length_ns / 2)), (Some(length_ns / 2), None)]
    {
        let options = Options { from_ns: from, to_ns: to, ..Options::default() };
        let part = read(&path, &options).unwrap().profile;
        let again = read_bytes(&bytes, &options).profile;
        assert!(!part.is_empty() && part.total() < whole.profile.total());
        assert!(part.vcpus() == again.vcpus() && part.timeline == again.timeline && part.span == again.span);
    }
}

#[test]
fn exits_come_to_the_sink_as_they_were_written() {
    let path = fixture("perf/small.perf.data.zst");
    let exits = kept(&path);
    let profile = read(&path, &Options::default()).unwrap().profile;
    let mut again = Vec::new();
    let mut sink = |exit: &ExitRecord| again.push(*exit);
    traces::read_bytes(&converted(&path, &profile), &Options::default(), &mut sink).unwrap();
    assert!(exits == again);
}

/// The exits of a recording, which have at most one access each.
fn kept(path: &Path) -> Vec<ExitRecord> {
    let mut exits = Vec::new();
    let mut sink = |exit: &ExitRecord| exits.push(*exit);
    traces::read(&Source::from(path), &Options::default(), &mut sink).unwrap();
    exits
}

/// A recording in many batches, and the offset of the end of each.
fn in_batches(of: usize) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
    for exits in kept(&fixture("perf/small61.perf.data.zst")).chunks(of) {
        exits.iter().for_each(|exit| writer.exit(exit));
        let exits = writer.written().exits + exits.len() as u64;
        let events =
            BTreeMap::from([("kvm:kvm_exit".to_owned(), exits), ("kvm:kvm_entry".to_owned(), exits)]);
        let losses = Losses { lost_events: exits, ..Losses::default() };
        writer.set_summary(Summary { losses, events, ..Summary::default() });
        writer.flush().unwrap();
        ends.push(writer.written().bytes as usize);
    }
    writer.finish(Summary::default()).unwrap();
    (bytes, ends)
}

#[test]
fn a_cut_recording_gives_every_whole_batch_and_what_was_known_then() {
    let (bytes, ends) = in_batches(1000);
    for cut in (ends[0]..bytes.len()).step_by(3001).chain(ends.iter().copied()) {
        let reading = read_bytes(&bytes[..cut], &Options::default());
        let batches = ends.iter().filter(|&&end| end <= cut).count();
        let exits = (batches as u64 * 1000).min(19_507);
        assert_eq!(reading.profile.total(), exits, "{cut}");
        let damage = reading.damage.expect("a cut is seen");
        assert!(damage.offset >= ends[batches - 1] as u64 && damage.offset <= cut as u64, "{damage}");
        assert_eq!(reading.warnings, [""; 0]);
        if cut < ends[ends.len() - 1] {
            assert_eq!(reading.profile.losses.lost_events, exits);
            assert_eq!(reading.profile.events["kvm:kvm_entry"], exits);
        }
    }
    assert_eq!(read_bytes(&bytes, &Options::default()).damage, None);
}

#[test]
fn a_recording_that_is_cut_before_its_first_batch_is_not_taken_for_another_kind() {
    let (bytes, ends) = in_batches(19_507);
    assert_eq!(ends.len(), 1);
    let error = traces::read_bytes(&bytes[..100], &Options::default(), &mut ()).unwrap_err().to_string();
    assert!(error.contains("ends inside of a batch"), "{error}");
    let reading = read_bytes(&bytes[..ends[0] - 1], &Options::default());
    assert!(reading.damage.is_some() && reading.profile.events.is_empty());
}

#[test]
fn files_pipes_and_packed_ones_are_the_same() {
    let (bytes, _) = in_batches(5000);
    let plain = read_bytes(&bytes, &Options::default());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    assert_eq!(read(file.path(), &Options::default()).unwrap(), plain);
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    assert_eq!(read_bytes(&packed, &Options::default()), plain);
    assert_eq!(plain.origin.bytes, bytes.len() as u64);
}

#[test]
fn what_follows_the_end_is_damage() {
    let (bytes, _) = in_batches(5000);
    let twice = [&bytes[..], &bytes].concat();
    let reading = read_bytes(&twice, &Options::default());
    assert_eq!(reading.profile.total(), 19_507);
    assert_eq!(reading.damage.unwrap().offset, bytes.len() as u64);
}

#[test]
fn a_recording_inside_of_a_cut_one_is_damage() {
    let (bytes, ends) = in_batches(5000);
    let reading = read_bytes(&[&bytes[..ends[0]], &bytes].concat(), &Options::default());
    assert_eq!(reading.profile.total(), 5000);
    let damage = reading.damage.unwrap();
    assert_eq!(damage.offset, ends[0] as u64);
    assert!(damage.what.contains("another recording begins"), "{damage}");
}

#[test]
fn the_header_says_where_it_is_from() {
    let path = fixture("perf/small.perf.data.zst");
    let cpu = host::Cpu { name: Some("EPYC 9654".to_owned()), ..host::Cpu::default() };
    let fingerprint = host::Fingerprint {
        kernel_release: Some("6.12.107".to_owned()),
        cpu: Some(cpu),
        ..host::Fingerprint::default()
    };
    let vm = kept(&path)[0].vcpu.vm.unwrap();
    let header = Header {
        isa: Some(Isa::Svm),
        host_name: Some("host-18".to_owned()),
        boot_id: Some("7d2a".to_owned()),
        host: Some(fingerprint),
        command: Some("exitless record".to_owned()),
        clock: Some("CLOCK_MONOTONIC".to_owned()),
        start_ns: Some(1),
        started_unix_ns: Some(1_700_000_000_000_000_000),
        names: BTreeMap::from([(vm, "web".to_owned()), (vm + 1, "idle".to_owned())]),
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    kept(&path).iter().for_each(|exit| writer.exit(exit));
    writer.finish(Summary { last_ns: Some(u64::MAX), ..Summary::default() }).unwrap();
    let Reading { profile, origin, .. } = read_bytes(&bytes, &Options::default());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    assert_eq!(
        [text(&origin.host), text(&origin.kernel), text(&origin.processor), text(&origin.command)],
        ["host-18", "6.12.107", "EPYC 9654", "exitless record"]
    );
    assert_eq!(origin.boot, header.boot_id);
    assert_eq!(profile.names, BTreeMap::from([(vm, "web".to_owned())]));
    assert_eq!(profile.span, Some(Span { first_ns: 1, last_ns: u64::MAX }));
    assert_eq!(profile.events, BTreeMap::from([("kvm:kvm_exit".to_owned(), 34_592)]));
}

#[test]
fn the_last_access_is_the_same_in_our_own_format() {
    let lines = [
        "1: kvm_exit: reason msr rip 0x1 info 0 0",
        "2: kvm_msr: msr_write 830 = 0x8fd",
        "3: kvm_nested_vmexit: vcpu 0 reason msr rip 0x1 info1 0x1 info2 0x0 intr_info 0x0 error_code 0x0",
        "4: kvm_entry: vcpu 0",
        "5: kvm_exit: reason msr rip 0x1 info 0 0",
        "6: kvm_nested_vmexit: vcpu 0 reason msr rip 0x1 info1 0x1 info2 0x0 intr_info 0x0 error_code 0x0",
        "7: kvm_entry: vcpu 0",
    ];
    let text: String = lines.iter().map(|line| format!("  mix-9   [000] d..1.  0.00000{line}\n")).collect();
    let mut file = tempfile::NamedTempFile::with_suffix(".txt").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let profile = read(file.path(), &Options::default()).unwrap().profile;
    let icr = Access::Msr { number: 0x830, direction: Direction::Write };
    let accesses = |exits: &[ExitRecord]| exits.iter().map(|exit| exit.access).collect::<Vec<_>>();
    assert_eq!(accesses(&kept(file.path())), [Some(icr), None]);
    let mut again = Vec::new();
    let mut sink = |exit: &ExitRecord| again.push(*exit);
    traces::read_bytes(&converted(file.path(), &profile), &Options::default(), &mut sink).unwrap();
    assert_eq!(accesses(&again), [Some(icr), None]);
}
