//! A process whose command line blocks readers, because it waits for a file system that does not answer.

use crate::command::run;

/// Each command must end and report the process. Without `timeout`, `cat` would hang as long as the process
/// does.
const SCRIPT: &str = r#"
export LC_ALL=C
perl held.pl -name web >held.txt 2>&1 & pid=$!
for i in 1 2 3 4 5 6 7 8 9; do grep -q holding held.txt && break; sleep 0.5; done; grep -v server held.txt
timeout 2 cat /proc/$pid/cmdline >cat.txt; echo "cat $?"
ask() { word=$1; shift; timeout 40 exitless "$@" >said.txt 2>&1; echo "$word $? $(tr -s '\n ' '  ' <said.txt | grep -c "$wanted")"; }
wanted="blocks inspection"
ask vms vms
ask lint vm lint $pid
ask doctor doctor --verbose
ask verify verify --duration 100ms
ask snapshot snapshot /tmp/host.tar
ask kept doctor --verbose --root /tmp/host.tar
wanted="no exit"
ask advise advise --duration 200ms
kill -9 $(sed -n "s/server //p" held.txt); kill -9 $pid; wait
"#;

#[test]
fn a_process_that_holds_whoever_looks_at_it_holds_no_command() {
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/held.pl");
    let said = run(&["lab", "run", "amd-svm", "--put", helper, "--", "sh", "-c", SCRIPT]);
    assert_eq!(said.status, 0, "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    // The process does block readers.
    assert_eq!(lines[..2], ["holding", "cat 124"], "{}", said.out);
    let of = |word: &str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {word} in {}", said.out))
    };
    assert_eq!(of("vms"), "1 1");
    assert_eq!(of("lint"), "125 1");
    // Ignore other findings on this host.
    for word in ["doctor", "verify", "kept"] {
        let (status, told) = of(word).split_once(' ').expect("a status and a count");
        assert!(["0", "1", "2"].contains(&status) && told == "1", "{word}: {}", said.out);
    }
    assert!(of("snapshot").starts_with("0 "), "{}", said.out);
    assert!(of("advise").starts_with("0 "), "{}", said.out);
}
