use super::*;
use proptest::prelude::*;

fn value(metrics: &[Metric], name: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {metrics:?}")).value
}

fn spent(before: &str, after: &str) -> Spent {
    let mut spent = Spent::default();
    let read = |text| Processors::parse(text, "a test").unwrap();
    spent.add(&read(before), &read(after));
    spent
}

const BEFORE: &str = "cpu  1000 100 500 8000 300 10 20 70 600 50\n\
                      cpu0 500 50 250 4000 150 5 10 35 300 25\n\
                      cpu1 500 50 250 4000 150 5 10 35 300 25\n\
                      intr 5 0 1\nctxt 1000\nbtime 1700000000\n";
const AFTER: &str = "cpu  1120 110 540 8100 310 15 25 80 700 55\n\
                     cpu0 570 60 270 4040 155 10 15 40 380 30\n\
                     cpu1 550 50 270 4060 155 5 10 40 320 25\n\
                     intr 9 0 1\nctxt 1500\nbtime 1700000000\n";

#[test]
fn guest_time_is_contained_in_user_and_counts_once() {
    let spent = spent(BEFORE, AFTER);
    // Ticks: 120 user, of which 100 guest; 10 nice, of which 5 guest_nice; then 40, 100, 10, 5, 5, 10. The sum is 300.
    let metrics = spent.metrics("cpu.", Combine::Single);
    let percent = |ticks: f64| ticks / 3.0;
    for (name, ticks) in [
        ("cpu.user", 20.0),
        ("cpu.nice", 5.0),
        ("cpu.guest", 105.0),
        ("cpu.system", 40.0),
        ("cpu.idle", 100.0),
        ("cpu.iowait", 10.0),
        ("cpu.irq", 5.0),
        ("cpu.softirq", 5.0),
        ("cpu.steal", 10.0),
        ("cpu.busy", 180.0),
    ] {
        assert!((value(&metrics, name) - percent(ticks)).abs() < 1e-9, "{name}: {metrics:?}");
    }
    let states: f64 =
        metrics.iter().filter(|metric| metric.name != "cpu.busy").map(|metric| metric.value).sum();
    assert!((states - 100.0).abs() < 1e-9, "{states}");
    assert_eq!(spent.context_switches(), 500);
    assert_eq!(spent.warnings(), Vec::<String>::new());
}

#[test]
fn a_guest_has_the_same_figures_under_its_own_name() {
    let metrics = guest_processor_time(BEFORE, AFTER).unwrap();
    assert!((value(&metrics, "guest.busy") - 60.0).abs() < 1e-9);
    assert!(metrics.iter().all(|metric| metric.combine == Combine::Mean));
    // In some containers there is only the line of the sum.
    let metrics = guest_processor_time("cpu 10 0 10 80", "cpu 20 0 10 170 0").unwrap();
    assert_eq!(value(&metrics, "guest.busy"), 10.0);
    let error = guest_processor_time("sh: cat: not found", AFTER).unwrap_err().to_string();
    assert!(error.contains("of a guest") && error.contains("cat: not found"), "{error}");
    assert_eq!(guest_processor_time(BEFORE, BEFORE).unwrap(), []);
}

#[test]
fn a_counter_that_goes_back_is_left_out_and_said() {
    let spent = spent("cpu 0 0 0 0\ncpu0 100 0 0 100 50", "cpu 0 0 0 0\ncpu0 150 0 0 150 20");
    let metrics = spent.metrics("cpu.", Combine::Single);
    assert_eq!((value(&metrics, "cpu.busy"), value(&metrics, "cpu.iowait")), (50.0, 0.0));
    let warnings = spent.warnings();
    assert!(matches!(&warnings[..], [one] if one.contains("iowait went backwards 1 time;")), "{warnings:?}");
}

#[test]
fn a_cpu_that_goes_offline_is_said_and_one_that_comes_adds_nothing_yet() {
    let two = "cpu 0 0 0 0\ncpu0 10 0 0 10\ncpu1 1000 0 0 1000";
    let one = "cpu 0 0 0 0\ncpu0 30 0 0 70";
    let gone = spent(two, one);
    assert_eq!(value(&gone.metrics("cpu.", Combine::Single), "cpu.busy"), 25.0);
    assert!(gone.warnings()[0].starts_with("CPU 1 went offline"), "{:?}", gone.warnings());
    let back = spent("cpu 0 0 0 0\ncpu0 10 0 0 10", two);
    assert_eq!((back.metrics("cpu.", Combine::Single).len(), back.warnings().len()), (0, 0));
}

#[test]
fn damaged_lines_are_left_out() {
    let read =
        Processors::parse("cpu 1 2 3 4\ncpu0 1 2 x 4\ncpu1 1 2 3\ncpu+2 1 2 3 4\ncpu3 1 2 3 4\n", "a test");
    assert_eq!(read.unwrap().each.into_keys().collect::<Vec<_>>(), [3]);
    assert!(Processors::parse("cpu0 1 2 3 4", "a test").is_err());
    assert!(Processors::parse("", "a test").is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "(cpu[0-9]{0,2}( [0-9]{1,20}){0,11}\n|ctxt [0-9a-z]{1,20}\n|.{0,20}\n){0,6}") {
        if let Ok(read) = Processors::parse(&text, "a test") {
            let mut spent = Spent::default();
            spent.add(&Processors::default(), &Processors::default());
            spent.add(&read, &read);
            prop_assert_eq!(spent.metrics("cpu.", Combine::Single), []);
        }
    }
}
