//! `exitless guest run` with guests of studies.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const EXITLESS: &str = env!("CARGO_BIN_EXE_exitless");

fn guest_run(arguments: &[&str]) -> (i32, Value, String) {
    guest_run_of(Path::new(EXITLESS), arguments)
}

fn guest_run_of(program: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let output = Command::new(program)
        .args(["guest", "run", "--json"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status.code().expect("exitless was ended by a signal");
    (status, serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), said)
}

/// Tests whether QEMU guests can be started here; prints the reason if not.
fn guests_start_here() -> bool {
    let version = Command::new("qemu-system-x86_64").arg("--version").output();
    let image = lab::GuestImage::find(&lab::Cache::of_user().unwrap());
    match (version.is_ok(), image) {
        (true, Ok(Some(_))) => true,
        (false, _) => {
            println!("not tested: there is no qemu-system-x86_64");
            false
        }
        _ => {
            println!("not tested: the guest image is not built (exitless guest build)");
            false
        }
    }
}

#[test]
fn the_host_takes_the_place_of_guests() {
    let began = Instant::now();
    let script = "echo $((6 * 7)); sleep 0.5; exit 3";
    let (status, tried, said) = guest_run(&["--set", "kind = \"host\"", "--count", "2", "--", script]);
    let took = began.elapsed().as_secs_f64();
    assert_eq!(status, 1, "{said}");
    for guest in tried["guests"].as_array().unwrap() {
        assert_eq!((guest["stdout"].as_str(), guest["status"].as_i64()), (Some("42\n"), Some(3)));
    }
    // However busy the machine is, the script that starts last sleeps afterwards.
    let skew = tried["start_skew_seconds"].as_f64().unwrap();
    assert!((0.0..took - 0.5).contains(&skew), "{skew} of {took}");
}

#[test]
fn a_run_that_is_interrupted_is_not_a_script_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let script = format!("mkfifo {0}; echo > {0}; sleep 60", begun.display());
    let arguments = ["guest", "run", "--set", "kind = \"host\"", "--", &script];
    let mut run = Command::new(EXITLESS).args(arguments).stdout(Stdio::null()).spawn().unwrap();
    while !begun.exists() {
        assert!(run.try_wait().unwrap().is_none(), "it ended before the script began");
        std::thread::yield_now();
    }
    std::fs::read(&begun).unwrap();
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn guests_that_make_no_sense_are_refused_before_anything_starts() {
    let (status, _, said) = guest_run(&["--set", "irqchip = \"splitt\"", "--", "true"]);
    assert!(status == 2 && said.contains("splitt"), "{status}: {said}");
    let (status, _, said) = guest_run(&["--set", "[disk]\naio = \"native\"", "--", "true"]);
    assert!(status == 2 && said.contains("cache"), "{status}: {said}");
    let (status, _, said) = guest_run(&["--set", "kind = \"host\"", "--count", "0", "--", "true"]);
    assert!(status == 2 && said.contains("--count"), "{status}: {said}");
}

#[test]
fn guests_of_the_image_start_with_disk_and_network_and_run_their_tools_together() {
    if !guests_start_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table =
        "accel = \"tcg\"\nmemory = \"256M\"\nvcpus = 2\ndisk = { bus = \"nvme\", size = \"64M\" }\nnet = {}";
    let script = "pwd; df -T . | tail -n 1 | cut -c 1-20; nproc; ip -o -4 addr show eth0; \
                  for tool in iozone netperf sysbench fio nginx mosquitto mosquitto_pub wrk ab sshd; do \
                  command -v $tool > /dev/null || echo missing $tool; done; echo wrong >&2; exit 3";
    let begun = std::time::Instant::now();
    let (status, tried, said) = guest_run(&[
        "--set",
        table,
        "--count",
        "2",
        "--folder",
        folder.path().to_str().unwrap(),
        "--",
        script,
    ]);
    assert_eq!(status, 1, "{said}");
    let guests = tried["guests"].as_array().unwrap();
    assert_eq!(guests.len(), 2);
    for guest in guests {
        let out = guest["stdout"].as_str().unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "/work", "{out}");
        assert!(lines[1].contains("nvme") && lines[1].contains("ext4"), "{out}");
        assert_eq!(lines[2], "2", "{out}");
        assert!(lines[3].contains("10.0.2.15"), "{out}");
        assert_eq!(lines.len(), 4, "{out}");
        assert_eq!((guest["status"].as_i64(), guest["stderr"].as_str()), (Some(3), Some("wrong\n")));
        assert_eq!(guest["host_address"], "10.0.2.2");
        assert!(guest["facts"]["kernel"].as_str().unwrap().contains("cloud"));
    }
    let console = std::fs::read_to_string(folder.path().join("guest-0/console")).unwrap();
    assert!(!console.contains("Kernel panic"), "{console}");
    // `exitless-agent` may be missing if only this package's tests are built.
    if let Ok(agent) = Path::new(EXITLESS).with_file_name("exitless-agent").metadata() {
        let image = lab::GuestImage::find(&lab::Cache::of_user().unwrap()).unwrap().unwrap();
        let rest = image.initial_ram_disk().metadata().unwrap().len();
        let whole = folder.path().join("guest-initrd.img").metadata().unwrap().len();
        assert!(whole <= rest + agent.len() + (8 << 10), "{whole} bytes, of which {rest} are the image's");
    }
    println!(
        "two guests started and ended in {:.0?}, first to last start {:.1} ms",
        begun.elapsed(),
        tried["start_skew_seconds"].as_f64().unwrap() * 1e3
    );
    assert!(begun.elapsed() < Duration::from_secs(600));
}

