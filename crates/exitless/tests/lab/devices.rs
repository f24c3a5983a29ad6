//! Devices that the emulated host assigns to a guest; the IOMMU posts their interrupts to the vCPU.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::arms::{exits, near};
use crate::command::{Dom0, LIMIT, Said, exitless, quick_boot, run, said};
use crate::doctor::found;
use crate::experiment::{figure, shortened, study};

/// Starts a Linux guest with one vCPU and the device `$DEVICE`, which vfio-pci must own. The guest runs `job`
/// until it is killed.
fn guest(kernel: &str, initrd: &str, job: &str) -> String {
    format!(
        "echo '{job}' > job.sh; cp {initrd} initrd; echo job.sh | busybox cpio -o -H newc >> initrd; \
         qemu-system-x86_64 -name guest=assigned -M q35,accel=kvm,kernel-irqchip=split,vmport=off,hpet=off -cpu host \
         -m 128 -global kvm-pit.lost_tick_policy=discard -kernel {kernel} -initrd initrd \
         -append 'console=ttyS0 quiet nokaslr mitigations=off audit=0 idle=halt pci=lastbus=0 {quick}' \
         -nographic -nodefaults -no-user-config -serial file:serial -device vfio-pci,host=$DEVICE & QEMU=$!",
        quick = quick_boot!()
    )
}

/// Binds the host's PCI function `$DEVICE` to vfio-pci.
const TO_VFIO: &str = "\
    modprobe vfio-pci; echo vfio-pci > /sys/bus/pci/devices/$DEVICE/driver_override; \
    echo $DEVICE > /sys/bus/pci/drivers_probe";

/// The guest prints the number of disk interrupts before its first read, and after each hundred reads.
const READING: &str = "\
    ROUNDS=0; while :; do set -- $(grep nvme0q0 /proc/interrupts); ADMIN=$2; set -- $(grep nvme0q1 /proc/interrupts); \
    echo after $ROUNDS rounds: $((ADMIN + $2)); \
    dd if=/dev/nvme0n1 of=/dev/null bs=512 count=100 iflag=direct 2> /dev/null; ROUNDS=$((ROUNDS + 1)); done";

/// The start of a script: traces how interrupts are delivered, and has a guest read two rounds from the disk
/// and continue.
fn read_two_rounds() -> String {
    let reader = guest("/opt/exitless/guest/vmlinux", "/opt/exitless/guest/initrd.img", READING);
    format!(
        "exitless trace --event posted-interrupt,ga-log > trace & TRACE=$!; DEVICE=0000:01:00.0; {TO_VFIO}; {reader}; \
         until grep -q 'after 2 rounds' serial || ! kill -0 $QEMU; do sleep 1; done"
    )
}

/// A disk, a network card, and a host without halt polling. Tests that need only one of the devices use both,
/// to share the snapshot.
pub(crate) const DEVICES: [&str; 6] =
    ["--device", "nvme", "--device", "igb", "--kernel-argument", "kvm.halt_poll_ns=0"];

/// Runs the script in `amd-avic` with [`DEVICES`].
fn with_devices(script: &str) -> Said {
    with_options(&[], script)
}

