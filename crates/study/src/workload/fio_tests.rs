use super::super::Scene;
use super::super::testing::{assert_figures, fixture, not_understood, outputs, plan, refused, script};

fn settings(pattern: &str, more: &str) -> String {
    format!("tool = \"fio\"\nduration = \"1s\"\nfile_size = \"4M\"\npattern = {pattern:?}\n{more}\n")
}

#[test]
fn both_directions_are_read_from_json() {
    let expected = [
        ("read.iops", 4022.840119),
        ("read.throughput", 16_477_553.0),
        ("read.latency.mean", 203_173.812886e-9),
        ("read.latency.p50", 57_600e-9),
        ("read.latency.p99", 3_981_312e-9),
        ("read.latency.p99.9", 7_241_728e-9),
        ("write.iops", 4113.207547),
        ("write.throughput", 16_847_698.0),
        ("write.latency.mean", 5477.17407e-9),
        ("write.latency.p50", 4128e-9),
        ("write.latency.p99", 28_288e-9),
        ("write.latency.p99.9", 53_504e-9),
        ("cpu.user", 0.497018),
        ("cpu.system", 14.811133),
    ];
    assert_figures(&settings("random-read-write", ""), "fio-random-read-write.json", &expected);
    let expected = [
        ("write.iops", 5549.450549),
        ("write.throughput", 22_755_100.0),
        ("write.latency.mean", 1_435_627.796619e-9),
        ("write.latency.p50", 183_296e-9),
        ("write.latency.p99", 9_633_792e-9),
        ("write.latency.p99.9", 20_840_448e-9),
        ("cpu.user", 0.5),
        ("cpu.system", 4.25),
    ];
    assert_figures(&settings("write", "jobs = 2"), "fio-write.json", &expected);
}

#[test]
fn an_output_that_is_not_one_whole_job_is_not_understood() {
    let read = settings("read", "");
    let error = not_understood(&read, &fixture("fio-two-jobs.json"));
    assert!(error.expected.contains("group_reporting=1") && error.found == "2 jobs", "{error}");
    let error = not_understood(&read, &fixture("fio-error.json"));
    assert_eq!(error.expected, "\"error\" : 0");
    let error = not_understood(&read, &fixture("fio-write.json"));
    assert_eq!(
        (error.expected.as_str(), error.found.as_str()),
        ("operations in \"read\"", "\"total_ios\" : 0")
    );
    let whole = fixture("fio-write.json");
    let error = not_understood(&read, &whole[..whole.len() / 2]);
    assert!(error.expected.contains("a whole JSON document"), "{error}");
    assert_eq!(not_understood(&read, "fio: engine nosuch not loadable\n").expected, "a JSON document");
}

#[test]
fn a_job_file_replaces_the_fields() {
    let text = "[job]\nrw=randread\nsize=4M\ndescription=it's\n";
    let steps = plan(&settings("random-read", &format!("job_file = {text:?}"))).steps(&Scene::default());
    let script = &steps.run[0].script;
    assert!(script.ends_with("exec fio --output-format=json job.fio\n"), "{script}");
    assert!(script.contains(r"description=it'\''s"), "{script}");
    assert!(steps.prepare[0].script.contains("fio --output-format=json --create_only=1 job.fio"));
}

#[test]
fn the_command_says_all_fields() {
    let more = "depth = 4\njobs = 2\nengine = \"libaio\"\ndirect = true\nrate = 100\nramp = \"1s\"\n\
                device = \"/dev/vdb\"\nblock_size = \"64K\"";
    assert_eq!(
        script(&settings("random-write", more)),
        "exec fio --output-format=json --name=job --rw=randwrite --bs=65536 --size=4194304 --runtime=1 \
         --time_based=1 --ramp_time=1 --iodepth=4 --numjobs=2 --group_reporting=1 --ioengine=libaio --direct=1 \
         --rate_iops=100 --filename=/dev/vdb"
    );
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (settings, expected) in [
        (settings("read", "depth = 0"), "depth must be"),
        (settings("read", "jobs = 0"), "jobs must be"),
        (settings("read", "rate = 0"), "rate must be"),
        (settings("read", "block_size = \"8M\""), "block_size is more"),
        (settings("read", "job_file = \"rw=read\""), "job_file must be"),
        (settings("trim", ""), "unknown variant"),
    ] {
        let refused = refused(&settings);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn with_a_ramp_no_work_is_told_and_a_warning_is() {
    let job = "job_file = \"[job]\\nrw=write\\nramp_time=5\"";
    for (more, has_work) in [("", true), ("ramp = \"5s\"", false), (job, false)] {
        let plan = plan(&settings("write", more));
        let metrics = plan.parse(&outputs(&plan, &fixture("fio-write.json"))).unwrap();
        let tells = |name: &str| name == "work.operations";
        assert_eq!(metrics.iter().any(|metric| tells(&metric.name)), has_work, "{more}");
        assert_eq!(plan.metrics().iter().any(|metric| tells(&metric.name)), has_work, "{more}");
        assert_eq!(plan.warning().is_none(), has_work, "{:?}", plan.warning());
    }
}
