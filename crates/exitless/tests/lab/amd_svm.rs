//! QEMU's TCG with SVM: the quick laboratory.

use std::fs;
use std::process::Command;

use crate::command::{bare, probe_with, run};
use crate::top::Typist;

#[test]
fn output_streams_and_status_are_the_commands() {
    let said = bare("amd-svm", "echo out; echo err >&2; exit 7");
    assert_eq!((said.status, said.out.as_str()), (7, "out\n"), "{}", said.err);
    assert!(said.err.ends_with("err\n"), "{}", said.err);
}

#[test]
fn a_signal_becomes_128_and_its_number() {
    assert_eq!(bare("amd-svm", "kill -9 $$").status, 137);
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let said = run(&["lab", "run", "amd-svm", "--bare", "--", "no-such-program"]);
    assert_eq!(said.status, 127);
    assert!(said.err.contains("no-such-program"), "{}", said.err);
}

#[test]
fn a_process_whose_parent_has_ended_does_not_stay_as_a_zombie() {
    // Shells wait for such a process by its ID.
    let said = bare(
        "amd-svm",
        "(sleep 0.2 & echo $! > /tmp/id); while kill -0 $(cat /tmp/id); do sleep 0.1; done; exit 7",
    );
    assert_eq!(said.status, 7, "{}", said.err);
}

#[test]
fn files_go_in_and_come_out_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than any frame, and with all byte values: none may be mistaken for a marker or the end of a
    // line.
    let contents: Vec<u8> = (0u32..3_000_000).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let source = folder.path().join("data");
    fs::write(&source, &contents).unwrap();
    let put = format!("{}:/work/in/data", source.display());
    let output = folder.path().join("out");
    let script =
        "mkdir tree && cp /work/in/data tree/copy && ln -s copy tree/link && cp /work/in/data single";
    let said = run(&[
        "lab",
        "run",
        "amd-svm",
        "--bare",
        "--put",
        &put,
        "--get",
        "tree",
        "single",
        "/proc/version",
        "--output",
        output.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(said.status, 0, "{}", said.err);
    for name in ["tree/copy", "tree/link", "single"] {
        assert!(fs::read(output.join(name)).unwrap() == contents, "{name} differs");
    }
    assert!(fs::read_to_string(output.join("version")).unwrap().starts_with("Linux version"));
}

#[test]
fn a_file_that_cannot_be_brought_out_is_said_and_the_others_come() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let said = run(&[
        "lab",
        "run",
        "amd-svm",
        "--bare",
        "--get",
        "/nothing/here",
        "/proc/uptime",
        "/sys/module/8250/parameters/nr_uarts",
        "--output",
        output,
        "--",
        "true",
    ]);
    assert_eq!(said.status, 125);
    let of_sysfs = fs::read_to_string(folder.path().join("nr_uarts")).unwrap();
    assert!(of_sysfs.trim().parse::<u32>().is_ok(), "{of_sysfs:?}");
    assert!(said.err.contains("/nothing/here could not be brought out"), "{}", said.err);
    assert!(folder.path().join("uptime").exists());
}

#[test]
fn a_shell_on_a_terminal_takes_what_is_typed_and_returns_its_status() {
    let mut typist = Typist::at("amd-svm");
    typist.until("# ");
    // Wait for the output, because script(1) waits only 10 ms for more once its program has ended.
    typist.types("tty; echo $((6 * 7))\n");
    typist.until("/dev/pts/0\r\n");
    typist.until("42\r\n");
    typist.types("exit 5\n");
    assert_eq!(typist.leaves(), Some(5));
}

#[test]
fn a_shell_has_the_size_of_the_users_window_and_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let terminal = folder.path().join("terminal");
    let mut typist = Typist::at_a_window("amd-svm --bare", &terminal, "rows 30 cols 100");
    typist.until("# ");
    typist.types("stty size\n");
    typist.until("30 100\r\n");
    // The signal goes to the foreground programs. Use another shell for that, because the interactive one has
    // job control.
    typist.types("sh -c 'trap \"stty size\" WINCH; echo read''y; while sleep 0.1; do :; done'\n");
    typist.until("ready\r\n");
    let path = std::fs::read_to_string(&terminal).unwrap();
    let resized = Command::new("stty").args(["-F", path.trim(), "rows", "50", "cols", "132"]).status();
    assert!(resized.unwrap().success());
    typist.until("50 132\r\n");
    typist.types("\u{3}");
    typist.until("# ");
    typist.types("exit 3\n");
    assert_eq!(typist.leaves(), Some(3));
}

#[test]
fn top_fills_the_users_window_and_follows_it() {
    // top's heading is as wide as the window.
    const HEADING: &str = "  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND";
    let heading = |columns: usize| format!("{HEADING:columns$}\u{1b}[m");
    let folder = tempfile::tempdir().unwrap();
    let terminal = folder.path().join("terminal");
    let mut typist = Typist::at_a_window("amd-svm", &terminal, "rows 30 cols 100");
    typist.until("# ");
    typist.types("top -d 1\n");
    typist.until(&heading(100));
    let path = std::fs::read_to_string(&terminal).unwrap();
    let resized = Command::new("stty").args(["-F", path.trim(), "rows", "50", "cols", "132"]).status();
    assert!(resized.unwrap().success());
    typist.until(&heading(132));
    typist.types("q");
    typist.until("# ");
    typist.types("exit 3\n");
    assert_eq!(typist.leaves(), Some(3));
}

#[test]
fn the_disk_has_the_tools() {
    let script = "for tool in qemu-system-x86_64 iozone netperf netserver sysbench fio perf trace-cmd exitless; do \
                  command -v $tool > /dev/null || { echo missing $tool; exit 1; }; done; touch /opt/written";
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", script]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
}

#[test]
fn opening_the_node_of_a_device_loads_its_module() {
    let script = "for node in net/tun vhost-net; do stat -c '%n %t:%T' /dev/$node && : <>/dev/$node; done; \
                  grep -o '^tun \\|^vhost_net ' /proc/modules | sort";
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", script]);
    assert_eq!(said.out, "/dev/net/tun a:c8\n/dev/vhost-net a:ee\ntun \nvhost_net \n", "{}", said.err);
}

#[test]
fn a_host_without_avic_gives_one_arm_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let arguments = ["--measure", "ipi-running", "--measure", "eoi", "--samples", "100", "--blocks", "1"];
    let said = run(&[&["prove", "--lab", "amd-svm", "--json", "--output", output][..], &arguments].concat());
    assert_eq!(said.status, 1, "{}", said.err);
    let result = said.json();
    assert_eq!(result["judgement"], "one-arm");
    let why = result["arms"].to_string();
    assert!(why.contains("/sys/module/kvm_amd/parameters/avic"), "{why}");
    for file in ["report.html", "result.json", "recording.json", "samples.parquet"] {
        assert!(folder.path().join(file).metadata().unwrap().len() > 1000, "{file}");
    }
}

#[test]
fn the_payload_runs_in_every_mode_on_a_real_svm() {
    for (apic, irqchip) in [("xapic", "kernel"), ("x2apic", "split")] {
        let all = probe_with("amd-svm", apic, irqchip, "1");
        assert_eq!(all["recording"]["plan"]["apic"], apic);
    }
}
