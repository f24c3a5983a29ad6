use crate::reading::{fixtures, folder, text};
use domain::convert::{Converted, to_arguments};
use domain::{Definition, NoFiles, Text};
use std::fmt::Write;

pub(crate) fn told(converted: &Converted) -> String {
    let mut whole = converted.text.clone();
    for (title, lines) in [("note", &converted.notes), ("passed through", &converted.passed_through)] {
        for line in lines {
            writeln!(whole, "{title}: {line}").expect("strings take all");
        }
    }
    for loss in &converted.losses {
        writeln!(whole, "loss: {}: {}", loss.what, loss.why).expect("strings take all");
    }
    whole
}

#[test]
fn every_fixture_becomes_arguments_as_before() {
    for name in fixtures("libvirt") {
        let converted = to_arguments(&text(&name)).expect("it is libvirt's XML");
        insta::assert_snapshot!(format!("arguments-{}", name.trim_end_matches(".xml")), told(&converted));
        assert!(!told(&converted).contains("sesame"), "a password is among the arguments");
    }
}
