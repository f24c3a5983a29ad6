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
