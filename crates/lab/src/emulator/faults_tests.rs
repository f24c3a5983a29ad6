//! Tests of SVM, the clock, the IOMMU, AVIC and posted interrupts in QEMU, run without an operating system by
//! the program in `patches/qemu/test`.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::BuiltEmulator;
use crate::assemble::{STOCK_QEMU, TOOLS};
use crate::cache::Cache;
use crate::definition::Emulator;
use crate::image::Image;
use crate::packages::on_path;
use crate::tools::{Invocation, LIBRARIES};

const SOURCES: [(&str, &str); 3] = [
    ("svm.c", include_str!("../../patches/qemu/test/svm.c")),
    ("avic.c", include_str!("../../patches/qemu/test/avic.c")),
    ("iommu.c", include_str!("../../patches/qemu/test/iommu.c")),
];
/// The command line that the source's first comment gives.
const COMPILER: [&str; 14] = [
    "-O2",
    "-static",
    "-nostdlib",
    "-ffreestanding",
    "-fno-pic",
    "-no-pie",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-Wl,-Ttext-segment=0x100000",
    "-Wl,--build-id=none",
    "-Wl,-estart32",
];
/// A disk whose requests take 100 ms of host time.
const SLOW_DISK: [&str; 4] = [
    "-blockdev",
    "driver=null-co,node-name=disk,size=1048576,latency-ns=100000000",
    "-device",
    "virtio-blk-pci,drive=disk,disable-legacy=off",
];
const WITH_AVIC: [&str; 6] =
    ["-cpu", "EPYC,+svm,+avic,+x2avic", "-smp", "2", "-icount", "shift=3,sleep=off,quantum=64"];
const IOMMU: [&str; 2] = ["-device", "amd-iommu,intremap=on,gapic=on,irte-cache=on"];
/// A card that raises interrupts on request, behind a bridge.
const CARD: [&str; 4] = ["-device", "pcie-root-port,id=bridge", "-device", "e1000e,bus=bridge,romfile="];
const NVME: [&str; 4] =
    ["-blockdev", "driver=null-co,node-name=disk,size=1048576", "-device", "nvme,serial=1,drive=disk"];
/// CPUs whose clocks may be as far apart as in the labs.
const LONG_TURNS: [&str; 6] = ["-cpu", "EPYC,+svm", "-smp", "2", "-icount", "shift=3,sleep=off,quantum=512"];
/// A port like the one at which a lab stops to be saved.
const STOP_PORT: [&str; 6] = [
    "-device",
    "virtio-serial-pci,ioeventfd=off,disable-legacy=off",
    "-chardev",
    "null,id=stop",
    "-device",
    "virtconsole,chardev=stop",
];
/// The machine stops there until a byte comes, and none does.
const STOPS: [&str; 2] = ["-global", "virtconsole.expected-input=1"];
const WITHOUT_AVIC: [&str; 4] = ["-cpu", "EPYC,+svm,+x2apic", "-icount", "shift=3,sleep=off"];
/// The exit statuses by which QEMU's isa-debug-exit reports 0 and 1.
const PASSED: i32 = 1;
const FAILED: i32 = 3;

/// The laboratories' image, which has QEMU's firmware, or the reason why nothing can be tested.
fn image(cache: &Cache) -> Result<Image, &'static str> {
    if !on_path("gcc") {
        return Err("there is no gcc on PATH");
    }
    match Image::find(cache) {
        Ok(Some(image)) => Ok(image),
        _ => Err("the laboratories' image is not built"),
    }
}

/// Compiles the test program in a folder.
fn compile(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("svm.c"), folder.join("svm"));
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).unwrap();
    }
    let compiled = Command::new("gcc").args(COMPILER).arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Adds the machine that all tests share; the caller adds a character device for the output.
fn bare_machine(qemu: &mut Invocation, tools: &Path, machine: &[&str], program: &Path, tests: &str) {
    qemu.env("QEMU_MODULE_DIR", tools.join(LIBRARIES).join("qemu"));
    qemu.arg("-L").arg(tools.join("usr/share/qemu")).arg("-L").arg(tools.join("usr/share/seabios"));
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-m", "64"]);
    qemu.args(["-accel", "tcg,thread=single", "-device", "isa-debugcon,iobase=0x403,chardev=out"]);
    qemu.args(["-device", "isa-debug-exit"]).args(machine);
    qemu.arg("-kernel").arg(program).args(["-append", tests]);
}

/// What came of a run of the test program.
struct Ended {
    /// The exit status of QEMU, or of timeout(1), which ran it.
    status: Option<i32>,
    /// The results of the tests.
    printed: String,
    /// QEMU's own messages.
    messages: String,
}

