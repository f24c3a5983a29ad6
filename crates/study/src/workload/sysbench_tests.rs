use super::super::Scene;
use super::super::testing::{assert_figures, fixture, not_understood, plan, refused, script};

fn settings(test: &str, more: &str) -> String {
    format!("tool = \"sysbench\"\nduration = \"1s\"\ntest = {test:?}\n{more}\n")
}

const FILES: &str = "options = { file-test-mode = \"rndrw\", file-total-size = \"4M\" }";

#[test]
fn events_are_a_rate_and_latencies_are_seconds() {
    for (test, seconds, events, sum, max, percentile) in [
        ("threads", 1.1519, 112.0, 18_264.48, 352.8, 320.17),
        ("cpu", 1.0001, 31_646.0, 984.49, 20.09, 0.01),
        ("mutex", 0.4458, 4.0, 1676.15, 440.19, 442.73),
    ] {
        let expected = [
            ("events", events / seconds),
            ("latency.mean", sum / events / 1e3),
            ("latency.max", max / 1e3),
            ("latency.p95", percentile / 1e3),
        ];
        assert_figures(&settings(test, ""), &format!("sysbench-{test}.out"), &expected);
    }
    let expected = [
        ("events", 198.0 / 1.001),
        ("latency.mean", 1.99983 / 198.0),
        ("latency.max", 0.01757),
        ("latency.p99", 0.01671),
    ];
    assert_figures(&settings("threads", "percentile = 99"), "sysbench-threads-p99.out", &expected);
}

#[test]
fn memory_and_files_have_a_throughput_too() {
    let mebibyte = 1_048_576.0;
    let expected = [
        ("events", 1_827_640.0 / 1.0001),
        ("latency.mean", 0.45336 / 1_827_640.0),
        ("latency.max", 0.01609),
        ("latency.p95", 0.0),
        ("throughput", 1783.63 * mebibyte),
    ];
    assert_figures(&settings("memory", ""), "sysbench-memory.out", &expected);
    let expected = [
        ("events", 3847.0 / 1.0124),
        ("latency.mean", 0.99669 / 3847.0),
        ("latency.max", 0.02026),
        ("latency.p95", 0.00002),
        ("reads", 2191.49),
        ("writes", 1461.0),
        ("fsyncs", 149.06),
        ("read.throughput", 34.24 * mebibyte),
        ("write.throughput", 22.83 * mebibyte),
    ];
    assert_figures(&settings("fileio", FILES), "sysbench-fileio.out", &expected);
}

#[test]
fn an_output_without_a_figure_is_not_understood() {
    let error = not_understood(&settings("fileio", FILES), &fixture("sysbench-fileio-missing-files.out"));
    assert!(error.expected.contains("total time:") && error.found.starts_with("WARNING"), "{error}");
    let error = not_understood(&settings("threads", "percentile = 99"), &fixture("sysbench-threads.out"));
    assert!(error.expected.contains("99th percentile:"), "{error}");
    let none = fixture("sysbench-threads.out").replace(" 112\n", " 0\n");
    assert!(not_understood(&settings("threads", ""), &none).expected.contains("above 0"));
    let damaged = fixture("sysbench-threads.out").replace("1.1519s", "1.1519");
    assert!(not_understood(&settings("threads", ""), &damaged).found.contains("1.1519"));
}

#[test]
fn files_are_made_once_with_the_same_options() {
    let steps = plan(&settings("fileio", FILES)).steps(&Scene::default());
    let common = "exec sysbench fileio --threads=1 --time=1 --events=0 --percentile=95 \
                  --file-test-mode=rndrw --file-total-size=4M";
    assert!(steps.prepare[0].script.ends_with(&format!("{common} prepare\n")), "{steps:?}");
    assert!(steps.run[0].script.ends_with(&format!("{common} run\n")), "{steps:?}");
    assert!(plan(&settings("cpu", "")).steps(&Scene::default()).prepare.is_empty());
    assert_eq!(
        script(&settings("threads", "threads = 16\nthread_locks = 8")),
        "exec sysbench threads --threads=16 --time=1 --events=0 --percentile=95 --thread-locks=8 run"
    );
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings("cpu", "thread_locks = 1"), "thread_locks is for"),
        (settings("cpu", "threads = 0"), "threads must be at least 1"),
        (settings("cpu", "percentile = 101"), "1 to 100"),
        (settings("fileio", ""), "file-test-mode"),
        (settings("cpu", "options = { time = \"3\" }"), "must not have time"),
        (settings("cpu", "options = { \"a b\" = \"3\" }"), "names such as"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected), "{refused}");
    }
}
