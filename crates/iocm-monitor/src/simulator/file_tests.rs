//! Traces, written and read: complete, truncated, and random bytes.

use super::*;
use crate::simulator::{Kind, Load, made};
use proptest::prelude::*;

fn written(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    bytes
}

/// Asserts that two traces are equal, up to the rounding of floats on reading.
fn assert_alike(one: &Trace, other: &Trace) {
    assert_eq!(
        (one.machine, &one.groups, one.phases.len()),
        (other.machine, &other.groups, other.phases.len())
    );
    let near = |one: f64, other: f64| (one - other).abs() <= one.abs() * 1e-12;
    for (one, other) in one.phases.iter().zip(&other.phases) {
        assert!(one.name == other.name && near(one.seconds, other.seconds), "{one:?} {other:?}");
        assert!(one.loads.keys().eq(other.loads.keys()), "{one:?} {other:?}");
        for (one, other) in one.loads.values().zip(other.loads.values()) {
            let figures = |load: &Load| [load.computing, load.requests, load.cost_us, load.bytes];
            assert!(figures(one).into_iter().zip(figures(other)).all(|(one, other)| near(one, other)));
        }
    }
}

#[test]
fn what_is_written_is_read() {
    for kind in Kind::ALL {
        let trace = made(kind, Machine { cores: 16, nodes: 2 }, 33);
        let (read, damage) = Trace::parse(&written(&trace)).unwrap();
        assert_eq!(damage, []);
        assert_alike(&read, &trace);
    }
}

#[test]
fn a_cut_file_keeps_all_whole_phases() {
    let trace = made(Kind::Steps, Machine { cores: 4, nodes: 1 }, 3);
    let bytes = written(&trace);
    let cut = &bytes[..bytes.len() - 20];
    let (kept, damage) = Trace::parse(cut).unwrap();
    let whole = Trace { phases: trace.phases[..trace.phases.len() - 1].to_vec(), ..trace };
    assert_alike(&kept, &whole);
    let [one] = &damage[..] else { panic!("{damage:?}") };
    assert!(one.why.starts_with("the line is cut"), "{one:?}");
    assert!(bytes[one.offset..].starts_with(b"{\"phase\""), "{one:?}");
}

#[test]
fn a_line_that_means_nothing_costs_that_line_alone() {
    let trace = made(Kind::Bursts, Machine { cores: 4, nodes: 1 }, 3);
    let mut lines: Vec<String> =
        String::from_utf8(written(&trace)).unwrap().lines().map(str::to_owned).collect();
    let bad = [
        ("nonsense", "expected"),
        ("{\"group\":{\"name\":\"front\",\"vms\":1}}", "twice"),
        ("{\"group\":{\"name\":\"far\",\"vms\":1,\"node\":7}}", "node 7"),
        ("{\"group\":{\"name\":\"many\",\"vms\":4000000000,\"queues\":0}}", "100000"),
        ("{\"phase\":{\"name\":\"x\",\"seconds\":-1.0,\"loads\":{}}}", "seconds must be"),
        ("{\"phase\":{\"name\":\"x\",\"seconds\":1.0,\"loads\":{\"nobody\":{}}}}", "nobody"),
        ("{\"phase\":{\"name\":\"x\",\"seconds\":1.0,\"loads\":{\"front\":{\"speed\":1}}}}", "speed"),
    ];
    for (line, _) in bad {
        lines.insert(4, line.to_owned());
    }
    let (kept, damage) = Trace::parse(lines.join("\n").as_bytes()).unwrap();
    assert_alike(&kept, &trace);
    assert_eq!(damage.len(), bad.len());
    for (damage, (line, word)) in damage.iter().rev().zip(bad) {
        assert!(damage.why.contains(word), "{line}: {}", damage.why);
        assert!(lines.join("\n")[damage.offset..].starts_with(line));
    }
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let said = |text: &str| Trace::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(said("").contains("first line"));
    assert!(said("{\"phase\":{}}\n").contains("first line"));
    assert!(said("{\"trace\":9,\"machine\":{\"cores\":4}}").contains("format 9"));
    assert!(said("{\"trace\":1,\"machine\":{\"cores\":4000000000}}").contains("4000000000 cores"));
    assert!(said("{\"trace\":1,\"machine\":{\"cores\":4}}").contains("0 queues"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Trace::parse(&bytes);
    }

    #[test]
    fn a_damaged_trace_loses_no_more_than_the_damaged_lines(at in 0usize..2000, byte in any::<u8>()) {
        let trace = made(Kind::Steps, Machine { cores: 4, nodes: 1 }, 3);
        let mut bytes = written(&trace);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok((kept, _)) = Trace::parse(&bytes) {
            // A damaged newline, or a damaged group, takes other lines with it.
            let groups_are_whole = kept.groups == trace.groups;
            prop_assert!(!groups_are_whole || kept.phases.len() + 2 >= trace.phases.len());
            prop_assert_eq!(kept.check(), Ok(()));
            let (again, damage) = Trace::parse(&written(&kept)).unwrap();
            prop_assert_eq!(damage, []);
            assert_alike(&again, &kept);
        }
    }
}
