//! Compares real recordings of xentrace with the output of `xenalyze`.
//!
//! The TSC is assumed to have 1 GHz, so that our nanoseconds are exactly its cycles.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::xenalyze::{Beginning, Line, Summary, beginnings, records, windows};
use exits::{Access, Direction, ExitReason, Isa, Vcpu};
use traces::{ExitRecord, Format, Options, Reading, Source};

const ALL: [&str; 8] =
    ["a-all", "a-hvm", "c-all", "c-hvm", "h-all", "h-boot", "qemu10-a-all", "qemu10-a-hvm"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/xentrace").join(name)
}

/// The recording's bytes, decompressed.
fn unpacked(name: &str) -> Vec<u8> {
    let packed = fs::read(fixture(&format!("{name}.trace.zst"))).unwrap();
    zstd::decode_all(&packed[..]).unwrap()
}

fn summary(name: &str) -> Summary {
    Summary::parse(&fs::read_to_string(fixture(&format!("{name}.summary.txt"))).unwrap())
}

fn in_cycles() -> Options {
    Options { tsc_hz: Some(1_000_000_000), ..Options::default() }
}

fn read(path: &Path, options: Options) -> (Reading, Vec<ExitRecord>) {
    let mut exits = Vec::new();
    let mut take = |exit: &ExitRecord| exits.push(*exit);
    let reading = traces::read(&Source::from(path), &options, &mut take).unwrap();
    (reading, exits)
}

fn recording(name: &str) -> (Reading, Vec<ExitRecord>) {
    read(&fixture(&format!("{name}.trace.zst")), in_cycles())
}

fn read_bytes(bytes: &[u8]) -> (Reading, Vec<ExitRecord>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path(), in_cycles())
}

/// The cycles that `xenalyze` attributes to a vCPU or to none, and those that it drops.
#[derive(Default)]
struct Expected {
    lines: Vec<Line>,
    dropped: Vec<u64>,
}

fn expected(name: &str) -> BTreeMap<(Vcpu, ExitReason), Expected> {
    let beginnings = beginnings(&unpacked(name));
    let mut expected = BTreeMap::<_, Expected>::new();
    for ((vcpu, reason), line) in summary(name).exits {
        let owner = match (vcpu.vm, beginnings.get(&vcpu.number.unwrap())) {
            (None, Some(beginning)) => beginning.left,
            _ => vcpu,
        };
        expected.entry((owner, reason)).or_default().lines.push(line);
    }
    for Beginning { left, dropped } in beginnings.values() {
        if let Some((reason, cycles)) = dropped {
            expected.entry((*left, *reason)).or_default().dropped.push(*cycles);
        }
    }
    expected
}

#[test]
fn counts_and_cycles_are_those_of_xenalyze() {
    let mut lines = 0;
    for name in ALL {
        let (reading, _) = recording(name);
        let mut expected = expected(name);
        for exits in reading.profile.vcpus() {
            for (&reason, exits_of_reason) in &exits.reasons {
                let Expected { lines: told, dropped } =
                    expected.remove(&(exits.vcpu, reason)).unwrap_or_default();
                let place = format!("{name} {:?} {reason}", exits.vcpu);
                let handling = &exits_of_reason.handling;
                let count = told.iter().map(|line| line.count).sum::<u64>() + dropped.len() as u64;
                assert_eq!(handling.count(), count, "{place}");
                // A mean is rounded down to whole cycles.
                let least = told.iter().map(|line| line.count * line.mean).sum::<u64>();
                let most = told.iter().map(|line| line.count * (line.mean + 1) - 1).sum::<u64>();
                let total = handling.total_ns() - dropped.iter().sum::<u64>();
                assert!((least..=most).contains(&total), "{place}: {total} not {least} to {most}");
                lines += told.len();
            }
        }
        assert!(expected.is_empty(), "{name}: {:?}", expected.keys());
    }
    assert_eq!(lines, 89);
}

