use super::*;
use exits::{Direction, Profile, Vcpu};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use std::io;
use traces::{Format, Options, Origin, Reading};

fn exit(number: u64) -> ExitRecord {
    ExitRecord {
        time_ns: u64::MAX - 10 * (GROUP as u64) + number,
        vcpu: Vcpu { vm: Some(u32::MAX), number: (number > 0).then_some(1), thread: Some(7) },
        cpu: u16::MAX,
        reason: if number.is_multiple_of(2) { ExitReason::svm(u32::MAX) } else { ExitReason::vmx(30) },
        guest_rip: if number == 0 { 0 } else { u64::MAX },
        access: (number == 1).then_some(Access::Port { port: 0x3f8, direction: Direction::Write }),
        handling_ns: (number == 1).then_some(27_186),
    }
}

fn recordings() -> Recordings {
    let mut profile = Profile::new();
    profile.names.insert(u32::MAX, "web".to_owned());
    let origin = Origin { host: Some("there".to_owned()), ..Origin::new(Format::PerfData) };
    let mut recordings = Recordings::new(Options::default());
    recordings.add("a.data".to_owned(), Reading { profile, origin, damage: None, warnings: Vec::new() });
    recordings
}

#[test]
fn every_exit_is_a_row_and_groups_are_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ExitsWriter::new(file.reopen().unwrap()).unwrap();
    writer.begin("a.data");
    let exits = GROUP as u64 + 2;
    (0..exits).for_each(|number| writer.exit(&exit(number)));
    writer.begin("b.data");
    writer.exit(&exit(1));
    writer.finish(&recordings()).unwrap();

    let reader = SerializedFileReader::new(file.reopen().unwrap()).unwrap();
    let rows: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(rows, [GROUP as i64, 2, 1]);
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let (first, second, last) = (&rows[0], &rows[1], &rows[exits as usize]);
    assert_eq!(first.get_ulong(1).unwrap(), exit(0).time_ns);
    assert_eq!(first.get_uint(2).unwrap(), u32::MAX);
    assert_eq!(first.get_string(7).unwrap(), "invalid_guest_state");
    for absent in [3, 9, 10, 11] {
        assert!(first.get_ulong(absent).is_err() && first.get_string(absent).is_err(), "column {absent}");
    }
    assert_eq!(second.get_string(0).unwrap(), "a.data");
    assert_eq!(second.get_uint(3).unwrap(), 1);
    assert_eq!(second.get_ushort(5).unwrap(), u16::MAX);
    assert_eq!(second.get_string(6).unwrap(), "vmx");
    assert_eq!((second.get_string(7).unwrap().as_str(), second.get_uint(8).unwrap()), ("IO_INSTRUCTION", 30));
    assert_eq!(second.get_ulong(9).unwrap(), u64::MAX);
    assert_eq!(second.get_string(10).unwrap(), "0x3f8:POUT");
    assert_eq!(second.get_ulong(11).unwrap(), 27_186);
    assert_eq!(last.get_string(0).unwrap(), "b.data");

    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let value = |key: &str| {
        let found = metadata.iter().find(|pair| pair.key == key);
        found.and_then(|pair| pair.value.clone()).unwrap()
    };
    assert_eq!(
        (value("exitless.format"), value("exitless.format_version")),
        ("recorded-exits".to_owned(), "1".to_owned())
    );
    assert_eq!(value("exitless.vm_names"), r#"{"4294967295":"web"}"#);
    assert!(value("exitless.losses").contains(r#""lost_events":0"#));
    assert!(value("exitless.files").contains(r#""host":"there""#));
}

#[test]
fn no_exits_are_a_table_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    ExitsWriter::new(file.reopen().unwrap()).unwrap().finish(&Recordings::default()).unwrap();
    let reader = SerializedFileReader::new(file.reopen().unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
}

/// A disk that accepts the first bytes only.
struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > 4 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_error_on_the_way_is_told_at_the_end() {
    let mut writer = ExitsWriter::new(FullDisk).unwrap();
    (0..3 * GROUP as u64).for_each(|number| writer.exit(&exit(number)));
    let error = writer.finish(&recordings()).unwrap_err();
    assert!(matches!(error, ExitsError::Parquet(_)), "{error}");
}
