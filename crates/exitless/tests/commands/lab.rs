//! `exitless lab` without a lab.

use crate::command::{command, err};

#[test]
fn what_no_lab_can_do_is_a_wrong_command_line() {
    let nothing = tempfile::tempdir().unwrap();
    for (line, why) in [
        ("amd-svm --speed 300", "possible: 125, 250, 500, 1000"),
        ("amd-svm --hypervisor-argument apicv=0", "amd-svm has no Xen"),
        ("amd-svm --bare --guest-image", "has no place for it"),
        ("xen --kernel 5.10", "xen boots only"),
        ("intel-apicv --device nvme", "use amd-avic, amd-svm or xen"),
        ("amd-svm --put /", "names no file to copy"),
    ] {
        let words: Vec<&str> = ["lab", "run"].into_iter().chain(line.split(' ')).collect();
        let output =
            command(&words).args(["--", "true"]).env("XDG_CACHE_HOME", nothing.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {}", err(&output));
        assert!(err(&output).contains(why), "{line}: {}", err(&output));
    }
}

#[test]
fn a_lab_that_does_not_exist_is_refused_before_any_is_built() {
    let nothing = tempfile::tempdir().unwrap();
    let output =
        command(&["lab", "build", "amd-svm", "vax"]).env("XDG_CACHE_HOME", nothing.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("vax") && err(&output).contains("xen-apicv"), "{}", err(&output));
    assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0);
}
