use std::os::unix::fs::PermissionsExt;

use super::*;

fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xentrace");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    (folder, path)
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
    running.finish().unwrap();
}

#[test]
fn one_that_is_asked_to_end_may_still_write() {
    let (_folder, path) = program("trap 'echo last; exit 1' TERM; echo first; while :; do sleep 0.05; done");
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
}

#[test]
fn one_that_warns_all_the_time_goes_on_and_its_last_words_are_kept() {
    // More than the pipe and its reader can hold.
    let warnings = "i=0; while [ $i -lt 20000 ]; do echo 'a warning, and not the last' >&2; i=$((i+1)); done";
    let (_folder, path) = program(&format!("{warnings}; printf records; echo 'the last words' >&2; exit 3"));
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
