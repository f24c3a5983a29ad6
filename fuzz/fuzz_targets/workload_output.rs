//! What tools print, by all parsers: figures that were described and are finite, or an error; and the packets and answers
//! of servers under load.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use load::LoadResult;
use study::workload::{Output, Outputs, Scene, WorkloadPlan};

const PLANS: &[&str] = &[
    r#"{"name":"a","tool":"iozone","file_size":"1M","record_size":"64K","tests":["random-read","pwrite","fread"]}"#,
    r#"{"name":"a","tool":"iozone","file_size":"1M","record_size":"64K","tests":["random-read"],"processes":2}"#,
    r#"{"name":"a","tool":"netperf","test":"tcp-rr"}"#,
    r#"{"name":"a","tool":"netperf","test":"udp-stream","output":"classic"}"#,
    r#"{"name":"a","tool":"sysbench","test":"memory"}"#,
    r#"{"name":"a","tool":"sysbench","test":"fileio","options":{"file-test-mode":"rndrw"}}"#,
    r#"{"name":"a","tool":"fio","pattern":"random-read-write"}"#,
    r#"{"name":"a","tool":"http"}"#,
    r#"{"name":"a","tool":"http","generator":"ab"}"#,
    r#"{"name":"a","tool":"mqtt","connections":10,"rate":100}"#,
    r#"{"name":"a","tool":"probe","measure":"eoi"}"#,
];

static WORKLOADS: LazyLock<Vec<WorkloadPlan>> =
    LazyLock::new(|| PLANS.iter().map(|plan| serde_json::from_str(plan).expect("a plan")).collect());

fuzz_target!(|text: &str| {
    for plan in WORKLOADS.iter() {
        let described = plan.metrics();
        let step = plan.steps(&Scene::default()).run[0].name.to_owned();
        let output = Output { stdout: text.to_owned(), ..Output::default() };
        let Ok(found) = plan.parse(&Outputs { steps: [(step, output)].into() }) else { continue };
        for metric in found {
            assert!(metric.value.is_finite() && metric.value >= 0.0, "{metric:?}");
            assert!(described.iter().any(|by| by.covers(&metric.name)), "{metric:?}");
        }
    }
    if let Ok(outcome) = LoadResult::read(text) {
        assert!(outcome.attained_rate().is_finite());
    }
});
