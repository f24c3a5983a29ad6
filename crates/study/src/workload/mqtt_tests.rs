use load::Protocol;

use super::super::testing::{loaded, not_understood, parsed, plan, refused};
use super::super::{Place, Scene};

fn settings(more: &str) -> String {
    format!("tool = \"mqtt\"\nconnections = 10\nrate = 100\n{more}\n")
}

#[test]
fn deliveries_latencies_and_losses_are_read() {
    let found = parsed(&plan(&settings("")), &loaded(Protocol::Mqtt)).unwrap();
    let expected = [
        ("messages", 90.0),
        ("throughput", 5760.0),
        ("latency.p50", 1e-3),
        ("latency.p90", 3e-3),
        ("latency.p99", 9e-3),
        ("latency.p99.9", 0.02),
        ("attained", 90.0),
        ("lost", 15.0),
        ("errors", 1.0),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn without_a_delivery_there_is_no_figure() {
    let silent = loaded(Protocol::Mqtt).replace("\"latency\":{", "\"latency\":null,\"other\":{");
    assert_eq!(not_understood(&settings(""), &silent).expected, "a figure for latency.p50");
    let newer = loaded(Protocol::Mqtt).replace("\"format\":1", "\"format\":2");
    assert!(not_understood(&settings(""), &newer).expected.contains("format 2"));
    let senseless = loaded(Protocol::Mqtt).replace("\"seconds\":10.0", "\"seconds\":0.0");
    assert!(not_understood(&settings(""), &senseless).expected.contains("seconds is not a number above 0"));
}

#[test]
fn the_broker_is_in_the_guest_and_the_clients_on_the_host() {
    let scene = Scene { guest: 1, address: "192.0.2.9".parse().ok(), ..Scene::default() };
    let steps = plan(&settings("quality = \"at-least-once\"\nsubscribers = 2\nthreads = 2")).steps(&scene);
    assert_eq!((steps.serve[0].place, steps.run[0].place), (Place::Guest, Place::Host));
    assert!(steps.prepare[0].script.contains("listener 1884\n"), "{}", steps.prepare[0].script);
    let line = " load mqtt --connections 10 --subscribers 2 --rate 100 --message-size 64 --quality 1 --threads 2 \
                --duration 10s --json 192.0.2.9:1884 || [ $? -eq 1 ]\n";
    assert!(steps.run[0].script.ends_with(line), "{}", steps.run[0].script);
}

#[test]
fn a_hundred_thousand_connections_have_ports_and_files() {
    let many = settings("divide = true").replace("connections = 10", "connections = 100000");
    let steps = |guests| plan(&many).steps(&Scene { guests, ..Scene::default() });
    let alone = steps(1);
    assert!(alone.prepare[0].script.contains("listener 1883\nlistener 2883\n"), "{alone:?}");
    assert!(alone.serve[0].script.contains("ulimit -n 100101 "), "{alone:?}");
    assert!(alone.run[0].script.contains(" 127.0.0.1:1883 127.0.0.1:2883 "), "{alone:?}");
    let six = steps(6).run[0].script.clone();
    assert!(six.contains("--connections 16667 ") && six.contains("--rate 17 "), "{six}");
    assert!(six.contains(":2883") && !six.contains(":3883"), "{six}");
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings("message_size = 8"), "message_size must be 16"),
        (settings("threads = 2"), "threads must be"),
        (settings("subscribers = 0"), "subscribers must be"),
        (settings("").replace("rate = 100", "rate = 0"), "rate must be"),
        (settings("quality = 2"), "quality"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected) || expected == "quality", "{refused}");
    }
}
