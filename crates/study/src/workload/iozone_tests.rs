use super::super::testing::{assert_figures, fixture, not_understood, refused, script};
use super::*;

const SIZES: &str = "tool = \"iozone\"\nfile_size = \"1M\"\nrecord_size = \"64K\"\n";

fn settings(tests: &[&str], more: &str) -> String {
    format!("{SIZES}tests = {tests:?}\n{more}")
}

fn kib(figures: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    figures.iter().map(|&(name, value)| (name, value * 1024.0)).collect()
}

#[test]
fn the_tests_of_the_first_study_are_read_in_bytes_per_second() {
    let tests = ["random-read", "random-write", "pread", "pwrite", "fread", "fwrite"];
    let expected = kib(&[
        ("random-read.throughput", 7_537_599.0),
        ("random-write.throughput", 4_317_393.0),
        ("pread.throughput", 6_244_448.0),
        ("pwrite.throughput", 4_550_690.0),
        ("fread.throughput", 6_479_979.0),
        ("fwrite.throughput", 2_859_868.0),
    ]);
    assert_figures(&settings(&tests, ""), "iozone-seed.out", &expected);
}

#[test]
fn every_column_is_read_by_its_own_name() {
    let all = [
        ("write", 183_877.0),
        ("rewrite", 85_113.0),
        ("read", 262_035.0),
        ("reread", 258_191.0),
        ("random-read", 263_854.0),
        ("random-write", 263_175.0),
        ("backward-read", 245_331.0),
        ("record-rewrite", 259_313.0),
        ("stride-read", 218_798.0),
        ("fwrite", 256_955.0),
        ("frewrite", 97_682.0),
        ("fread", 4_451_639.0),
        ("freread", 5_991_815.0),
        ("pwrite", 110_167.0),
        ("repwrite", 77_699.0),
        ("pread", 132_129.0),
        ("repread", 407_964.0),
    ];
    for (test, value) in all {
        let name = format!("{test}.throughput");
        assert_figures(&settings(&[test], ""), "iozone-all.out", &[(&name, value * 1024.0)]);
    }
}

#[test]
fn columns_of_tests_that_did_not_run_stay_empty() {
    let expected = kib(&[("random-write.throughput", 4_130_547.0), ("random-read.throughput", 4_898_425.0)]);
    assert_figures(&settings(&["random-write", "random-read"], ""), "iozone-random.out", &expected);
    let expected = kib(&[("random-read.throughput", 396_747.0), ("pwrite.throughput", 256_512.0)]);
    assert_figures(&settings(&["random-read", "pwrite"], ""), "iozone-guest.out", &expected);
    let expected = kib(&[("read.throughput", 12_348_754.0), ("write.throughput", 3_160_839.0)]);
    assert_figures(&settings(&["read", "write"], ""), "iozone-basic.out", &expected);
    let expected = kib(&[("random-read.throughput", 156_477.0)]);
    assert_figures(&settings(&["random-read"], "direct = true"), "iozone-direct.out", &expected);
    let missing = not_understood(&settings(&["pread"], ""), &fixture("iozone-random.out"));
    assert_eq!(missing.expected, "a figure for pread.throughput");
}

#[test]
fn processes_are_read_from_the_throughput_mode() {
    let all = [
        ("write", 4_614_247.0),
        ("rewrite", 3_261_656.25),
        ("read", 3_393_070.0),
        ("reread", 4_972_145.0),
        ("backward-read", 5_042_191.0),
        ("stride-read", 4_715_569.0),
        ("random-read", 3_425_544.75),
        ("mixed", 8_207_053.5),
        ("random-write", 5_018_624.0),
        ("pwrite", 4_632_163.75),
        ("pread", 5_219_904.5),
        ("fwrite", 7_841_371.5),
        ("fread", 6_854_504.25),
    ];
    for (test, value) in all {
        let name = format!("{test}.throughput");
        let settings = settings(&[test], "processes = 2");
        assert_figures(&settings, "iozone-processes.out", &[(&name, value * 1024.0)]);
    }
    let expected = kib(&[("random-read.throughput", 5_200_941.5)]);
    assert_figures(&settings(&["random-read"], "processes = 1"), "iozone-one-process.out", &expected);
}

#[test]
fn an_output_of_something_else_is_not_understood() {
    let one = settings(&["random-read"], "");
    let error = not_understood(&one, &fixture("iozone-operations.out"));
    assert_eq!(error.found, "\tOPS Mode. Output is in operations per second.");
    let error = not_understood(&one, &fixture("iozone-missing-file.out"));
    assert_eq!(error.expected, "iozone test complete.");
    assert!(error.found.contains("Error reading block"), "{error}");
    let two = settings(&["random-read"], "processes = 2");
    let error = not_understood(&two, &fixture("iozone-one-process.out"));
    assert_eq!(error.expected, "2 processes");
    let error = not_understood(&one, &fixture("iozone-random.out").replace(" 4898425 ", " 48984x5 "));
    assert!(error.found.contains("48984x5") && error.expected.ends_with("as a number"), "{error}");
    let without = fixture("iozone-random.out").replace(" 4898425 ", "         ");
    assert_eq!(not_understood(&one, &without).expected, "kB, reclen and 2 figures");
}

#[test]
fn the_command_measures_what_was_asked_for() {
    assert_eq!(
        script(&settings(&["random-read", "pread"], "direct = true\nclose = true\nflush = true")),
        "iozone -w -s 1024k -r 64k -i 2 -i 10 -I -e -c -E -f file-0"
    );
    assert_eq!(
        script(&settings(&["fwrite"], "processes = 2\narguments = [\"-x\", \"it's\"]")),
        r"iozone -w -s 1024k -r 64k -i 6 -x 'it'\''s' -t 2 -F file-0 file-1"
    );
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings(&[], ""), "tests must name at least one"),
        (settings(&["read", "read"], ""), "more than once"),
        (settings(&["mixed"], ""), "name mixed"),
        (settings(&["repread"], "processes = 2"), "name repread"),
        (settings(&["read"], "processes = 0"), "processes must be at least 1"),
        (settings(&["read"], "").replace("64K", "2M"), "record_size is more"),
        (settings(&["read"], "").replace("64K", "100"), "multiple of 1K"),
        (settings(&["read"], "").replace("64K", "48K"), "whole records"),
        (settings(&["read"], "speed = 1"), "unknown field `speed`"),
        (settings(&["raed"], ""), "unknown variant `raed`"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn each_test_has_its_own_line_of_the_table() {
    for (index, known) in IozoneTest::KNOWN.iter().enumerate() {
        assert_eq!(known.test as usize, index);
        let written = serde_json::to_value(known.test).unwrap();
        assert_eq!(written.as_str(), Some(known.name));
    }
}
