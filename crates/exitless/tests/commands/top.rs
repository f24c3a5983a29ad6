//! `exitless top` in environments where it cannot run.

use std::path::Path;
use std::process::{Command, Output};

use crate::command::run;

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

fn on_a_terminal(arguments: &str) -> Output {
    let command = format!("{} top {arguments}", env!("CARGO_BIN_EXE_exitless"));
    Command::new("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output().unwrap()
}

#[test]
fn without_a_terminal_it_names_the_command_that_needs_none() {
    let output = run(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("`exitless stat`"), "{}", said(&output));
}

#[test]
fn an_interval_that_nobody_can_read_is_refused() {
    let output = on_a_terminal("--interval 99ms");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("shorter than 100 ms"), "{}", said(&output));
}

#[test]
fn without_kvm_the_error_is_told_before_the_terminal_is_taken_over() {
    if ["kvm_intel", "kvm_amd"].iter().any(|module| Path::new("/sys/module").join(module).exists()) {
        println!("not tested: KVM is loaded here");
        return;
    }
    let output = on_a_terminal("");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("exitless: ") && !said.contains("\u{1b}["), "{said}");
}
