use super::super::testing::{not_understood, parsed, plan, refused};
use super::super::{Place, Scene};

fn settings(metrics: &str) -> String {
    format!("tool = \"command\"\nscript = \"run me\"\nmetrics = [{metrics}]\n")
}

fn metric(name: &str, more: &str) -> String {
    format!("{{ name = {name:?}, unit = \"per-second\", better = \"higher\", combine = \"sum\", {more} }}")
}

#[test]
fn figures_are_found_by_expressions_and_scaled() {
    let both = format!(
        "{}, {}",
        metric("loops", r"regex = '^loops: (\d+)'"),
        metric("time.p99", r"regex = '(p99|99th)=(?<value>[0-9.]+) ?ms', scale = 0.001")
    );
    let found = parsed(&plan(&settings(&both)), "x\nloops: 12\nloops: 13\n99th=2.5 ms\n").unwrap();
    assert_eq!(found, [("loops".to_owned(), 12.0), ("time.p99".to_owned(), 0.0025)]);
}

#[test]
fn figures_are_found_by_pointers() {
    let both = format!(
        "{}, {}",
        metric("a", "pointer = '/runs/1/rate'"),
        metric("b", r"regex = 'errors.: (-?\d+)'")
    );
    let text = r#"{"runs": [{}, {"rate": 1.5e3}], "errors": -2}"#;
    let found = parsed(&plan(&settings(&both)), text).unwrap();
    assert_eq!(found, [("a".to_owned(), 1500.0), ("b".to_owned(), -2.0)]);
}

#[test]
fn what_is_missing_or_no_number_is_said() {
    let loops = settings(&metric("loops", "regex = '^loops: (.*)'"));
    let error = not_understood(&loops, "other\nlast\n\n");
    assert_eq!(
        (error.expected.as_str(), error.found.as_str()),
        ("a line for loops that fits ^loops: (.*)", "last")
    );
    assert_eq!(not_understood(&loops, "loops: many").found, "loops: many");
    assert_eq!(not_understood(&loops, "loops: inf").found, "loops: inf");
    let huge = settings(&metric("loops", "regex = '^loops: (.*)', scale = 1e300"));
    assert!(not_understood(&huge, "loops: 1e300").expected.contains("multiplied"));
    let pointer = settings(&metric("a", "pointer = '/a'"));
    assert_eq!(not_understood(&pointer, r#"{"a": "1"}"#).found, "\"1\"");
    assert!(not_understood(&pointer, "{\n  \"a\": ,\n}").found.contains("\"a\": ,"));
    assert!(not_understood(&pointer, "{}").expected.contains("a number at \"/a\" for a"));
}

#[test]
fn scripts_run_where_they_shall() {
    let text = "place = \"host\"\nserve_place = \"guest\"\nprepare = \"make it\"\nserve = \"serve it\"\nduration = \"1m\"";
    let plan = plan(&format!("{}{text}", settings(&metric("a", "pointer = '/a'"))));
    let steps = plan.steps(&Scene { guest: 3, ..Scene::default() });
    assert_eq!(
        [steps.prepare[0].place, steps.serve[0].place, steps.run[0].place],
        [Place::Guest, Place::Guest, Place::Host]
    );
    assert!(steps.serve[0].script.ends_with("\nserve it\n"));
    assert!(steps.run[0].script.contains("/load-3\" || exit"), "{}", steps.run[0].script);
    assert_eq!(steps.run[0].limit.as_secs(), 240);
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    let twice = format!("{0}, {0}", metric("a", "pointer = '/a'"));
    for (metrics, expected) in [
        ("", "at least one figure"),
        (twice.as_str(), "a more than once"),
        (&metric("A b", "pointer = '/a'"), "small letters"),
        (&metric("a..b", "pointer = '/a'"), "small letters"),
        (&metric("a", "pointer = 'a'"), "begins with a slash"),
        (&metric("a", "regex = '('"), "an invalid expression"),
        (&metric("a", "regex = '(a)(b)'"), "of 2 groups"),
        (&metric("a", "regex = 'a'"), "of 0 groups"),
        (&metric("a", "regex = '(a{1000}){1000}'"), "an invalid expression"),
        (&metric("a", "scale = 2.0"), "by regex or by pointer"),
        (&metric("a", "pointer = '/a', regex = '(a)'"), "not by both"),
        (&metric("a", "pointer = '/a', scale = 0.0"), "scale a by 0"),
        (&metric("a", "pointer = '/a', scale = nan"), "scale a by NaN"),
    ] {
        let refused = refused(&settings(metrics));
        assert!(refused.contains(expected), "{refused}");
    }
}