/// Runs the named tests.
fn run(mut qemu: Invocation, tools: &Path, machine: &[&str], tests: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    bare_machine(&mut qemu, tools, machine, &compile(folder.path()), tests);
    qemu.args(["-chardev", "stdio,id=out,signal=off"]);
    // timeout(1) kills a test that hangs, and returns a status of its own.
    let output =
        qemu.command_under(&["timeout", "--signal=KILL", "60"]).stdin(Stdio::null()).output().unwrap();
    let ended = Ended {
        status: output.status.code(),
        printed: String::from_utf8_lossy(&output.stdout).into_owned(),
        messages: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if ended.status != Some(PASSED) {
        println!("{}", ended.messages);
    }
    ended
}

/// The patched QEMU, and the image with its firmware. Prints the reason and returns `None` if it cannot run.
fn ours() -> Option<(Image, BuiltEmulator)> {
    let cache = Cache::of_user().unwrap();
    let found = image(&cache).and_then(|image| match BuiltEmulator::find(&cache, Emulator::Qemu) {
        Ok(Some(built)) => Ok((image, built)),
        _ => Err("the laboratories' QEMU is not built"),
    });
    found.inspect_err(|reason| println!("not tested: {reason}")).ok()
}

/// Runs a test that prints `migrate` and then waits for a byte, and migrates it to another QEMU. Returns the
/// complete output.
fn run_migrated(machine: &[&str], tests: &str) -> Option<String> {
    run_migrated_from(machine, &[], tests)
}

/// [`run_migrated`] with arguments for the first QEMU only.
fn run_migrated_from(machine: &[&str], first: &[&str], tests: &str) -> Option<String> {
    const LIMIT: Duration = Duration::from_secs(120);
    let (image, built) = ours()?;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let program = compile(folder.path());
    let printed = || fs::read_to_string(folder.path().join("out")).unwrap_or_default();
    let start = |more: &[&str]| -> Child {
        let mut qemu = Invocation::of_host(built.program());
        bare_machine(&mut qemu, &image.path(TOOLS), machine, &program, tests);
        qemu.arg("-chardev").arg(format!("file,id=out,append=on,path={}", path("out")));
        qemu.args(["-monitor", "stdio"]).args(more);
        let mut command = qemu.command_under(&[]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let begun = Instant::now();
    let mut source = start(&[&["-serial", "null"][..], first].concat());
    while !printed().contains("migrate\n") && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(2));
    }
    // The test waits for a byte, however long it takes.
    writeln!(source.stdin.take().unwrap(), "migrate \"file:{}\"\nquit", path("state")).unwrap();
    source.wait().unwrap();
    let line = format!("socket,id=line,server=on,wait=off,path={}", path("line"));
    let incoming = format!("file:{}", path("state"));
    let mut other = start(&["-incoming", &incoming, "-chardev", &line, "-serial", "chardev:line"]);
    let mut connected: Option<UnixStream> = None;
    while other.try_wait().unwrap().is_none() && begun.elapsed() < LIMIT {
        // Send again and again: a byte that arrives before the machine's state is lost.
        match &mut connected {
            Some(line) => drop(line.write(b"x")),
            None => connected = UnixStream::connect(path("line")).ok(),
        }
        if let Some(line) = &connected {
            line.set_nonblocking(true).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = other.kill();
    other.wait().unwrap();
    Some(printed())
}

/// Only firmware that looks for disks enables the controller, which then cannot be migrated.
#[test]
fn an_nvme_controller_is_migrated_until_it_is_enabled() {
    for (firmware, migrated) in [(&["-boot", "strict=on"][..], true), (&[], false)] {
        let machine = [&WITH_AVIC[..], &NVME, firmware].concat();
        let Some(printed) = run_migrated(&machine, "started") else { return };
        assert_eq!(printed.contains("ok started: "), migrated, "{firmware:?}: {printed}");
    }
}

/// Runs the named tests in the patched QEMU. Prints the reason and returns `None` if it cannot run.
fn run_in_ours(machine: &[&str], tests: &str) -> Option<Ended> {
    let (image, built) = ours()?;
    Some(run(Invocation::of_host(built.program()), &image.path(TOOLS), machine, tests))
}

/// Asserts that the named tests pass in the patched QEMU, and that there are `passing` of them.
fn pass_in_ours(machine: &[&str], tests: &str, passing: usize) {
    let Some(Ended { status, printed, .. }) = run_in_ours(machine, tests) else { return };
    assert_eq!(status, Some(PASSED), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("ok ")).count(), passing, "{printed}");
}

#[test]
fn the_patched_qemu_passes_what_provokes_the_faults() {
    let machine = [&WITHOUT_AVIC[..], &["-device", "vmexit-cost"], &SLOW_DISK].concat();
    pass_in_ours(&machine, "once cr8 next type cost tlb disk current", 14);
}

#[test]
fn avic_does_what_the_manual_says_in_both_modes_of_the_apic() {
    pass_in_ours(&WITH_AVIC, "avic cpus=2", 79);
}

#[test]
fn guests_with_avic_go_on_when_their_host_is_migrated() {
    for mode in ["moved cpus=2", "moved=x2apic cpus=2"] {
        let Some(printed) = run_migrated(&WITH_AVIC, mode) else { return };
        assert!(printed.starts_with("migrate\nok moved: "), "{mode}: {printed}");
    }
}

#[test]
fn a_processor_that_is_to_start_starts_when_its_machine_is_migrated() {
    let Some(printed) = run_migrated(&WITH_AVIC, "started") else { return };
    assert!(printed.starts_with("migrate\nok started: "), "{printed}");
}

#[test]
fn a_timer_of_a_cpu_that_was_ahead_when_all_began_to_wait_is_not_late() {
    pass_in_ours(&LONG_TURNS, "jump cpus=2", 1);
}

#[test]
fn no_tsc_goes_back_when_a_machine_is_saved_in_the_middle_of_a_turn() {
    let machine = [&LONG_TURNS[..], &STOP_PORT].concat();
    let Some(printed) = run_migrated_from(&machine, &STOPS, "resumed cpus=2") else { return };
    let passed = printed.lines().filter(|line| line.starts_with("ok resumed: ")).count();
    assert!(passed == 2 && !printed.contains("FAIL"), "{printed}");
}

#[test]
fn the_iommu_posts_interrupts_into_guests_as_the_specification_says() {
    pass_in_ours(&[&WITH_AVIC[..], &IOMMU, &CARD].concat(), "iommu cpus=2", 56);
}

#[test]
fn the_iommu_remaps_and_logs_as_before_when_its_machine_is_migrated() {
    let Some(printed) = run_migrated(&[&WITH_AVIC[..], &IOMMU, &CARD].concat(), "migrated") else { return };
    let passed = printed.lines().filter(|line| line.starts_with("ok migrated: ")).count();
    assert!(passed == 8 && !printed.contains("FAIL"), "{printed}");
}

#[test]
fn no_posted_interrupt_is_lost_beside_what_the_hypervisor_does_to_the_same_word() {
    let machine = ["-cpu", "EPYC,+svm,+avic", "-device", "amd-iommu,intremap=on,gapic=on"];
    pass_in_ours(&[&machine[..], &CARD].concat(), "locked", 3);
}

/// The tests detect that AVIC is missing.
#[test]
fn a_cpu_without_avic_fails_the_tests_of_it() {
    let Some(Ended { status, printed, .. }) = run_in_ours(&WITHOUT_AVIC, "avic") else { return };
    assert_eq!(status, Some(FAILED), "{printed}");
    assert!(printed.starts_with("FAIL avic: each register"), "{printed}");
}

/// Runs the named tests in Debian's QEMU. Prints the reason and returns `None` if it cannot run.
fn run_in_debians(machine: &[&str], tests: &str) -> Option<Ended> {
    let cache = Cache::of_user().unwrap();
    let image = image(&cache).inspect_err(|reason| println!("not tested: {reason}")).ok()?;
    let tools = image.path(TOOLS);
    Some(run(Invocation::of_tree(&tools, STOCK_QEMU), &tools, machine, tests))
}

/// Asserts that the named tests fail in Debian's QEMU, and returns what they print.
fn fail_in_debians(machine: &[&str], tests: &str) -> Option<String> {
    let Ended { status, printed, .. } = run_in_debians(machine, tests)?;
    assert_eq!(status, Some(FAILED), "{tests}: {printed}");
    Some(printed)
}

/// The tests detect each fault in an unpatched QEMU.
#[test]
fn debians_qemu_fails_by_each_fault_alone() {
    let machine = [WITHOUT_AVIC, SLOW_DISK].concat();
    for fault in ["once", "next", "type", "disk"] {
        let Some(printed) = fail_in_debians(&machine, fault) else { return };
        assert!(printed.starts_with(&format!("FAIL {fault}: ")), "{printed}");
    }
}

/// Two faults end QEMU itself. Its message shows which, as the status of one of them is that of tests that
/// passed.
#[test]
fn debians_qemu_is_ended_by_a_write_of_cr8_and_a_read_of_the_apics_timer() {
    for (fault, message) in [("cr8", "assertion failed: (bql_locked())"), ("current", "Bad icount read")] {
        let Some(Ended { printed, messages, .. }) = run_in_debians(&WITHOUT_AVIC, fault) else { return };
        assert!(messages.contains(message), "{fault}: {printed}{messages}");
    }
}

#[test]
fn debians_qemu_fails_by_the_faults_of_its_iommu() {
    let machine = [&WITHOUT_AVIC[..], &["-device", "amd-iommu,intremap=on"], &CARD].concat();
    let Some(printed) = fail_in_debians(&machine, "iommu") else { return };
    for fault in [
        "an illegal command is logged",
        "it stops the commands",
        "a completion interrupts nobody who does not want it",
        "a 0 in the status register clears nothing",
        "255 events are logged",
        "a device behind a bridge",
        "and logged as absent",
    ] {
        assert!(printed.contains(&format!("FAIL iommu: {fault}")), "{fault}: {printed}");
    }
}
