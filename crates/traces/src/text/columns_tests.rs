use super::*;
use proptest::prelude::*;

type Row<'a> = (&'a str, u32, Option<u32>, u16, u64, Unit);

fn parse(line: &str) -> Option<Row<'_>> {
    let columns = Columns::parse(line.as_bytes())?;
    assert_eq!(columns.rest.trim_ascii(), b"kvm_exit: x");
    let name = std::str::from_utf8(columns.name).unwrap();
    Some((name, columns.thread, columns.process, columns.cpu, columns.time, columns.unit))
}

const MICRO: u64 = 37_468_656_000;

#[test]
fn columns_of_tracefs() {
    let rows: [(&str, Row<'_>); 10] = [
        (
            "        exitless-499     [000] d..1.    37.468656: kvm_exit: x",
            ("exitless", 499, None, 0, MICRO, Unit::Microseconds),
        ),
        (
            "          vcpu 0-501     [012] .N...    37.468656: kvm_exit: x",
            ("vcpu 0", 501, None, 12, MICRO, Unit::Microseconds),
        ),
        // Without flags.
        (
            "   CPU 0/KVM-409     [001]    37.468656: kvm_exit: x",
            ("CPU 0/KVM", 409, None, 1, MICRO, Unit::Microseconds),
        ),
        // Four flags, as before Linux 5.17.
        (
            "  mix-801   [000] d..1    37.468656: kvm_exit: x",
            ("mix", 801, None, 0, MICRO, Unit::Microseconds),
        ),
        // With the process, before or after the CPU.
        (
            "  mix-801     (    400) [000] d..1.    37.468656: kvm_exit: x",
            ("mix", 801, Some(400), 0, MICRO, Unit::Microseconds),
        ),
        (
            "  mix-801   [000] (  400) d..1    37.468656: kvm_exit: x",
            ("mix", 801, Some(400), 0, MICRO, Unit::Microseconds),
        ),
        (
            "  mix-801     (-------) [000] d..1.    37.468656: kvm_exit: x",
            ("mix", 801, None, 0, MICRO, Unit::Microseconds),
        ),
        // Clocks with ticks.
        (
            "  exitless-442     [001] d..1.            4: kvm_exit: x",
            ("exitless", 442, None, 1, 4, Unit::Ticks),
        ),
        // Latency format.
        (
            "vcpu 0-416       1d..1. 418889us+: kvm_exit: x",
            ("vcpu 0", 416, None, 1, 418_889_000, Unit::Microseconds),
        ),
        (
            "exitless-414      13..... 5us : kvm_exit: x",
            ("exitless", 414, None, 13, 5000, Unit::Microseconds),
        ),
    ];
    for (line, row) in rows {
        assert_eq!(parse(line), Some(row), "{line}");
    }
}

#[test]
fn columns_of_trace_cmd_and_perf() {
    let rows: [(&str, Row<'_>); 9] = [
        // A time without a space between it and the flags.
        (
            "  exitless-512   [001] d..1.106301954379: kvm_exit: x",
            ("exitless", 512, None, 1, 106_301_954_379, Unit::Ticks),
        ),
        (
            "  mix-499   [000] d..1.    37.468656327: kvm_exit: x",
            ("mix", 499, None, 0, 37_468_656_327, Unit::Nanoseconds),
        ),
        (
            "  exitless-499   [000]-0x1    37.468656: kvm_exit: x",
            ("exitless", 499, None, 0, MICRO, Unit::Microseconds),
        ),
        (
            "exitless-499     0d..1.    37.468656: kvm_exit: x",
            ("exitless", 499, None, 0, MICRO, Unit::Microseconds),
        ),
        (
            " kworker/0:1-23   [002] d..1.    37.468656: kvm_exit: x",
            ("kworker/0:1", 23, None, 2, MICRO, Unit::Microseconds),
        ),
        (
            "   CPU 0/KVM   385 [001]    37.468656:  kvm_exit: x",
            ("CPU 0/KVM", 385, None, 1, MICRO, Unit::Microseconds),
        ),
        (
            "   CPU 0/KVM   383/385   [001]    37.468656: kvm_exit: x",
            ("CPU 0/KVM", 385, Some(383), 1, MICRO, Unit::Microseconds),
        ),
        ("  385    37.468656: kvm_exit: x", ("", 385, None, 0, MICRO, Unit::Microseconds)),
        (
            "  mix   383/385      37.468656327: kvm_exit: x",
            ("mix", 385, Some(383), 0, 37_468_656_327, Unit::Nanoseconds),
        ),
    ];
    for (line, row) in rows {
        assert_eq!(parse(line), Some(row), "{line}");
    }
}

#[test]
fn other_texts_have_no_such_columns() {
    let lines = [
        "",
        "# tracer: nop",
        "cpus=2",
        "CPU:1 [LOST 10322 EVENTS]",
        "Nov 22 01:05:33 host sshd[123]: session opened",
        "2024-11-22T01:05:33.123456Z INFO main: started",
        "[   12.345678] kvm: loaded",
        "127.0.0.1 - - [10/Oct/2000:13:55:36] 5: GET",
        "10.0.0.123456: a",
        ": : :",
    ];
    for line in lines {
        assert_eq!(Columns::parse(line.as_bytes()), None, "{line}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(line in "[ a-z0-9.:()\\[\\]/+#-]{0,60}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = Columns::parse(line.as_bytes());
        let _ = Columns::parse(&bytes);
    }
}
