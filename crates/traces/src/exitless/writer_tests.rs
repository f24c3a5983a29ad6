use super::*;
use crate::{Options, read_bytes};
use exits::{Access, Direction, ExitReason, Vcpu};
use proptest::prelude::*;

/// A disk with this much room, which writes the part that fits.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(self.room - self.bytes.len());
        if length == 0 && !bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exit(time_ns: u64) -> ExitRecord {
    ExitRecord {
        time_ns,
        vcpu: Vcpu { vm: Some(1), number: Some(0), thread: Some(2) },
        cpu: 0,
        reason: ExitReason::svm(0x78),
        guest_rip: 0,
        access: None,
        handling_ns: Some(7),
    }
}

#[test]
fn a_batch_has_the_names_that_are_new_and_the_last_one_has_all() {
    let names = |vms: std::ops::Range<u32>| vms.map(|vm| (vm, format!("vm{vm}"))).collect::<BTreeMap<_, _>>();
    let of_vm = |vm| ExitRecord { vcpu: Vcpu { vm: Some(vm), ..Vcpu::default() }, ..exit(u64::from(vm)) };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
    let mut sizes = Vec::new();
    for vms in [1000, 1000, 1001] {
        let before = writer.written().bytes;
        [0, vms - 1].into_iter().for_each(|vm| writer.exit(&of_vm(vm)));
        writer.set_summary(Summary { names: names(0..vms), ..Summary::default() });
        writer.flush().unwrap();
        sizes.push(writer.written().bytes - before);
    }
    let so_far = writer.written().bytes as usize;
    writer.finish(Summary { names: names(0..1001), ..Summary::default() }).unwrap();
    // A thousand names have more than ten bytes each.
    assert!(sizes[1] + 10_000 < sizes[0] && sizes[2] + 10_000 < sizes[0], "{sizes:?}");
    assert!(bytes.len() - so_far > 10_000, "readers that merge no names need the last ones");
    let expected: BTreeMap<_, _> = [0, 999, 1000].map(|vm| (vm, format!("vm{vm}"))).into();
    for read in [&bytes[..], &bytes[..so_far]] {
        assert_eq!(read_bytes(read, &Options::default(), &mut ()).unwrap().profile.names, expected);
    }
}

#[test]
fn a_full_disk_leaves_whole_batches_and_is_told_once() {
    let mut disk = Disk { bytes: Vec::new(), room: 12_000 };
    let mut writer = Writer::new(&mut disk, &Header::default()).unwrap();
    let mut failures = Vec::new();
    for batch in 0..10 {
        (0..100).for_each(|at| writer.exit(&exit(batch * 1000 + at)));
        failures.extend(writer.flush().err());
    }
    let written = writer.finish(Summary::default()).unwrap();
    let [WriteError::Store { written: at_failure, source }] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert_eq!((at_failure.exits, at_failure.bytes), (written.exits, written.bytes));
    assert_eq!(at_failure.not_written, 100);
    assert_eq!(written.exits + written.not_written, 1000);
    assert!(written.exits >= 100 && written.not_written > 100, "{written:?}");
    let reading = read_bytes(&disk.bytes, &Options::default(), &mut ()).unwrap();
    assert_eq!(reading.profile.total(), written.exits);
    assert_eq!(reading.damage.unwrap().offset, written.bytes);
    let cut = read_bytes(&disk.bytes[..written.bytes as usize], &Options::default(), &mut ()).unwrap();
    assert_eq!(cut.profile, reading.profile);
}

#[test]
fn an_error_that_nobody_was_told_ends_the_writing_at_the_latest() {
    let mut disk = Disk { bytes: Vec::new(), room: 8_000 };
    let mut writer = Writer::new(&mut disk, &Header::default()).unwrap();
    (0..200_000).for_each(|at| writer.exit(&exit(at * at)));
    let error = writer.finish(Summary::default()).unwrap_err();
    assert!(error.to_string().contains("the first") && error.to_string().contains("are lost"), "{error}");
    let WriteError::Store { written, .. } = error else { panic!() };
    assert_eq!(written.exits + written.not_written, 200_000);
}

