use super::*;
use crate::findings::FindingsView;
use doctor::examine;
use host::{Inspection, fake};

const VIEW: FindingsView = FindingsView { width: 80, colour: false, passes: true, verbose: false };

fn each(mut show: impl FnMut(&str, &Inspection)) {
    for (name, text) in fake::HOSTS {
        show(name, &Inspection::read(&fake::root(text)).unwrap());
    }
}

#[test]
fn each_host_for_people() {
    each(|name, host| insta::assert_snapshot!(name, terminal(host, &examine(host, &[], &[]), VIEW)));
}

#[test]
fn each_host_for_programs() {
    each(|name, host| {
        let found = examine(host, &[], &[]);
        let document = json(name, &found, &[]);
        insta::assert_snapshot!(format!("{name}-json"), serde_json::to_string_pretty(&document).unwrap());
    });
}

#[test]
fn changes_that_the_number_of_a_vendors_kernel_does_not_tell_are_one_line() {
    let host =
        Inspection::read(&fake::root(fake::HOSTS.iter().find(|one| one.0 == "zen4").unwrap().1)).unwrap();
    let found = examine(&host, &[], &[]);
    let untold = |verbose: bool| {
        let text = terminal(&host, &found, FindingsView { verbose, ..VIEW });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (words.matches("Oracle's kernel does not tell").count(), words)
    };
    let (all, _) = untold(true);
    let (one, words) = untold(false);
    assert!(all > 20 && one == 1, "{all} {one}");
    assert!(words.contains(&format!("skip {all} changes: the number of")), "{words}");
    assert!(words.contains("--verbose lists them"), "{words}");
}

#[test]
fn no_line_is_too_wide_and_everything_can_be_shown() {
    each(|name, host| {
        let found = examine(host, &[], &[]);
        let verbose = terminal(host, &found, FindingsView { verbose: true, ..VIEW });
        for text in [terminal(host, &found, VIEW), verbose] {
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            // Long words are not broken.
            assert!(
                wide.iter().all(|line| line.split_whitespace().any(|word| word.len() > 55)),
                "{name}: {wide:?}"
            );
        }
        let coloured = terminal(host, &found, FindingsView { colour: true, ..VIEW });
        assert!(coloured.contains(&format!("\u{1b}[1m{}", &found.conclusion.sentence[..20])), "{coloured}");
    });
}