#[test]
fn quantiles_are_those_of_xenalyze() {
    for name in ALL {
        let (_, exits) = recording(name);
        let mut times = BTreeMap::<(Vcpu, ExitReason), Vec<u64>>::new();
        for exit in &exits {
            times.entry((exit.vcpu, exit.reason)).or_default().extend(exit.handling_ns);
        }
        for (key, Expected { lines, dropped }) in expected(name) {
            // Skip sums over several vCPUs, and vCPUs of which a time is missing.
            let ([line], true) = (&lines[..], dropped.is_empty()) else { continue };
            let times = times.get_mut(&key).unwrap();
            times.sort_unstable();
            let found = [5, 50, 95].map(|percent| times[times.len() * percent / 100]);
            assert_eq!(found, line.quantiles, "{name} {key:?}");
        }
    }
}

#[test]
fn every_exit_is_counted_and_none_twice() {
    for name in ALL {
        let bytes = unpacked(name);
        let (mut exits, mut entries, mut all) = (0, 0, 0);
        records(&bytes, |_, _, event, _, _| {
            exits += u64::from(matches!(event, 0x0008_1003 | 0x0008_1103));
            entries += u64::from(event == 0x0008_1001);
            all += 1;
        });
        let (reading, closed) = recording(name);
        assert_eq!((reading.profile.total(), closed.len() as u64), (exits, exits), "{name}");
        assert_eq!(reading.profile.events["hvm_vmentry"], entries);
        assert_eq!(reading.profile.events.values().sum::<u64>(), all);
        assert!(reading.profile.losses.is_whole(), "{name}: {:?}", reading.profile.losses);
        assert_eq!((reading.origin.format, reading.origin.bytes), (Format::Xentrace, bytes.len() as u64));
        assert_eq!(reading.damage, None);
    }
}

