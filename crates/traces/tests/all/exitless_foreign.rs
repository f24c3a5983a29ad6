//! Arrow streams of other tools: rewritten recordings of ours, and streams that are not recordings.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int64Array, LargeStringArray, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Field, Schema};
use exits::{Access, Direction, ExitReason, Vcpu};
use traces::exitless::{Header, Summary, Writer};
use traces::{AccessRecord, Error, ExitRecord, Options, Reading, Sink};

const HLT: ExitReason = ExitReason::vmx(12);
const PORT: Access = Access::Port { port: 0x3f8, direction: Direction::Write };
const READ: Access = Access::Mmio { address: 0xd000_0000, direction: Direction::Read };

/// A few exits of two vCPUs, with and without accesses.
fn recording() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &Header::default()).unwrap();
    for at in 0..1000u64 {
        let exit = ExitRecord {
            time_ns: 1_000_000 + 1000 * at,
            vcpu: Vcpu {
                vm: Some(7),
                number: (at > 3).then_some((at % 2) as u32),
                thread: Some(8 + (at % 2) as u32),
            },
            cpu: 3,
            reason: if at % 3 == 0 { HLT } else { ExitReason::vmx(30) },
            guest_rip: 0,
            access: None,
            handling_ns: (at != 999).then_some(at),
        };
        let access = |access| AccessRecord { access, handling_ns: Some(at / 2) };
        match at % 3 {
            0 => writer.exit_with(&exit, &[]),
            1 => writer.exit_with(&exit, &[access(PORT)]),
            _ => writer.exit_with(&exit, &[access(READ), access(READ), access(PORT)]),
        }
    }
    writer.finish(Summary::default()).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Reading, Error> {
    traces::read_bytes(bytes, &Options::default(), &mut ())
}

/// The stream of another tool with these columns, without compression.
fn stream(metadata: &[(&str, &str)], columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let fields: Vec<_> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let metadata: HashMap<_, _> =
        metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

const OURS: &[(&str, &str)] = &[("exitless.format", "exits"), ("exitless.format_version", "1")];

fn two_exits() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("time_ns", Arc::new(UInt64Array::from(vec![5, 6]))),
        ("reason", Arc::new(StringArray::from(vec!["HLT", "msr"]))),
    ]
}

#[test]
fn arrow_reads_what_we_write_and_we_read_what_it_writes_of_it() {
    let bytes = recording();
    let ours = read(&bytes).unwrap();
    let reader = StreamReader::try_new(&bytes[..], None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
    let reasons = batches[0].column_by_name("reason").unwrap().as_dictionary::<Int32Type>();
    let names = reasons.downcast_dict::<StringArray>().unwrap();
    assert_eq!(names.into_iter().take(2).map(Option::unwrap).collect::<Vec<_>>(), ["HLT", "IO_INSTRUCTION"]);
    let mut anew = Vec::new();
    let mut writer = StreamWriter::try_new(&mut anew, &schema).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    let again = read(&anew).unwrap();
    assert_eq!(again.profile.vcpus(), ours.profile.vcpus());
    assert!(again.profile.timeline == ours.profile.timeline && again.profile.span == ours.profile.span);
    assert_eq!(again.profile.events, ours.profile.events);
    assert!(again.warnings[0].contains("does not say what was lost"), "{:?}", again.warnings);
}

#[test]
fn several_accesses_of_an_exit_stay_apart() {
    let profile = read(&recording()).unwrap().profile;
    let accesses = profile.accesses();
    assert_eq!((accesses[&PORT].count, accesses[&READ].count), (666, 666));
    assert_eq!(
        accesses[&READ].handling.total_ns(),
        (0..1000).filter(|at| at % 3 == 2).map(|at| at / 2 * 2).sum::<u64>()
    );
    // The vCPU numbers became known later, but the first exits belong to them too.
    let vcpus: Vec<_> = profile.vcpus().iter().map(|exits| exits.vcpu.number).collect();
    assert_eq!(vcpus, [Some(0), Some(1)]);
}

#[test]
fn other_types_and_further_columns_do_not_matter() {
    let mut columns = two_exits();
    columns.insert(0, ("note", Arc::new(StringArray::from(vec!["a", "b"]))));
    columns.insert(0, ("list", Arc::new(two_lists())));
    columns.push(("vcpu", Arc::new(Int64Array::from(vec![Some(1), None]))));
    columns.push(("access", Arc::new(LargeStringArray::from(vec![Some("0x3f8:POUT"), None]))));
    let reading = read(&stream(OURS, columns)).unwrap();
    assert_eq!(reading.profile.total(), 2);
    assert_eq!(reading.profile.accesses()[&PORT].count, 1);
    assert_eq!(reading.profile.reasons().keys().copied().collect::<Vec<_>>(), [HLT, ExitReason::svm(0x7c)]);
}

fn two_lists() -> arrow_array::ListArray {
    arrow_array::ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None])
}

#[test]
fn a_name_of_a_later_version_is_taken_by_its_number() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("time_ns", Arc::new(UInt64Array::from(vec![5, 6, 7]))),
        ("reason", Arc::new(StringArray::from(vec!["NEVER_SEEN", "NEVER_SEEN", "HLT"]))),
        ("isa", Arc::new(StringArray::from(vec![Some("vmx"), None, None]))),
        ("reason_code", Arc::new(UInt64Array::from(vec![200, 200, 200]))),
    ];
    let profile = read(&stream(OURS, columns)).unwrap().profile;
    assert_eq!(profile.reasons().keys().copied().collect::<Vec<_>>(), [HLT, ExitReason::vmx(200)]);
    assert_eq!(profile.losses.undecoded, 1);
}

#[test]
fn streams_that_are_no_recordings_say_what_is_missing() {
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let none = message(&stream(&[], two_exits()));
    assert!(none.contains("an Arrow stream without the metadata `exitless.format` = `exits`"), "{none}");
    let newer = message(&stream(&[OURS[0], ("exitless.format_version", "2")], two_exits()));
    assert!(newer.contains("format version `2`, not 1") && newer.contains("or a later one"), "{newer}");
    let no_time = message(&stream(OURS, two_exits().split_off(1)));
    assert!(no_time.contains("it has no column `time_ns`"), "{no_time}");
    let text: Vec<(&str, ArrayRef)> = vec![
        ("time_ns", Arc::new(StringArray::from(vec!["5"]))),
        ("reason", Arc::new(StringArray::from(vec!["HLT"]))),
    ];
    let text = message(&stream(OURS, text));
    assert!(text.contains("column `time_ns` is not of whole numbers"), "{text}");
}

#[test]
fn an_arrow_file_is_told_from_a_stream() {
    let schema = Schema::new(vec![Field::new("time_ns", DataType::UInt64, false)]);
    let mut bytes = Vec::new();
    FileWriter::try_new(&mut bytes, &schema).unwrap().finish().unwrap();
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("an Arrow file") && error.contains("as an Arrow stream"), "{error}");
}

#[test]
fn texts_that_overlap_are_damage() {
    let mut bytes = stream(OURS, two_exits());
    let offsets: Vec<u8> = [0u32, 3, 6].into_iter().flat_map(u32::to_le_bytes).collect();
    let at = bytes.windows(12).position(|window| window == offsets).unwrap();
    bytes[at + 4] = 9;
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.profile.total(), 0);
    assert_eq!(reading.damage.unwrap().what, "offsets do not rise");
}
