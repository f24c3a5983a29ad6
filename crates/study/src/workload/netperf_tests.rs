use super::super::Scene;
use super::super::testing::{assert_figures, fixture, not_understood, parsed, plan, refused, script};
use super::*;

fn settings(test: &str, more: &str) -> String {
    format!("tool = \"netperf\"\nduration = \"1s\"\ntest = {test:?}\n{more}\n")
}

const CLASSIC: &str = "output = \"classic\"";
const CLASSIC_NO_CPU: &str = "output = \"classic\"\ncpu = false";

#[test]
fn streams_are_read_in_bits_per_second() {
    let cpu = [("cpu.guest", 100.0), ("cpu.host", 100.0)];
    for (test, omni, classic, bare, more) in [
        ("tcp-stream", 2298.68e6, 2001.37e6, 2496.43e6, "message_size = \"16K\"\n"),
        ("tcp-maerts", 107.67e6, 117.18e6, 45.33e6, "message_size = \"64\"\n"),
    ] {
        let all = |value| [("throughput", value), cpu[0], cpu[1]];
        assert_figures(&settings(test, more), &format!("netperf-{test}-omni.out"), &all(omni));
        let name = format!("netperf-{test}-classic.out");
        assert_figures(&settings(test, &format!("{more}{CLASSIC}")), &name, &all(classic));
        let name = format!("netperf-{test}-classic-no-cpu.out");
        assert_figures(&settings(test, &format!("{more}{CLASSIC_NO_CPU}")), &name, &[("throughput", bare)]);
    }
    let bare = settings("tcp-stream", "cpu = false");
    assert_figures(&bare, "netperf-tcp-stream-omni-no-cpu.out", &[("throughput", 2778.66e6)]);
}

#[test]
fn of_udp_what_arrived_counts() {
    let omni = [("throughput", 191.72e6), ("sent", 339.31e6), ("cpu.guest", 100.0), ("cpu.host", 100.0)];
    assert_figures(&settings("udp-stream", ""), "netperf-udp-stream-omni.out", &omni);
    let sent = fixture("netperf-udp-stream-omni.out").replace("\nTHROUGHPUT=191.72", "\nTHROUGHPUT=339.31");
    let (name, value) = parsed(&plan(&settings("udp-stream", "")), &sent).unwrap().remove(0);
    assert!(name == "throughput" && (value - 191.72e6).abs() < 1.0, "{name} is {value}");
    let classic = [("throughput", 211.7e6), ("sent", 370.1e6), ("cpu.guest", 100.0), ("cpu.host", 100.0)];
    assert_figures(&settings("udp-stream", CLASSIC), "netperf-udp-stream-classic.out", &classic);
    let bare = [("throughput", 203.46e6), ("sent", 375.53e6)];
    assert_figures(&settings("udp-stream", CLASSIC_NO_CPU), "netperf-udp-stream-classic-no-cpu.out", &bare);
}

#[test]
fn transactions_have_a_rate_and_latencies() {
    for (test, rate, latencies, remote, classic, classic_remote, bare) in [
        ("tcp-rr", 18_862.27, [52.94, 14.0, 17.0, 285.0], 100.0, 21_988.1, 100.0, 18_910.6),
        ("tcp-crr", 5368.05, [186.17, 70.0, 92.0, 3775.0], 499.9, 5142.44, 498.65, 7419.19),
        ("udp-rr", 22_876.34, [43.65, 12.0, 14.0, 78.0], 100.0, 23_954.62, 100.0, 37_852.93),
    ] {
        let sizes = "request_size = 64\nresponse_size = 128\n";
        let omni = [
            ("transactions", rate),
            ("latency.mean", latencies[0] * 1e-6),
            ("latency.p50", latencies[1] * 1e-6),
            ("latency.p90", latencies[2] * 1e-6),
            ("latency.p99", latencies[3] * 1e-6),
            ("cpu.guest", 100.0),
            ("cpu.host", remote),
        ];
        assert_figures(&settings(test, sizes), &format!("netperf-{test}-omni.out"), &omni);
        let name = format!("netperf-{test}-classic.out");
        let table = [("transactions", classic), ("cpu.guest", 100.0), ("cpu.host", classic_remote)];
        assert_figures(&settings(test, &format!("{sizes}{CLASSIC}")), &name, &table);
        let name = format!("netperf-{test}-classic-no-cpu.out");
        let table = [("transactions", bare)];
        assert_figures(&settings(test, &format!("{sizes}{CLASSIC_NO_CPU}")), &name, &table);
    }
}

