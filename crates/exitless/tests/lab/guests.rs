//! Guests of studies, nested in an emulated KVM host.

use std::path::Path;

use crate::command::run;

/// On emulated AMD, two guests with KVM start from the guest image; their scripts are released at the same
/// time.
#[test]
fn an_emulated_host_starts_guests_of_the_image_and_releases_them_together() {
    let built = run(&["guest", "build"]);
    assert_eq!(built.status, 0, "{}", built.err);
    let table = "memory = \"256M\"\nirqchip = \"split\"\ndisk = { size = \"32M\" }\nnet = {}";
    let script = "grep -c ^processor /proc/cpuinfo; iozone -s 1m -r 64k -i 0 -i 2 -w -f data | tail -n 3; df . | tail -n 1; \
                  (sleep 0.1 &); sleep 0.5; ! grep -qs '^State:.Z' /proc/[0-9]*/status";
    let said = run(&[
        "lab",
        "run",
        "amd-svm",
        "--guest-image",
        "--",
        "sh",
        "-c",
        "exitless guest run --json --folder /tmp/guests \"$@\"; status=$?
        stat -c %s /tmp/guests/guest-initrd.img >&2; exit $status",
        "sh",
        "--count",
        "2",
        "--set",
        table,
        "--",
        script,
    ]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let tried = said.json();
    for guest in tried["guests"].as_array().unwrap() {
        let out = guest["stdout"].as_str().unwrap();
        assert!(
            out.starts_with("1\n") && out.contains("/dev/vd") && out.contains("iozone test complete"),
            "{out}"
        );
        assert_eq!(guest["stderr"], "", "{guest}");
    }
    assert_eq!(tried["guests"].as_array().unwrap().len(), 2);
    let skew = tried["start_skew_seconds"].as_f64().unwrap();
    println!(
        "up after {} s and {} s; first to last start {:.1} ms",
        tried["guests"][0]["start_seconds"],
        tried["guests"][1]["start_seconds"],
        skew * 1e3
    );
    // `exitless-agent` may be missing if only this package's tests are built.
    if let Ok(agent) = Path::new(env!("CARGO_BIN_EXE_exitless")).with_file_name("exitless-agent").metadata() {
        let whole: u64 = said.err.lines().last().and_then(|line| line.parse().ok()).expect(&said.err);
        assert!(whole < agent.len() + (8 << 20), "{whole} bytes are more than the small program and modules");
    }
    // The host and both guests share two emulated CPUs, so a time slice of the scheduler may lie between the
    // starts.
    assert!(skew < 2.0, "{skew}");
}