#[test]
fn a_recording_without_exits_is_whole() {
    let mut bytes = Vec::new();
    let header = Header { start_ns: Some(5), ..Header::default() };
    let mut writer = Writer::new(&mut bytes, &header).unwrap();
    writer.flush().unwrap();
    let summary = Summary { last_ns: Some(9), ..Summary::default() };
    let written = writer.finish(summary).unwrap();
    assert_eq!((written.exits, written.bytes), (0, bytes.len() as u64));
    let reading = read_bytes(&bytes, &Options::default(), &mut ()).unwrap();
    assert_eq!(reading.damage, None);
    assert_eq!(reading.profile.span, Some(Span { first_ns: 5, last_ns: 9 }));
    assert!(reading.profile.is_empty());
}

#[test]
fn dictionaries_with_more_texts_than_are_kept_begin_anew() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
    for batch in 0..3 {
        for address in 0..5000 {
            let access = Access::Mmio { address: batch * 2500 + address, direction: Direction::Read };
            writer.exit(&ExitRecord { access: Some(access), ..exit(batch * 10_000 + address) });
        }
        writer.flush().unwrap();
    }
    writer.finish(Summary::default()).unwrap();
    let mut seen = Vec::new();
    let mut sink = |exit: &ExitRecord| seen.push(exit.access);
    read_bytes(&bytes, &Options::default(), &mut sink).unwrap();
    let expected =
        |at: u64| Some(Access::Mmio { address: at / 5000 * 2500 + at % 5000, direction: Direction::Read });
    assert!((0..15_000).map(expected).eq(seen));
}

fn any_access() -> impl Strategy<Value = AccessRecord> {
    let handling_ns = proptest::option::of(any::<u64>());
    (0..3u8, any::<u64>(), any::<bool>(), handling_ns).prop_map(|(kind, number, write, handling_ns)| {
        let direction = if write { Direction::Write } else { Direction::Read };
        let access = match kind {
            0 => Access::Port { port: number as u16, direction },
            1 => Access::Mmio { address: number, direction },
            _ => Access::Msr { number: number as u32, direction },
        };
        AccessRecord { access, handling_ns }
    })
}

fn any_exit() -> impl Strategy<Value = (ExitRecord, Vec<AccessRecord>)> {
    let number = || proptest::option::of(any::<u32>());
    (
        (any::<u64>(), number(), number(), number(), any::<u16>()),
        (any::<bool>(), any::<u32>(), any::<u64>(), proptest::option::of(any::<u64>())),
        proptest::collection::vec(any_access(), 0..4),
    )
        .prop_map(
            |((time_ns, vm, number, thread, cpu), (svm, code, guest_rip, handling_ns), accesses)| {
                let exit = ExitRecord {
                    time_ns,
                    vcpu: Vcpu { vm, number, thread },
                    cpu,
                    reason: if svm { ExitReason::svm(code) } else { ExitReason::vmx(code) },
                    guest_rip,
                    access: accesses.last().map(|last| last.access),
                    handling_ns,
                };
                (exit, accesses)
            },
        )
}

fn written(exits: &[(ExitRecord, Vec<AccessRecord>)], batch: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
    for exits in exits.chunks(batch) {
        exits.iter().for_each(|(exit, accesses)| writer.exit_with(exit, accesses));
        writer.flush().unwrap();
    }
    writer.finish(Summary::default()).unwrap();
    bytes
}

#[derive(Default)]
struct Kept(Vec<(ExitRecord, Vec<AccessRecord>)>);

impl Sink for Kept {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.0.push((*exit, accesses.to_vec()));
    }
}

proptest! {
    #[test]
    fn any_exits_come_back(exits in proptest::collection::vec(any_exit(), 0..60), batch in 1..40usize) {
        let mut kept = Kept::default();
        let reading = read_bytes(&written(&exits, batch), &Options::default(), &mut kept).unwrap();
        prop_assert_eq!(&kept.0, &exits);
        prop_assert_eq!(reading.profile.total(), exits.len() as u64);
        prop_assert_eq!((reading.damage, reading.warnings), (None, vec![]));
    }

    #[test]
    fn changed_bytes_never_panic(
        exits in proptest::collection::vec(any_exit(), 1..20),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = written(&exits, 7);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(reading) = read_bytes(&bytes, &Options::default(), &mut ()) {
            prop_assert!(reading.damage.is_none_or(|damage| damage.offset <= bytes.len() as u64));
        }
    }
}