#[test]
fn a_guest_that_does_not_start_says_what_its_qemu_said() {
    if !guests_start_here() {
        return;
    }
    let (status, _, said) = guest_run(&["--set", "accel = \"tcg\"\nmachine = \"no-such\"", "--", "true"]);
    assert_eq!(status, 125, "{said}");
    assert!(said.contains("QEMU ended") && said.contains("machine type"), "{said}");
}

/// Without an agent's program next to it, `exitless` itself serves as the guests' agent.
#[test]
fn the_program_alone_is_enough_to_start_a_guest() {
    if !guests_start_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("exitless");
    std::fs::copy(EXITLESS, &alone).unwrap();
    // An unoptimized program is large, and only half of the memory is available for files.
    let table = "accel = \"tcg\"\nmemory = \"384M\"\nvcpus = 1";
    let (status, tried, said) = guest_run_of(&alone, &["--set", table, "--", "echo $((6 * 7))"]);
    assert_eq!(status, 0, "{said}");
    assert_eq!(tried["guests"][0]["stdout"], "42\n", "{said}");
}

/// The size of the initial RAM disk that a program makes for guests, and the program's output. Boots no
/// guest.
fn initial_ram_disk(program: &Path) -> (u64, String) {
    let folder = tempfile::tempdir().unwrap();
    let qemu = folder.path().join("qemu");
    std::fs::write(&qemu, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&qemu, PermissionsExt::from_mode(0o755)).unwrap();
    let table = format!("accel = \"tcg\"\nvcpus = 1\nprogram = {:?}", qemu.to_str().unwrap());
    let kept = folder.path().join("kept");
    let (_, _, said) =
        guest_run_of(program, &["--set", &table, "--folder", kept.to_str().unwrap(), "--", "true"]);
    (std::fs::metadata(kept.join("guest-initrd.img")).expect(&said).len(), said)
}

#[test]
fn guests_begin_with_the_small_program_that_lies_beside_and_that_others_cannot_change() {
    if !guests_start_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let program = at("exitless");
    std::fs::copy(EXITLESS, &program).unwrap();
    let (whole, said) = initial_ram_disk(&program);
    assert!(!said.contains("exitless-agent"), "{said}");

    // A static program that is not an agent, and much smaller than this one.
    std::fs::write(at("exitless-agent"), static_program()).unwrap();
    std::fs::set_permissions(at("exitless-agent"), PermissionsExt::from_mode(0o755)).unwrap();
    let (small, said) = initial_ram_disk(&program);
    assert!(small + (8 << 20) < whole, "{small} and {whole} bytes: {said}");

    std::fs::set_permissions(at("exitless-agent"), PermissionsExt::from_mode(0o777)).unwrap();
    let (refused, said) = initial_ram_disk(&program);
    assert_eq!(refused, whole, "{said}");
    assert!(said.contains("exitless-agent may be written by everyone"), "{said}");

    std::fs::rename(at("exitless-agent"), at("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", at("exitless-agent")).unwrap();
    let (refused, said) = initial_ram_disk(&program);
    assert_eq!(refused, whole, "{said}");
    assert!(said.contains("exitless-agent is a symbolic link"), "{said}");
}

/// An ELF file with one loadable segment and no loader.
fn static_program() -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..5].copy_from_slice(b"\x7fELF\x02");
    // Offset, entry size and count of the program headers; and the type of the first one.
    (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, 1);
    bytes
}

/// A mock of QEMU whose guests have too little memory for all of exitless.
#[test]
fn a_guest_that_is_too_small_for_the_program_alone_says_which_file_is_missing() {
    if !guests_start_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::copy(EXITLESS, at("exitless")).unwrap();
    std::fs::write(
        at("qemu"),
        "#!/bin/sh\necho '[ 1.2] Initramfs unpacking failed: write error' > console\n",
    )
    .unwrap();
    std::fs::set_permissions(at("qemu"), PermissionsExt::from_mode(0o755)).unwrap();
    let table = format!("accel = \"tcg\"\nprogram = {:?}", at("qemu"));
    let (status, _, said) = guest_run_of(&at("exitless"), &["--set", &table, "--", "true"]);
    assert_eq!(status, 125, "{said}");
    let missing = format!("because {} does not exist", at("exitless-agent").display());
    assert!(said.contains(&missing) && said.contains("`make build`"), "{said}");
    assert_eq!(said.matches("does not exist").count(), 1, "{said}");
}

/// A mock of QEMU whose guests end during the boot.
#[test]
fn a_guest_that_ended_is_told_and_not_started_again() {
    if !guests_start_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("qemu");
    let script =
        "#!/bin/sh\necho start >> ../../starts\necho '[ 1.9] Oops: int3: 0000 [#1] PREEMPT SMP' > console\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let kept = folder.path().join("kept");
    let table = format!("accel = \"tcg\"\nvcpus = 2\nprogram = {:?}", program.to_str().unwrap());
    let (status, _, said) = guest_run(&["--set", &table, "--folder", kept.to_str().unwrap(), "--", "true"]);
    assert_eq!(status, 125, "{said}");
    assert!(said.contains("Oops: int3"), "{said}");
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "{said}");
}
