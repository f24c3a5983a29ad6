//! Profiles as recordings.

use std::path::{Path, PathBuf};

use traces::exitless::{Header, Packing, write_profile};
use traces::{Error, ExitRecord, Format, Options, Reading, Source};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perf/several-vms.perf.data.zst")
}

fn original() -> Reading {
    traces::read(&Source::from(fixture().as_path()), &Options::default(), &mut ()).unwrap()
}

fn written(packing: Packing) -> Vec<u8> {
    let cpu = host::Cpu { name: Some("EPYC 9654".to_owned()), ..host::Cpu::default() };
    let fingerprint = host::Fingerprint {
        kernel_release: Some("6.12.107".to_owned()),
        cpu: Some(cpu),
        ..host::Fingerprint::default()
    };
    let header = Header {
        host: Some(fingerprint),
        command: Some("exitless record --profile".to_owned()),
        ..Header::default()
    };
    let mut bytes = Vec::new();
    write_profile(&mut bytes, &header, &original().profile, packing).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Reading, Error> {
    traces::read_bytes(bytes, &Options::default(), &mut ())
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let plain = written(Packing::None);
    let packed = written(Packing::Zstd);
    assert!(packed.len() < plain.len() / 4, "{} {}", packed.len(), plain.len());
    for bytes in [&plain, &packed] {
        let Reading { profile, origin, damage, warnings } = read(bytes).unwrap();
        assert!(profile == original().profile);
        assert_eq!((origin.format, origin.bytes), (Format::Profile, plain.len() as u64));
        assert_eq!(origin.kernel.as_deref(), Some("6.12.107"));
        assert_eq!(origin.processor.as_deref(), Some("EPYC 9654"));
        assert_eq!(origin.command.as_deref(), Some("exitless record --profile"));
        assert_eq!((damage, warnings), (None, vec![]));
    }
}

#[test]
fn other_tools_may_indent_it_and_sort_its_fields() {
    let value: serde_json::Value = serde_json::from_slice(&written(Packing::None)).unwrap();
    let pretty = serde_json::to_vec_pretty(&value).unwrap();
    assert!(read(&pretty).unwrap().profile == original().profile);
}

#[test]
fn a_damaged_profile_is_refused_with_the_place() {
    let whole = written(Packing::None);
    for length in [whole.len() / 3, whole.len() / 2, whole.len() - 3] {
        let Error::Header { offset, what, .. } = read(&whole[..length]).unwrap_err() else { panic!() };
        assert_eq!(offset, length as u64, "{what}");
    }
    let mut broken = whole.clone();
    broken[whole.len() / 2] = b'{';
    let error = read(&broken).unwrap_err().to_string();
    assert!(error.contains("a profile is broken") && error.contains("whole or useless"), "{error}");
    let packed = written(Packing::Zstd);
    assert!(matches!(read(&packed[..packed.len() / 2]), Err(Error::Read { .. })));
}

#[test]
fn other_versions_are_named() {
    let text = String::from_utf8(written(Packing::None)).unwrap();
    for (version, rest) in [("2", r#""profile":17"#), ("0", r#""profile":{}"#)] {
        let changed = text.replace(r#""format_version":1"#, &format!(r#""format_version":{version},{rest}"#));
        let error = read(changed.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(&format!("format version {version}, not 1")), "{error}");
    }
    let further = text.replace(r#""profile":"#, r#""later":[1,2],"profile":"#);
    assert!(read(further.as_bytes()).is_ok());
}

#[test]
fn what_a_profile_has_not_is_refused() {
    let bytes = written(Packing::None);
    let options = Options { from_ns: Some(5), ..Options::default() };
    let error = traces::read_bytes(&bytes, &options, &mut ()).unwrap_err().to_string();
    assert!(error.contains("--from and --to"), "{error}");
    let error = traces::read_bytes(&bytes, &Options::default(), &mut |_: &ExitRecord| {}).unwrap_err();
    assert!(error.to_string().contains("single exits are asked for"), "{error}");
}

#[test]
fn a_time_that_misses_the_exits_is_doubted_and_begins_with_them() {
    let mut profile = original().profile;
    let (length_ns, timeline) = (profile.span.unwrap().length_ns(), profile.timeline.clone());
    profile.span = Some(exits::Span { first_ns: 1 << 60, last_ns: (1 << 60) + length_ns });
    let mut bytes = Vec::new();
    write_profile(&mut bytes, &Header::default(), &profile, Packing::None).unwrap();
    let reading = read(&bytes).unwrap();
    let span = reading.profile.span.unwrap();
    assert_eq!(span.first_ns, timeline.start_ns());
    assert!(span.length_ns().abs_diff(length_ns) < timeline.width_ns());
    assert!(reading.warnings[0].contains("different clocks"), "{:?}", reading.warnings);
}