#[test]
fn what_could_not_be_measured_is_no_figure() {
    let error = not_understood(&settings("tcp-stream", ""), &fixture("netperf-tcp-stream-omni-no-cpu.out"));
    assert_eq!(error.found, "LOCAL_CPU_UTIL=-1.00");
    let error = not_understood(&settings("tcp-stream", ""), &fixture("netperf-refused.out"));
    assert!(error.expected.contains("THROUGHPUT_UNITS") && error.found.contains("could not"), "{error}");
    let error = not_understood(&settings("tcp-rr", ""), &fixture("netperf-tcp-stream-omni.out"));
    assert_eq!(error.found, "THROUGHPUT_UNITS=10^6bits/s");
    // Tables of different tests have different columns.
    let error = not_understood(&settings("tcp-stream", CLASSIC), &fixture("netperf-udp-stream-classic.out"));
    assert_eq!(error.expected, "a row of 9 numbers");
    let other = settings("tcp-maerts", "message_size = \"1K\"");
    let error = not_understood(&other, &fixture("netperf-tcp-maerts-omni.out"));
    assert_eq!(
        (error.expected.as_str(), error.found.as_str()),
        ("REMOTE_SEND_SIZE=1024", "REMOTE_SEND_SIZE=64")
    );
}

#[test]
fn the_guest_can_be_either_side() {
    let scene = Scene {
        guest: 2,
        address: "10.0.0.3".parse().ok(),
        host_address: "10.0.0.1".parse().ok(),
        ..Scene::default()
    };
    let steps = plan(&settings("tcp-stream", "")).steps(&scene);
    assert_eq!((steps.serve[0].place, steps.run[0].place), (Place::Host, Place::Guest));
    assert_eq!(steps.serve[0].script, "exec netserver -D -p 12867\n");
    assert!(
        steps.run[0].script.contains("exec netperf -H 10.0.0.1 -p 12867 -l 1 -t TCP_STREAM -c -C -- -k ")
    );
    let steps = plan(&settings("tcp-stream", "server = \"guest\"")).steps(&scene);
    assert_eq!((steps.serve[0].place, steps.run[0].place), (Place::Guest, Place::Host));
    assert!(steps.run[0].script.contains("-H 10.0.0.3"), "{:?}", steps.run);
    let turned = settings("tcp-stream", "server = \"guest\"");
    let found = super::super::testing::parsed(&plan(&turned), &fixture("netperf-tcp-crr-omni.out"));
    assert!(found.is_err());
}

#[test]
fn the_command_says_the_sizes() {
    let line = script(&settings(
        "tcp-maerts",
        "message_size = \"64\"\nsocket_buffer = \"64K\"\noutput = \"classic\"",
    ));
    assert_eq!(
        line,
        "exec netperf -H 127.0.0.1 -p 12865 -l 1 -t TCP_MAERTS -c -C -- -m 64,64 -s 65536 -S 65536"
    );
    let line = script(&settings("udp-rr", "request_size = 100\ncpu = false"));
    assert!(
        line.starts_with("exec netperf -H 127.0.0.1 -p 12865 -l 1 -t UDP_RR -j -- -r 100,1 -k THROUGHPUT,")
    );
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings("tcp-rr", "message_size = \"64\""), "message_size is for streams"),
        (settings("tcp-stream", "request_size = 64"), "request_size is for"),
        (settings("udp-stream", "message_size = \"64K\""), "more than a UDP datagram"),
        (settings("tcp-stream", "").replace("1s", "1500ms"), "whole seconds"),
        (settings("sctp-stream", ""), "unknown variant"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected), "{refused}");
    }
}
