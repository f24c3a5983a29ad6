use load::Protocol;

use super::super::Scene;
use super::super::testing::{assert_figures, fixture, loaded, not_understood, parsed, plan, refused, script};

fn settings(generator: &str, more: &str) -> String {
    format!("tool = \"http\"\nduration = \"1s\"\ngenerator = {generator:?}\n{more}\n")
}

const MEBIBYTE: f64 = 1_048_576.0;

#[test]
fn wrk_is_read_with_its_units() {
    let expected = [
        ("requests", 21_924.1),
        ("throughput", 26.43 * MEBIBYTE),
        ("latency.p50", 440e-6),
        ("latency.p75", 1.84e-3),
        ("latency.p90", 5.69e-3),
        ("latency.p99", 23.22e-3),
        ("errors", 0.0),
    ];
    assert_figures(&settings("wrk", ""), "wrk.out", &expected);
}

#[test]
fn errors_of_wrk_add_up() {
    let errors = |name: &str| {
        let found = parsed(&plan(&settings("wrk", "")), &fixture(name)).unwrap();
        found.iter().find(|(name, _)| name == "errors").unwrap().1
    };
    let responses: f64 = fixture("wrk-refused.out")
        .lines()
        .find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: ")?.parse().ok())
        .unwrap();
    assert!(responses > 0.0);
    assert_eq!(errors("wrk-refused.out"), responses);
    assert!(fixture("wrk-server-gone.out").contains("Socket errors: connect 0, read "));
    assert!(errors("wrk-server-gone.out") > 0.0);
}

#[test]
fn ab_is_read_with_the_table_of_its_percentiles() {
    let expected = [
        ("requests", 7672.56),
        ("throughput", 9470.81 * 1024.0),
        ("latency.p50", 0.189e-3),
        ("latency.p90", 3.251e-3),
        ("latency.p95", 7.01e-3),
        ("latency.p99", 10.133e-3),
        ("errors", 0.0),
    ];
    assert_figures(&settings("ab", ""), "ab.out", &expected);
    let expected = [
        ("requests", 4882.48),
        ("throughput", 1468.56 * 1024.0),
        ("latency.p50", 0.04e-3),
        ("latency.p90", 0.051e-3),
        ("latency.p95", 0.095e-3),
        ("latency.p99", 8.034e-3),
        ("errors", 500.0),
    ];
    assert_figures(&settings("ab", "requests = 500"), "ab-refused.out", &expected);
    let found =
        parsed(&plan(&settings("ab", "keep_alive = false")), &fixture("ab-no-keep-alive.out")).unwrap();
    assert_eq!(found[0].1, 4307.79);
}

#[test]
fn our_own_load_tells_what_was_attained() {
    let found = parsed(&plan(&settings("exitless", "rate = 100")), &loaded(Protocol::Http)).unwrap();
    let expected = [
        ("requests", 90.0),
        ("throughput", 5760.0),
        ("latency.p50", 1e-3),
        ("latency.p90", 3e-3),
        ("latency.p99", 9e-3),
        ("latency.p99.9", 0.02),
        ("attained", 90.0),
        ("errors", 21.0),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn an_output_without_percentiles_is_not_understood() {
    let error = not_understood(&settings("wrk", ""), &fixture("wrk-no-latency.out"));
    assert_eq!(error.expected, "a figure for latency.p50");
    let cut = fixture("ab.out").replace("Percentage served,Time in ms", "");
    assert_eq!(not_understood(&settings("ab", ""), &cut).expected, "Percentage served,Time in ms");
    let damaged = fixture("wrk.out").replace("440.00us", "440.00fs");
    assert_eq!(not_understood(&settings("wrk", ""), &damaged).found, "     50%  440.00fs");
    let nothing = not_understood(&settings("exitless", "rate = 1"), "{}");
    assert!(nothing.expected.contains("exitless load"), "{nothing}");
}

#[test]
fn the_commands_ask_for_the_document_of_their_own_guest() {
    let scene = Scene { guest: 1, address: "fd00::2".parse().ok(), ..Scene::default() };
    let steps = plan(&settings("wrk", "threads = 2")).steps(&scene);
    let line = "wrk --latency -t 2 -c 16 -d 1s 'http://[fd00::2]:8081/document'\n";
    assert!(steps.run[0].script.ends_with(line), "{}", steps.run[0].script);
    assert!(steps.prepare[0].script.contains("listen 8081 "), "{}", steps.prepare[0].script);
    assert_eq!(
        script(&settings("ab", "client = \"guest\"")),
        "ab -q -k -c 16 -t 1 -n 2000000 -e percentiles.csv http://127.0.0.1:8080/document && cat percentiles.csv"
    );
    let own = script(&settings("exitless", "rate = 500"));
    let arguments = "load http --connections 16 --threads 1 --rate 500 --duration 1s --json http://127.0.0.1:8080/document || [ $? -eq 1 ]";
    assert!(own.ends_with(arguments), "{own}");
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings("exitless", ""), "rate is needed"),
        (settings("wrk", "rate = 5"), "rate needs"),
        (settings("exitless", "rate = 5\nclient = \"guest\""), "client must be"),
        (settings("wrk", "requests = 5"), "requests needs"),
        (settings("wrk", "keep_alive = false"), "keep_alive can"),
        (settings("ab", "threads = 2"), "threads must be 1"),
        (settings("wrk", "connections = 1\nthreads = 2"), "threads must be"),
        (settings("ab", "requests = 2"), "not be less than"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected), "{refused}");
    }
}