/// Removes the last records of some windows, as a full buffer does, and inserts Xen's marker for the loss before the
/// first record of the CPU's next window.
fn with_losses(bytes: &[u8]) -> Vec<u8> {
    const LOST: usize = 60;
    let windows = windows(bytes);
    let mut places = vec![Vec::new(); windows.len()];
    records(bytes, |_, at, event, ticks, words| {
        let window = windows.iter().rposition(|window| window.1 < at).unwrap();
        places[window].push((at, event, ticks, words.to_vec()));
    });
    let mut markers = BTreeMap::new();
    let mut ends: Vec<_> = windows.iter().map(|window| window.2).collect();
    for window in [5, 9, 13, 17, 21, 25, 29, 33, 41, 45, 49, 53] {
        let cpu = windows[window].0;
        let next = (window + 1..windows.len()).find(|&next| windows[next].0 == cpu).unwrap();
        let gone = &places[window][places[window].len() - LOST..];
        ends[window] = gone[0].0;
        let since = gone.iter().find_map(|place| place.2).unwrap();
        // The vCPU that ran there last: runstates that became or stayed running.
        let mut before =
            (0..next).filter(|&window| windows[window].0 == cpu).flat_map(|window| &places[window]);
        let runs = |event| event & 0xffff_f0ff == 0x0002_1001 || event == 0x0002_1002;
        let who = before.rfind(|place| runs(place.1)).unwrap().3[0];
        let ticks = places[next][0].2.unwrap() - 1;
        let halves = |ticks: u64| [ticks as u32, (ticks >> 32) as u32];
        let header = [0x0001_f001 | (4 << 28) | (1 << 31)];
        let marker =
            [&header[..], &halves(ticks), &[LOST as u32, who.rotate_left(16)], &halves(since)].concat();
        markers.insert(next, marker.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    }
    let mut lossy = Vec::new();
    for (number, &(cpu, begin, _)) in windows.iter().enumerate() {
        let marker = markers.get(&number).cloned().unwrap_or_default();
        let body = [&marker[..], &bytes[begin + 12..ends[number]]].concat();
        lossy.extend([0x2001_f003, cpu, body.len() as u32].into_iter().flat_map(u32::to_le_bytes));
        lossy.extend(body);
    }
    lossy
}

#[test]
fn losses_cost_what_they_cost_xenalyze() {
    let bytes = with_losses(&unpacked("h-all"));
    // The file that was given to xenalyze had this size.
    assert_eq!(bytes.len(), 902_512);
    let (reading, _) = read_bytes(&bytes);
    let losses = reading.profile.losses;
    assert_eq!((losses.lost_events, losses.out_of_order, losses.pairs_back_in_time), (720, 0, 0));
    let mut told = summary("h-all-with-losses").exits;
    for exits in reading.profile.vcpus() {
        for (&reason, exits_of_reason) in &exits.reasons {
            let line = told.remove(&(exits.vcpu, reason)).unwrap();
            let handling = &exits_of_reason.handling;
            let found = (handling.count(), handling.total_ns() / handling.count());
            assert_eq!(found, (line.count, line.mean), "{reason}");
        }
    }
    assert!(told.is_empty());
}

#[test]
fn ports_are_those_of_xenalyze_and_those_that_the_device_model_answers() {
    let (reading, _) = recording("h-boot");
    let mut of_device_model = 0;
    let mut cycles_of_device_model = 0;
    for (access, exits) in &reading.profile.vcpus()[0].accesses {
        let &Access::Port { port, direction } = access else { panic!("{access}") };
        let read = direction == Direction::Read;
        let told = summary("h-boot").ports;
        let line = told.get(&format!("{port:x}:[{}]", if read { 'r' } else { 'w' })).copied();
        let (count, mean) = line.map_or((0, 0), |line| (line.count, line.mean));
        if read {
            of_device_model += exits.handling.count() - count;
            cycles_of_device_model += exits.handling.total_ns() - count * mean;
        } else {
            assert_eq!(
                (exits.handling.count(), exits.handling.total_ns() / count),
                (count, mean),
                "{access}"
            );
        }
    }
    // xenalyze's line for them: `(no handler)       16  0.27s  9.37% 35828557 cyc`.
    assert_eq!(of_device_model, 16);
    assert!(cycles_of_device_model.abs_diff(16 * 35_828_557) < 16 + 89, "{cycles_of_device_model}");
}

#[test]
fn the_frequency_is_that_which_xen_measured() {
    // `(XEN) Detected 2099.994 MHz processor.`
    for name in ["a-all", "c-all", "h-all", "h-boot", "qemu10-a-all"] {
        let (reading, _) = read(&fixture(&format!("{name}.trace.zst")), Options::default());
        let warning = reading.warnings.iter().find(|warning| warning.contains("estimated")).unwrap();
        let ghz: f64 = warning.split("rest on ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((ghz / 2.099_994 - 1.0).abs() < 0.005, "{name}: {ghz}");
    }
    let (reading, _) = read(&fixture("a-hvm.trace.zst"), Options::default());
    assert!(reading.warnings.iter().any(|warning| warning.contains("an assumed 2.4 GHz")));
}

#[test]
fn before_xen_4_19_the_handlers_tell_the_instruction_set() {
    for name in ALL {
        let mut bytes = unpacked(name);
        let mut places = Vec::new();
        records(&bytes, |_, at, event, _, _| {
            places.extend(Some(at).filter(|_| matches!(event, 0x0008_1003 | 0x0008_1103)));
        });
        // The event that both wrote then, and that is VMX's now.
        places.iter().for_each(|&at| bytes[at] ^= 1);
        let (reading, exits) = read_bytes(&bytes);
        assert_eq!(exits, recording(name).1, "{name}");
        assert_eq!(reading.profile.events["hvm_vmx_exit"], exits.len() as u64);
        assert!(!reading.warnings.iter().any(|warning| warning.contains("Intel")), "{:?}", reading.warnings);
        assert!(exits.iter().all(|exit| exit.reason.isa == Isa::Svm));
    }
}

#[test]
fn a_file_cut_anywhere_gives_the_exits_before_the_cut() {
    for name in ["a-hvm", "c-all"] {
        let bytes = unpacked(name);
        let mut times = Vec::new();
        records(&bytes, |_, at, event, ticks, _| {
            if matches!(event, 0x0008_1003 | 0x0008_1103) {
                times.push((at + 24, ticks.unwrap()));
            }
        });
        for cut in (12..bytes.len()).step_by(4 * 613) {
            let (reading, exits) = read_bytes(&bytes[..cut]);
            let whole = times.iter().filter(|(end, _)| *end <= cut).count();
            assert_eq!(exits.len(), whole, "{name} cut at {cut}");
            let inside = windows(&bytes).iter().any(|&(_, begin, end)| begin < cut && cut < end);
            assert_eq!(reading.damage.is_some(), inside, "{name} cut at {cut}: {:?}", reading.damage);
        }
    }
}

#[test]
fn a_broken_window_costs_itself_only() {
    let name = "h-all";
    let bytes = unpacked(name);
    let whole = recording(name).1;
    for &(cpu, begin, end) in windows(&bytes).iter().skip(4).step_by(7) {
        let mut inside = 0u64;
        records(&bytes, |_, at, event, _, _| {
            inside += u64::from((begin..end).contains(&at) && event == 0x0008_1103);
        });
        let mut broken = bytes.clone();
        broken[begin + 12..begin + 16].fill(0xff);
        let (reading, exits) = read_bytes(&broken);
        assert_eq!(exits.len() as u64, whole.len() as u64 - inside, "window at {begin}");
        let damage = reading.damage.unwrap();
        assert_eq!(damage.offset, begin as u64 + 12);
        let skipped = format!("{} bytes skipped", end - begin - 12);
        assert!(reading.warnings.iter().any(|warning| warning.contains(&skipped)), "{:?}", reading.warnings);
        // Nothing is paired across the damage on that CPU.
        let before = exits.iter().filter(|exit| u32::from(exit.cpu) == cpu && exit.handling_ns.is_none());
        assert!(before.count() <= 2);
    }
}

#[test]
fn a_part_of_the_time() {
    let options = Options { from_ns: Some(1_000_000_000), to_ns: Some(2_000_000_000), ..in_cycles() };
    let (reading, exits) = read(&fixture("h-all.trace.zst"), options);
    let whole = recording("h-all").1;
    let first_ns = reading.profile.span.unwrap().first_ns;
    let inside = (first_ns + 1_000_000_000)..(first_ns + 2_000_000_000);
    let expected = whole.iter().filter(|exit| inside.contains(&exit.time_ns)).count();
    assert_eq!(exits.len(), expected);
    assert!(expected > 100 && expected < whole.len());
}

/// A recording that is still being made: its pieces end anywhere, with pauses in between.
struct Pieces {
    bytes: std::io::Cursor<Vec<u8>>,
    pause: bool,
}

impl std::io::Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.pause = !self.pause;
        if self.pause {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let length = buffer.len().min(1009);
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn a_recording_that_is_followed_gives_the_exits_of_the_whole() {
    for name in ["a-all", "h-all", "qemu10-a-all"] {
        let (whole, _) = recording(name);
        let stream = Pieces { bytes: std::io::Cursor::new(unpacked(name)), pause: false };
        let mut sums = traces::Sums::default();
        let options = Options { isa: Some(Isa::Svm), ..in_cycles() };
        let reading = traces::follow_xentrace(Box::new(stream), name, &options, &mut sums).unwrap();
        assert_eq!(reading.profile.vcpus(), whole.profile.vcpus(), "{name}");
        assert_eq!(reading.damage, None);
        let mut summed = sums.take();
        assert_eq!(summed.vcpus(), whole.profile.vcpus(), "{name}");
        assert_eq!(summed.losses.lost_events, whole.profile.losses.lost_events);
        assert!(sums.take().is_empty());
        summed.set_length(1);
        let (time, exits) = (summed.span.unwrap(), whole.profile.span.unwrap());
        assert!(time.first_ns.abs_diff(exits.first_ns) < exits.length_ns(), "{name}");
        assert!(!summed.is_of_two_clocks());
    }
}

#[test]
fn what_was_lost_while_a_recording_is_followed_is_told_at_once() {
    let bytes = with_losses(&unpacked("h-all"));
    let mut sums = traces::Sums::default();
    let options = Options { isa: Some(Isa::Svm), ..in_cycles() };
    let stream = Pieces { bytes: std::io::Cursor::new(bytes), pause: false };
    let reading = traces::follow_xentrace(Box::new(stream), "losses", &options, &mut sums).unwrap();
    assert!(reading.profile.losses.lost_events > 0);
    assert_eq!(sums.take().losses.lost_events, reading.profile.losses.lost_events);
}

#[test]
fn nothing_at_all_is_no_error_where_it_is_followed() {
    let stream = Box::new(std::io::Cursor::new(Vec::new()));
    let reading = traces::follow_xentrace(stream, "nothing", &in_cycles(), &mut ()).unwrap();
    assert!(reading.profile.is_empty() && reading.damage.is_none());
}