/// Like [`with_devices`], with further options of `lab run`.
fn with_options(options: &[&str], script: &str) -> Said {
    let machine =
        [&["lab", "run", "amd-avic", "--timeout", LIMIT, "--timings"], &DEVICES[..], options].concat();
    let said = run(&[&machine[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert_start_was_told(&said.err);
    said
}

/// Asserts that a slow start was reported by one line, since standard error is no terminal, and a quick one
/// was not. (The first host with these devices boots; the others start from a snapshot.)
fn assert_start_was_told(err: &str) {
    let parts = ["image or snapshot", "boot or restore", "kernel modules", "root file system"];
    let seconds = parts.map(|part| duration_of(err, part).unwrap_or_else(|| panic!("no {part}: {err}")));
    let seconds: f64 = seconds.iter().sum();
    let told = err.matches("Starting the emulated host amd-avic\n").count();
    // The line is due after five seconds. Near that, both are correct.
    assert!(told == 1 || (told == 0 && seconds < 6.0), "told {told} times in {seconds} s: {err}");
    assert!(told == 0 || seconds > 4.0, "told in {seconds} s: {err}");
}

/// The duration of a part of a run.
fn duration_of(err: &str, part: &str) -> Option<f64> {
    err.lines().find_map(|line| line.strip_prefix(part)?.trim().strip_suffix(" s")?.parse().ok())
}

/// The counts of all CPUs in the lines of /proc/interrupts that name an interrupt.
fn counted(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter(|line| line.contains(name));
    let words = lines.flat_map(|line| {
        let counts = line.rsplit_once(": ").map_or("", |(_, counts)| counts);
        counts.split_whitespace().map_while(|word| word.parse::<u64>().ok())
    });
    words.sum()
}

/// The number after a word at the start of a line.
fn number(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}

/// Asserts that `verify` found the guest active, and its device's interrupts posted without the host.
fn assert_posted(vm: &Value, device: &str) {
    assert_eq!(vm["activation"]["status"], "active", "{vm}");
    let found = &vm["devices"][0];
    assert_eq!((&found["device"], &found["delivery"]), (&device.into(), &"posted".into()), "{vm}");
    assert_eq!(found["evidence"]["host_interrupts"], 0, "{vm}");
}

#[test]
fn the_interrupts_of_an_assigned_disk_are_posted_to_the_guest() {
    // The disk takes 1 ms of the real machine's time, so on a slow one many of its interrupts find the vCPU awake, and need
    // no log.
    let script = format!(
        "{}; \
         until [ $(awk '/AMD-Vi/ {{ n += $2 + $3 }} END {{ print n + 0 }}' /proc/interrupts) -ge 60 ] || ! kill -0 $QEMU; \
         do sleep 1; done; exitless verify --json --duration 200ms; kill -INT $TRACE; wait $TRACE; \
         cp /proc/interrupts interrupts; SEEN=$(grep -c rounds serial); \
         until [ $(grep -c rounds serial) -gt $((SEEN + 1)) ] || ! kill -0 $QEMU; do sleep 1; done; cat serial >&2; kill $QEMU; wait $QEMU; \
         echo posted: $(grep -c ' posted-interrupt ' trace) >&2; echo logged: $(grep -c ' ga-log ' trace) >&2; \
         grep -E 'vfio|AMD-Vi' interrupts >&2",
        read_two_rounds()
    );
    let said = with_devices(&script);

    // Each read gives one interrupt in the guest: none is lost, none is duplicated.
    let after = |rounds: usize| number(&said.err, &format!("after {rounds} rounds:")).unwrap_or_default();
    assert_eq!((after(1) - after(0), after(2) - after(1)), (100, 100), "{}", said.err);
    // The host takes none of them, only those of the GA log, which cannot be more than the guest's a little
    // later. (The last line may be incomplete, so use the one before.)
    assert!(said.err.contains("vfio-msix[1]") && counted(&said.err, "vfio-msix") == 0, "{}", said.err);
    let lines = said.err.lines().filter(|line| line.starts_with("after ")).count();
    let (in_guest, of_log) = (after(lines - 2), counted(&said.err, "AMD-Vi"));
    assert!((50..=in_guest).contains(&of_log), "{in_guest} in the guest, {of_log} of the log: {}", said.err);

    // exitless saw both kinds of events too.
    assert!(number(&said.err, "posted:") >= Some(1), "{}", said.err);
    assert!(number(&said.err, "logged:") >= Some(50), "{}", said.err);
    assert_posted(&said.json()["vms"][0], "0000:01:00.0");
}

/// With a legacy IOMMU, IPIs and EOIs cause no exits, but the host takes the interrupts of devices.
#[test]
fn a_legacy_iommu_leaves_avic_to_vms_and_the_interrupts_of_devices_to_the_host() {
    // The host's own interrupts (its timer, mostly) also exit, up to three in a run of any length. The samples are
    // many enough that these do not count among exits per operation.
    let script = format!(
        "{}; \
         cat serial >&2; grep vfio-msix /proc/interrupts >&2; \
         echo '{{\"verify\":'; exitless verify --json --duration 200ms; echo ',\"doctor\":'; exitless doctor --json; \
         kill -INT $TRACE; wait $TRACE; kill $QEMU; wait $QEMU; \
         echo posted or logged: $(grep -cE ' (posted-interrupt|ga-log) ' trace) >&2; \
         echo ',\"prove\":'; exitless prove --json --measure ipi-running --measure eoi --samples 400 --warm-up 50 --blocks 3 \
         --output proved; echo '}}'",
        read_two_rounds()
    );
    // No other test could use the snapshot.
    let said = with_options(&["--boot", "--kernel-argument", "amd_iommu_intr=legacy"], &script);
    let seen = said.json();

    // Every interrupt of the guest went through the host; none was posted.
    let after = |rounds: usize| number(&said.err, &format!("after {rounds} rounds:")).unwrap_or_default();
    assert_eq!((after(1) - after(0), after(2) - after(1)), (100, 100), "{}", said.err);
    assert!(counted(&said.err, "vfio-msix") >= after(2), "{}", said.err);
    assert_eq!(number(&said.err, "posted or logged:"), Some(0), "{}", said.err);

    // exitless reports the VM's AVIC and the device's interrupts separately, and says why these are not
    // posted.
    let vm = &seen["verify"]["vms"][0];
    let activation = &vm["activation"];
    assert_eq!((&activation["status"], &activation["mode"]), (&"active".into(), &"x2avic".into()), "{vm}");
    let (device, evidence) = (&vm["devices"][0], &vm["devices"][0]["evidence"]);
    assert_eq!(
        (&device["delivery"], &evidence["obstacle"], &evidence["iommu_posts"]),
        (&"by-host".into(), &"kernel-argument".into(), &true.into()),
        "{vm}"
    );
    assert!(evidence["host_interrupts"].as_u64() > Some(0), "{vm}");
    let doctor = &seen["doctor"];
    for (rule, state) in [
        ("iommu-posting", "pass"),
        ("iommu-posting-argument", "warn"),
        ("vm-device-interrupts", "warn"),
        ("kvm-interrupt-virtualization", "pass"),
    ] {
        assert_eq!(found(doctor, rule).0, state, "{rule}: {doctor}");
    }
    assert_eq!(doctor["conclusion"]["outcome"], "active", "{doctor}");

    // The micro VM's own interrupts need no IOMMU: they are as on a host that posts.
    let proved = &seen["prove"];
    assert_eq!(proved["judgement"], "worth-it", "{proved}");
    assert_eq!(proved["evidence"]["checked"], serde_json::json!({"off": "confirmed", "on": "confirmed"}));
    for (measure, reason, without) in
        [("ipi-running", "msr", 2.0), ("ipi-running", "interrupt", 1.0), ("eoi", "msr", 2.0)]
    {
        let (off, on) = exits(proved, measure, reason);
        assert!(near(off, without) && on < 0.05, "{reason} of {measure}: {off} off, {on} on");
    }
}

/// The guest pings the host's own function of the card. Each request leaves after the reply to the one before, so that no
/// two replies come with one interrupt.
const PINGING: &str = "\
    ip link set eth0 up; ip addr add 10.0.0.2/24 dev eth0; until ping -c 1 -W 1 10.0.0.1; do sleep 1; done; \
    grep eth0-rx /proc/interrupts | sed s/^/before:/; SENT=0; ANSWERED=0; while [ $SENT -lt 30 ]; do \
    ping -c 1 -W 10 10.0.0.1 && ANSWERED=$((ANSWERED + 1)); SENT=$((SENT + 1)); done; echo answered $ANSWERED of 30; \
    grep eth0-rx /proc/interrupts | sed s/^/behind:/; while :; do ping -c 10 -i 0.05 10.0.0.1; done";

#[test]
fn the_interrupts_of_an_assigned_virtual_function_are_posted_to_the_guest() {
    let folder = "/run/exitless/device-guest";
    let pinging = guest(&format!("{folder}/vmlinux"), &format!("{folder}/initrd.img"), PINGING);
    let script = format!(
        "modprobe igb; CARD=/sys/bus/pci/devices/0000:02:00.0; until PORT=$(ls $CARD/net); do sleep 0.1; done; \
         echo 1 > $CARD/sriov_numvfs; DEVICE=0000:02:10.0; {TO_VFIO}; \
         busybox ip addr add 10.0.0.1/24 dev $PORT; busybox ip link set $PORT up; {pinging}; \
         until grep -q behind serial || ! kill -0 $QEMU; do sleep 1; done; exitless verify --json --duration 500ms; \
         cp /proc/interrupts interrupts; cat serial >&2; kill $QEMU; wait $QEMU; grep -E 'vfio|AMD-Vi' interrupts >&2"
    );
    let said = with_devices(&script);
    assert!(said.err.contains("answered 30 of 30"), "{}", said.err);

    // Each reply is an interrupt in the guest. The host takes none of the function's interrupts, only those
    // of the GA log.
    let received = counted(&said.err, "behind:") - counted(&said.err, "before:");
    assert!(received >= 30, "{received}: {}", said.err);
    assert!(said.err.contains("vfio-msix[0]") && counted(&said.err, "vfio-msix") == 0, "{}", said.err);
    assert_posted(&said.json()["vms"][0], "0000:02:10.0");
}

/// Devices of one host do not affect those of the other.
#[test]
fn two_hosts_with_devices_start_from_one_snapshot() {
    let script = "set -e; modprobe nvme; modprobe igb; CARD=/sys/bus/pci/devices/0000:02:00.0; \
        until PORT=$(ls $CARD/net) && [ -b /dev/nvme0n1 ]; do sleep 0.1; done; cat $CARD/net/$PORT/address; \
        echo 7 > $CARD/sriov_numvfs; ls $CARD | grep -c virtfn; \
        dd if=/dev/nvme0n1 of=zeros bs=64k count=10 iflag=direct 2> /dev/null; md5sum zeros; \
        grep -c nvme0q /proc/interrupts";
    let (first, second) = (with_devices(script), with_devices(script));
    for said in [&first, &second] {
        // Only a host that boots loads modules.
        assert_eq!(duration_of(&said.err, "kernel modules"), Some(0.0), "{}", said.err);
    }
    assert!(first.out.lines().nth(1) == Some("7") && first.out == second.out, "{}{}", first.out, second.out);
}

/// The Xen guest prints the number of disk interrupts before and after two hundred reads.
const READING_TWICE: &str = "\
    for ROUNDS in 0 1 2; do set -- $(grep nvme0q1 /proc/interrupts); echo after $ROUNDS rounds: $2; \
    dd if=/dev/nvme0n1 of=/dev/null bs=512 count=100 iflag=direct 2> /dev/null; done";

#[test]
fn xen_gives_a_disk_and_a_virtual_function_to_a_guest_which_their_interrupts_reach() {
    let script = format!(
        "set -e; modprobe igb; CARD=/sys/bus/pci/devices/0000:02:00.0; until PORT=$(ls $CARD/net); do sleep 0.1; done; \
         echo 1 > $CARD/sriov_numvfs; busybox ip addr add 10.0.0.1/24 dev $PORT; busybox ip link set $PORT up; \
         modprobe xen-pciback; for DEVICE in 0000:01:00.0 0000:02:10.0; do xl pci-assignable-add $DEVICE; done; \
         echo '{READING_TWICE}; {PINGING}' > job.sh; cp /opt/exitless/guest/device-initrd.img initrd; \
         echo job.sh | cpio -o -H newc >> initrd; \
         {{ cat /opt/exitless/guest/device.cfg; echo 'ramdisk = \"/root/initrd\"'; \
         echo 'pci = [ \"0000:01:00.0\", \"0000:02:10.0\" ]'; }} > both.cfg; \
         echo '{{\"doctor\":'; exitless doctor --json || true; echo ',\"lint\":'; exitless vm lint --json both.cfg || true; \
         echo '}}'; xl create -q both.cfg; LOG=/var/log/xen/console/guest-device.log; \
         until grep -q behind $LOG; do sleep 1; xl domid device > /dev/null; done; cat $LOG >&2"
    );
    let folder = tempfile::tempdir().unwrap();
    let dom0 = Dom0 { options: &["--device", "nvme", "--device", "igb"], ..Dom0::default() };
    let said = dom0.run(&script, &[], folder.path().to_str().unwrap());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let after = |rounds: usize| number(&said.err, &format!("after {rounds} rounds:")).unwrap_or_default();
    assert_eq!((after(1) - after(0), after(2) - after(1)), (100, 100), "{}", said.err);
    assert!(said.err.contains("answered 30 of 30"), "{}", said.err);
    let received = counted(&said.err, "behind:") - counted(&said.err, "before:");
    assert!(received >= 30, "{received}: {}", said.err);

    // In dom0, exitless found that both devices can be assigned.
    let seen = said.json();
    for rule in ["xen-iommu", "xen-pass-through"] {
        assert_eq!(found(&seen["doctor"], rule).0, "pass", "{rule}: {}", seen["doctor"]);
    }
    assert_eq!(found(&seen["lint"], "xl-pass-through").0, "pass", "{}", seen["lint"]);
}

/// Two Xen guests with a function each; a cap leaves them less CPU time.
#[test]
fn two_guests_of_xen_on_one_cpu_send_by_virtual_functions_with_all_of_it_and_with_less() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../plans/two-vf-xen-lab.toml");
    // The same devices as in the test before, to share its snapshot; the disk is in front of the card, so the
    // card's address differs from the plan's.
    let card = ("0000:01:00.0", "0000:02:00.0");
    let plan = shortened(plan, &[("repeats = 3", "repeats = 1"), ("-l 4", "-l 2"), card], folder.path());
    let findings = study(plan.to_str().unwrap(), "xen+device=nvme+device=igb", 2, folder.path());
    let of = |metric: &str, arm| figure(&findings, "stream", metric, arm, 0).unwrap_or(f64::NAN);
    for arm in ["full", "low"] {
        assert!(of("throughput", arm) > 1e6, "{arm}: {}", of("throughput", arm));
        assert!(of("exits.interrupt", arm) > 0.0, "{arm}: {}", of("exits.interrupt", arm));
    }
    let (full, low) = (of("guests-cpu.busy", "full"), of("guests-cpu.busy", "low"));
    assert!(low < 60.0 && full > 1.5 * low, "{full} and {low}");
}

/// A damaged file is not booted even if its length is right.
#[test]
fn the_kernel_of_hosts_with_devices_is_checked_before_it_is_booted() {
    let own = lab::Cache::of_user().unwrap();
    let folders = fs::read_dir(own.root()).unwrap().map(|entry| entry.unwrap().path());
    let named =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("devices-"));
    let Some(image) = folders.into_iter().find(|path| named(path)) else {
        println!("not tested: no kernel of hosts with devices is built yet");
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let place = cache.path().join("exitless/lab");
    fs::create_dir_all(&place).unwrap();
    assert!(Command::new("cp").arg("-a").arg(&image).arg(&place).status().unwrap().success());
    let kernel = place.join(image.file_name().unwrap()).join("vmlinux");
    let mut bytes = fs::read(&kernel).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&kernel, bytes).unwrap();

    let arguments = ["lab", "run", "amd-avic", "--device", "nvme", "--", "true"];
    let said = said(&exitless(&arguments).env("XDG_CACHE_HOME", cache.path()).output().unwrap());
    assert!(
        said.status == 125 && said.err.contains("vmlinux") && said.err.contains("SHA-256 is"),
        "{}: {}",
        said.status,
        said.err
    );
}

#[test]
fn a_laboratory_without_an_iommu_is_refused_before_anything_is_fetched() {
    let nothing = tempfile::tempdir().unwrap();
    let arguments = ["lab", "run", "intel-apicv", "--device", "nvme", "--", "true"];
    let output = exitless(&arguments).env("XDG_CACHE_HOME", nothing.path()).output().unwrap();
    let said = said(&output);
    assert!(
        said.status == 2 && said.err.contains("use amd-avic, amd-svm or xen"),
        "{}: {}",
        said.status,
        said.err
    );
    assert!(!said.err.contains("download"), "{}", said.err);
}

#[test]
fn a_device_that_no_laboratory_has_is_refused_with_those_that_there_are() {
    let said = run(&["lab", "run", "amd-avic", "--device", "disk", "--", "true"]);
    assert!(said.status == 2 && said.err.contains("known: nvme, igb"), "{}", said.err);
}

#[test]
fn the_devices_of_a_studys_target_are_checked_before_anything_is_fetched() {
    let nothing = tempfile::tempdir().unwrap();
    let result = nothing.path().join("result");
    for (target, status, why) in [
        ("lab:amd-avic+device=disk", 2, "The target says device=disk: no such device; known: nvme, igb"),
        ("lab:intel-apicv+device=igb", 2, "use amd-avic, amd-svm or xen"),
    ] {
        let arguments = ["experiment", "run", "two-vf-avic-lab", "--target", target, "--output"];
        let mut command = exitless(&arguments);
        command.arg(&result).env("XDG_CACHE_HOME", nothing.path());
        let said = said(&command.output().unwrap());
        assert!(said.status == status && said.err.contains(why), "{target}: {}: {}", said.status, said.err);
        assert!(!said.err.contains("download"), "{}", said.err);
    }
}

/// Two guests with a function each. With AVIC, the interrupts of both bypass the host.
#[test]
fn two_guests_on_one_cpu_send_by_virtual_functions_with_avic_off_and_on() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../plans/two-vf-avic-lab.toml");
    // A host with DEVICES, to share its snapshot; the disk is in front of the card, so the card's address differs
    // from the plan's.
    let card = ("0000:01:00.0", "0000:02:00.0");
    let plan = shortened(plan, &[("repeats = 3", "repeats = 1"), ("-l 4", "-l 2"), card], folder.path());
    let target = "amd-avic+device=nvme+device=igb+kvm.halt_poll_ns=0";
    let findings = study(plan.to_str().unwrap(), target, 2, folder.path());
    let of = |metric: &str, arm| figure(&findings, "stream", metric, arm, 0).unwrap_or(f64::NAN);
    for arm in ["off", "on"] {
        assert!(of("throughput", arm) > 1e7, "{arm}: {}", of("throughput", arm));
        assert!(of("guests-cpu.busy", arm) > 80.0, "{arm}: {}", of("guests-cpu.busy", arm));
    }
    let taken = |arm| (of("interrupts.functions", arm) > 0.0, of("interrupts.log", arm) > 0.0);
    assert_eq!((taken("off"), taken("on")), ((true, false), (false, true)));
    assert!(of("exits.vintr", "off") > 0.0 && of("exits.total", "on") < of("exits.total", "off"));
}
