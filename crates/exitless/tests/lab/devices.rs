//! A disk that the emulated host assigns to a guest: the IOMMU posts its interrupts to the vCPU.

use crate::command::{exitless, run, said};

/// Gives the disk to a Linux guest, which reads from it until it is killed, and counts its interrupts. A guest that polls
/// before it halts (cpuidle-haltpoll) would be awake when they come.
const READING_GUEST: &str = "\
    modprobe vfio-pci; DISK=0000:01:00.0; FUNCTION=/sys/bus/pci/devices/$DISK; \
    echo vfio-pci > $FUNCTION/driver_override; echo $DISK > /sys/bus/pci/drivers_probe; \
    echo 'while :; do dd if=/dev/nvme0n1 of=/dev/null bs=512 count=100 iflag=direct 2> /dev/null; \
          grep nvme0q1 /proc/interrupts; done' > job.sh; \
    cp /opt/exitless/guest/initrd.img initrd; echo job.sh | busybox cpio -o -H newc >> initrd; \
    qemu-system-x86_64 -name guest=reader -M q35,accel=kvm,kernel-irqchip=split,vmport=off,hpet=off -cpu host -m 128 \
    -global kvm-pit.lost_tick_policy=discard -kernel /opt/exitless/guest/vmlinux -initrd initrd \
    -append 'console=ttyS0 quiet nokaslr mitigations=off no_timer_check cryptomgr.notests audit=0 idle=halt \
    initcall_blacklist=load_system_certificate_list,jent_mod_init' -nographic -nodefaults \
    -no-user-config -serial file:serial -device vfio-pci,host=$DISK & QEMU=$!; \
    until grep -q nvme0q1 serial || ! kill -0 $QEMU; do sleep 1; done";

/// The counts of all CPUs in the lines of /proc/interrupts that name an interrupt.
fn counted(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter(|line| line.contains(name));
    let words =
        lines.flat_map(|line| line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()));
    words.sum()
}

#[test]
fn the_interrupts_of_an_assigned_disk_are_posted_to_the_guest() {
    let script = format!(
        "exitless trace --event posted-interrupt,ga-log > trace & TRACE=$!; {READING_GUEST}; \
         exitless verify --json --duration 200ms; kill -INT $TRACE; wait $TRACE; \
         cp /proc/interrupts interrupts; grep nvme0q1 serial | tail -n 1 >&2; kill $QEMU; wait $QEMU; \
         echo posted: $(grep -c ' posted-interrupt ' trace) >&2; echo logged: $(grep -c ' ga-log ' trace) >&2; \
         grep -E 'vfio|AMD-Vi' interrupts >&2"
    );
    // Else KVM waits awhile before it says that the vCPU sleeps, and the disk may be quicker.
    let sleeps_at_once = "kvm.halt_poll_ns=0";
    let machine = ["lab", "run", "amd-avic", "--device", "nvme", "--kernel-argument", sleeps_at_once];
    let said = run(&[&machine[..], &["--timeout", "300", "--", "sh", "-c", &script]].concat());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);

    // The guest takes one for each read, the host none, but for the log's where the vCPU slept.
    assert!(counted(&said.err, "nvme0q1") >= 100, "{}", said.err);
    assert!(said.err.contains("vfio-msix[1]") && counted(&said.err, "vfio-msix") == 0, "{}", said.err);
    assert!(counted(&said.err, "AMD-Vi") >= 50, "{}", said.err);

    // exitless has seen so as well.
    for (what, least) in [("posted", 1), ("logged", 50)] {
        let prefix = format!("{what}: ");
        let count = said.err.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<u32>().ok());
        assert!(count >= Some(least), "{what}\n{}", said.err);
    }
    let vm = &said.json()["vms"][0];
    assert_eq!(vm["activation"]["status"], "active", "{vm}");
    let device = &vm["devices"][0];
    assert_eq!((&device["device"], &device["delivery"]), (&"0000:01:00.0".into(), &"posted".into()), "{vm}");
    assert_eq!(device["evidence"]["host_interrupts"], 0, "{vm}");
}

#[test]
fn a_laboratory_without_an_iommu_is_refused_before_anything_is_fetched() {
    let nothing = tempfile::tempdir().unwrap();
    let arguments = ["lab", "run", "intel-apicv", "--device", "nvme", "--", "true"];
    let output = exitless(&arguments).env("XDG_CACHE_HOME", nothing.path()).output().unwrap();
    let said = said(&output);
    assert!(
        said.status == 125 && said.err.contains("use amd-avic or amd-svm"),
        "{}: {}",
        said.status,
        said.err
    );
    assert!(!said.err.contains("download"), "{}", said.err);
}

#[test]
fn a_device_that_no_laboratory_has_is_refused_with_those_that_there_are() {
    let said = run(&["lab", "run", "amd-avic", "--device", "disk", "--", "true"]);
    assert!(said.status == 2 && said.err.contains("there are: nvme, igb"), "{}", said.err);
}
