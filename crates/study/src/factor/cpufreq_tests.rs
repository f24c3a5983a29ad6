use super::*;
use proptest::prelude::*;

fn level(text: &str) -> FrequencyLevel {
    toml::from_str(text).unwrap()
}

fn limits(minimum: u32, maximum: u32) -> Limits {
    Limits { governor: Some("ondemand".to_owned()), minimum, maximum }
}

fn files(steps: &[Step]) -> Vec<String> {
    let told = |step: &Step| match step {
        Step::File { path, value } => format!("{} {value}", path.rsplit('/').next().unwrap()),
        Step::Program { run, undo } => format!("{} / {}", run[1..].join(" "), undo[1..].join(" ")),
    };
    steps.iter().map(told).collect()
}

#[test]
fn the_lower_limit_is_never_above_the_upper_one() {
    let slow = level("minimum = \"1200MHz\"\nmaximum = \"1200MHz\"");
    let steps = linux_steps(1, &limits(2_000_000, 2_700_000), &slow);
    assert_eq!(files(&steps), ["scaling_min_freq 1200000", "scaling_max_freq 1200000"]);
    let fast = level("minimum = \"2700MHz\"\nmaximum = \"2700MHz\"");
    let steps = linux_steps(1, &limits(1_200_000, 1_200_000), &fast);
    assert_eq!(files(&steps), ["scaling_max_freq 2700000", "scaling_min_freq 2700000"]);
    assert_eq!(linux_steps(1, &limits(2_700_000, 2_700_000), &fast), [], "all is so already");
}

#[test]
fn a_governor_comes_first() {
    let steps = linux_steps(0, &limits(1, 9), &level("governor = \"performance\"\nmaximum = \"5kHz\""));
    assert_eq!(files(&steps), ["scaling_governor performance", "scaling_max_freq 5"]);
}

/// Output of xenpm, shortened.
const XENPM: &str = "\
cpu id               : 0
affected_cpus        : *0
cpuinfo frequency    : max [2701000] min [1200000] cur [2701000]
scaling_driver       : acpi-cpufreq
scaling_avail_gov    : userspace performance powersave ondemand
current_governor     : ondemand
  ondemand specific  :
    sampling_rate    : max [10000000] min [10000] cur [20000]
    up_threshold     : 80
scaling_avail_freq   : *2701000 2700000 1200000
scaling frequency    : max [2701000] min [1200000] cur [2701000]
turbo mode           : enabled

cpu id               : 1
current_governor     : performance
scaling frequency    : max [2700000] min [1300000] cur [2700000]

cpu id               : 2
current_governor     : hwp
  hwp variables      :
turbo mode           : enabled
";

#[test]
fn xenpm_is_understood_and_its_values_are_given_back() {
    let found = parse_xenpm(XENPM);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found[&0], limits(1_200_000, 2_701_000));
    let steps = xen_steps(
        1,
        &found[&1],
        &level("minimum = \"1200MHz\"\nmaximum = \"1200MHz\"\ngovernor = \"ondemand\""),
    );
    assert_eq!(
        files(&steps),
        [
            "set-scaling-governor 1 ondemand / set-scaling-governor 1 performance",
            "set-scaling-minfreq 1 1200000 / set-scaling-minfreq 1 1300000",
            "set-scaling-maxfreq 1 1200000 / set-scaling-maxfreq 1 2700000",
        ]
    );
}

#[test]
fn what_xen_has_refused_is_noticed() {
    let now = &parse_xenpm(XENPM)[&0];
    let told = |text: &str| {
        compare(0, now, &level(text)).map(|one| format!("{} is {}, not {}", one.what, one.found, one.asked))
    };
    assert_eq!(told("governor = \"Ondemand\"\nminimum = \"1200MHz\""), None);
    let governor = told("governor = \"performance\"").unwrap();
    assert_eq!(governor, "The governor of CPU 0 is ondemand, not performance");
    let maximum = told("maximum = \"2700MHz\"").unwrap();
    assert_eq!(maximum, "The highest frequency of CPU 0 is 2701000kHz, not 2700MHz");
}

#[test]
fn cpus_without_a_frequency_are_named() {
    let error = chosen(&level("cpus = \"0-2\""), [0, 1].into_iter()).unwrap_err();
    assert!(error.contains("CPU 2"), "{error}");
    assert_eq!(chosen(&level("cpus = \"1\""), [0, 1].into_iter()).unwrap(), [1]);
    assert_eq!(chosen(&level(""), [0, 1].into_iter()).unwrap(), [0, 1]);
    let root = tempfile::tempdir().unwrap();
    let error = steps(root.path(), &level("governor = \"performance\"")).unwrap_err().to_string();
    assert!(error.contains("cpufreq"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(cpu id +: [0-9]{0,11}\n|scaling frequency : max \\[[0-9]{0,11}\\]? min \\[?[0-9]{0,3}\n|.{0,30}\n){0,6}") {
        let _ = parse_xenpm(&text);
    }
}
