use std::os::unix::fs::PermissionsExt;

use super::*;

fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xentrace");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, path)
}

/// The first words of a script: if it is called to make Xen stop tracing, it notes its arguments and exits.
const SWITCHED_OFF: &str = r#"[ "x$2" != x-T ] || { echo "$@" > "$0.off"; exit 0; }"#;

/// What the script noted.
fn noted(path: &Path) -> Option<String> {
    std::fs::read_to_string(path.with_extension("off")).ok()
}

/// All bytes, and the number of reads that returned nothing yet.
fn read(output: &mut XentraceOutput) -> (Vec<u8>, usize) {
    let (mut all, mut quiet, mut buffer) = (Vec::new(), 0, [0; 7]);
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return (all, quiet),
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                quiet += 1;
            }
        }
    }
}

#[test]
fn the_output_comes_whole_with_its_pauses() {
    let (_folder, path) = program("echo \"$@\"; sleep 0.3; echo end");
    let (running, mut output) = Xentrace::start(&path).unwrap();
    let (all, quiet) = read(&mut output);
    assert_eq!(String::from_utf8(all).unwrap(), "-D -e 0xaf000 -s 50 -S 256\nend\n");
    assert!(quiet > 0);
    let message = running.finish().unwrap_err().to_string();
    assert!(message.ends_with("ended early (exit status: 0): another program stopped it"), "{message}");
}

#[test]
fn a_write_that_waits_for_the_reader_is_not_cut_by_the_end() {
    if !Path::new("/usr/bin/perl").exists() {
        return println!("not tested: perl is missing");
    }
    // Like xentrace, it fails if a write is cut, and else makes Xen stop. Each write fits into the pipe; the first ones
    // leave no room there and in the queue, and the reader is quicker than the others.
    let script = r#"exec /usr/bin/perl -e '
        my $stopped = 0;
        $SIG{TERM} = sub { $stopped = 1 };
        my ($window, $count) = ("x" x (1 << 20), 0);
        until ($stopped) {
            exit 1 if syswrite(STDOUT, $window) != length $window;
            select(undef, undef, undef, 0.02) if ++$count > 24;
        }
        open(OFF, ">", "$ARGV[0].off");
        print OFF "by itself\n"' -- "$0""#;
    let (_folder, path) = program(&format!("{SWITCHED_OFF}; {script}"));
    let (mut running, mut output) = Xentrace::start(&path).unwrap();
    let own = Pid::from_child(&running.child);
    assert_eq!(rustix::process::getpgid(Some(own)).unwrap(), own, "Ctrl-C would reach it");
    // By now nothing has room for more.
    std::thread::sleep(Duration::from_millis(100));
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let (mut count, mut buffer) = (0, vec![0; PIECE]);
        loop {
            match output.read(&mut buffer) {
                Ok(0) => return count,
                Ok(more) => count += more,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    });
    running.stop();
    running.finish().unwrap();
    let count = reader.join().unwrap();
    assert!(count > 0 && count % (1 << 20) == 0, "{count}");
    assert_eq!(noted(&path).as_deref(), Some("by itself\n"));
}

#[test]
fn xen_is_made_to_stop_tracing_after_a_xentrace_that_failed() {
    for (script, ends) in [
        ("trap 'exit 1' TERM; echo records; while :; do sleep 0.01; done", "when it is stopped"),
        ("echo records; exit 1", "early"),
    ] {
        let (_folder, path) = program(&format!("{SWITCHED_OFF}; {script}"));
        let (running, mut output) = Xentrace::start(&path).unwrap();
        while output.read(&mut [0; 8]).is_err() {}
        assert_eq!(noted(&path), None, "{ends}");
        drop(running);
        assert_eq!(noted(&path).as_deref(), Some("-D -T 1\n"), "{ends}");
    }
    // One that has not begun leaves Xen as it was: another xentrace may be running.
    let (_folder, path) = program(&format!("{SWITCHED_OFF}; exit 1"));
    Xentrace::start(&path).unwrap_err();
    assert_eq!(noted(&path), None);
}

#[test]
fn one_that_is_asked_to_end_may_still_write() {
    let (_folder, path) = program(&format!(
        "{SWITCHED_OFF}; trap 'echo last; exit 1' TERM; echo first; while :; do sleep 0.05; done"
    ));
    let (mut running, mut output) = Xentrace::start(&path).unwrap();
    let mut first = [0; 6];
    while output.read(&mut first).is_err() {}
    running.stop();
    assert_eq!(read(&mut output).0, b"last\n");
    running.finish().unwrap();
}

#[test]
fn one_that_ends_by_itself_is_an_error_with_its_words() {
    let (_folder, path) = program("echo 'ERROR: Failure to get trace buffer' >&2; exit 22");
    let message = Xentrace::start(&path).unwrap_err().to_string();
    assert!(message.contains("22") && message.contains("Failure to get trace buffer"), "{message}");
    let (_folder, path) = program("echo 'change evtmask to 0xaf000' >&2; exit 0");
    let message = Xentrace::start(&path).unwrap_err().to_string();
    assert!(message.ends_with("another program stopped it"), "{message}");
}

#[test]
fn xen_is_asked_for_smaller_buffers_if_it_has_little_memory() {
    let fails = r#"echo "Couldn't enable trace buffers: Invalid argument" >&2; exit 1"#;
    for (most, expected) in [(64, Some("-S 64\n")), (16, Some("-S 16\n")), (15, None)] {
        let (_folder, path) = program(&format!("[ $7 -le {most} ] || {{ {fails}; }}; echo $6 $7"));
        match (Xentrace::start(&path), expected) {
            (Ok((_running, mut output)), Some(expected)) => {
                assert_eq!(String::from_utf8(read(&mut output).0).unwrap(), expected);
            }
            (Err(error), None) => assert!(error.to_string().contains("free_memory"), "{error}"),
            (started, _) => panic!("{most}: {started:?}"),
        }
    }
}

#[test]
fn one_that_warns_all_the_time_goes_on_and_its_last_words_are_kept() {
    // More than the pipe and its reader can hold.
    let warnings = "i=0; while [ $i -lt 20000 ]; do echo 'a warning, and not the last' >&2; i=$((i+1)); done";
    let (_folder, path) =
        program(&format!("{SWITCHED_OFF}; {warnings}; printf records; echo 'the last words' >&2; exit 3"));
    let (running, mut output) = Xentrace::start(&path).unwrap();
    assert_eq!(read(&mut output).0, b"records");
    let message = running.finish().unwrap_err().to_string();
    assert!(message.contains("exit status: 3") && message.ends_with("the last words"), "{message}");
}

#[test]
fn one_that_is_not_there_says_what_to_install() {
    let message = Xentrace::start(Path::new("/nonexistent/xentrace")).unwrap_err().to_string();
    assert!(message.contains("/nonexistent/xentrace") && message.contains("xen-utils"), "{message}");
}
