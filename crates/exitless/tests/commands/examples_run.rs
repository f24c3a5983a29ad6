//! The examples of the help and the manual pages, run as a reader would.

use std::fs;
use std::path::Path;

use crate::command::{as_nobody, command, err, recording, run};
use crate::examples::EXAMPLES;

/// The files that examples name.
fn fill(folder: &Path) {
    for (name, from) in [("perf.data", "small"), ("before.exits", "small"), ("after.exits", "small")] {
        fs::copy(recording(from), folder.join(name)).unwrap();
    }
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../domain/tests/fixtures");
    fs::copy(definitions.join("libvirt/virt-install-debian.xml"), folder.join("web.xml")).unwrap();
    fs::copy(definitions.join("qemu/x2avic-380.sh"), folder.join("web.sh")).unwrap();
    fs::write(folder.join("System.map"), "ffffffff81000000 T _stext\n").unwrap();
    let host = folder.join("host.tar.zst");
    let made = run(&["snapshot", host.to_str().unwrap()]);
    assert!(host.exists(), "{}", err(&made));
}

#[test]
fn every_example_that_can_run_anywhere_runs() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let mut lines: Vec<(&str, &str)> = EXAMPLES
        .iter()
        .flat_map(|(_, own)| *own)
        .filter(|one| one.runs)
        .map(|one| (one.line, one.says))
        .collect();
    lines.sort_unstable();
    lines.dedup_by_key(|(line, _)| *line);
    assert!(lines.len() > 35, "{lines:?}");
    let mut failed = Vec::new();
    for (line, says) in lines {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let mut command = command(&words);
        let changed = tempfile::tempdir().unwrap();
        if words.contains(&"--apply") {
            // Change a copy as another user: as root, each run would leave an entry in the journal.
            fs::copy(folder.path().join("web.xml"), changed.path().join("web.xml")).unwrap();
            as_nobody(&mut command, &[changed.path(), &changed.path().join("web.xml")]);
            command.current_dir(changed.path());
        } else {
            command.current_dir(folder.path());
        }
        let output = command.output().unwrap();
        let journal = fs::read("/var/lib/exitless/journal").unwrap_or_default();
        let ours = changed.path().to_str().unwrap();
        assert!(!String::from_utf8_lossy(&journal).contains(ours), "{line} leaves an entry in the journal");
        // Status 1 is a verdict about this host or a definition, which depends on the machine.
        if !matches!(output.status.code(), Some(0 | 1))
            || (output.stdout.is_empty() && output.stderr.is_empty())
        {
            failed.push(format!("{line} ({says}): {}\n{}", output.status, err(&output)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_long_help_of_a_command_ends_with_its_examples() {
    let help = String::from_utf8(run(&["iocm", "set", "--help"]).stdout).unwrap();
    assert!(
        help.trim_end().ends_with("exitless iocm set w.0/cpu 3\n      Move a worker to CPU 3."),
        "{help}"
    );
    let short = String::from_utf8(run(&["iocm", "set", "-h"]).stdout).unwrap();
    assert!(!short.contains("Examples:"), "{short}");
}

#[test]
fn the_long_version_names_commit_rules_and_target() {
    let long = String::from_utf8(run(&["--version"]).stdout).unwrap();
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines[0], concat!("exitless ", env!("CARGO_PKG_VERSION")));
    let expected = ["commit: ", "rules:  20", "target: x86_64-unknown-linux-"];
    assert_eq!(lines.len(), 4, "{long}");
    assert!(lines[1..].iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{long}");
    assert_eq!(run(&["-V"]).stdout, format!("{}\n", lines[0]).into_bytes());
}
