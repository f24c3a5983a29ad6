//! The monitor on an unmodified host: it places threads of the kernel's vhost, and restores them whatever
//! happens in between.

use host::CpuSet;
use serde_json::Value;

use crate::command::{Said, run};

/// The common part of the scripts: the threads of a guest with vhost-net, and a monitor that needs an I/O core.
const COMMON: &str = r#"
echo 'least-cores = 1' > /tmp/settings
wait_for() { # seconds, then a command
    left=$(($1 * 10)); shift
    until "$@" > /dev/null 2>&1; do
        left=$((left - 1)); [ $left -gt 0 ] || { echo "waited in vain for $*" >&2; cat /tmp/guest /tmp/said-* >&2; exit 1; }
        sleep 0.1
    done
}
threads() {
    thread=$(grep -ls '^vhost-' /proc/[0-9]*/task/[0-9]*/comm | head -n 1)
    vcpu=$(grep -ls '^CPU 0/KVM' /proc/[0-9]*/task/[0-9]*/comm | head -n 1)
    [ -n "$thread" ] && [ -n "$vcpu" ]
}
started() {
    wait_for 120 threads
    process=${vcpu#/proc/}; process=${process%%/*}
}
allowed() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "${1%comm}status"; }
where() { # a word, then the CPUs of vhost's thread and of a vCPU
    for file in "$thread" "$vcpu"; do echo "$1 $(allowed "$file")"; done
}
holds() { # a list, then a CPU
    for range in $(echo "$1" | tr , ' '); do
        if [ "${range%-*}" -le "$2" ] && [ "${range#*-}" -ge "$2" ]; then return 0; fi
    done
    return 1
}
monitor() { # a word, then arguments
    word=$1; shift
    exitless iocm monitor --vhost --every 200ms --settings /tmp/settings --json "$@" > "/tmp/said-$word" 2> "/tmp/err-$word" &
    monitor=$!
}
placed() { monitor "$@" --apply; wait_for 60 grep '"add"' "/tmp/said-$1"; sleep 0.5; }
end() { kill "-$1" $monitor; wait $monitor || true; }
"#;

/// A Linux guest.
const LINUX: &str = r#"
guest() {
    exitless guest run --set 'memory = "256M"
net = { backend = "vhost" }' -- 'sleep 1000' > /tmp/guest 2>&1 &
    started
}
"#;

/// A guest that finds nothing to boot. The thread of vhost exists as soon as QEMU has started; booting Linux would
/// only take time.
const FIRMWARE: &str = r#"
guest() {
    taps=$((taps + 1))
    qemu-system-x86_64 -name web,debug-threads=on -accel kvm -cpu host -M q35 -m 64 -display none -nodefaults -no-user-config \
        -netdev tap,id=net,ifname=tap$taps,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=net,romfile= \
        < /dev/null > /tmp/guest 2>&1 &
    started
}
"#;

/// Runs a script in a host with three CPUs, where `guest` starts [`FIRMWARE`].
fn with_firmware(script: &str) -> Said {
    in_host(&["--cpus", "3"], FIRMWARE, script)
}

/// Runs a script with the function `guest` in an emulated host.
fn in_host(options: &[&str], guest: &str, script: &str) -> Said {
    let script = format!("{COMMON}\n{guest}\n{script}");
    let said = run(&[&["lab", "run", "amd-svm"][..], options, &["--", "sh", "-c", &script]].concat());
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    said
}

/// The rest of each line that begins with `word`.
fn of<'a>(said: &'a Said, word: &str) -> Vec<&'a str> {
    let lines = said.out.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.collect()
}

/// Asserts that I/O is on one CPU, and the vCPU on others.
fn is_apart(said: &Said, word: &str) {
    let [io, vcpu] = of(said, word)[..] else { panic!("{word}: {}", said.out) };
    let [cpu, others] = [io, vcpu].map(|list| CpuSet::parse(list).unwrap());
    let apart = cpu.only().is_some() && !others.is_empty() && !cpu.meets(&others);
    assert!(apart, "{word}: {io} and {vcpu}\n{}", said.out);
}

const HOWEVER_IT_ENDS: &str = r#"
guest
where before
monitor dry --for 1s --no-exits; wait $monitor
where dry-run
placed applied
where applied
exitless iocm status | head -n 1 | sed 's/^/status /'
counted() { exitless iocm status --json > /tmp/seen; tr -d ' \n' < /tmp/seen | grep '"per_second":[1-9]'; }
wait_for 60 counted
tr -d '\n' < /tmp/seen | sed 's/^/seen /'; echo
exitless iocm status | sed 's/^/page /'
end TERM
where ended
placed again --no-exits
where again
end KILL
where killed
exitless restore > /dev/null; echo "restore $?"
where restored
sed 's/^/decided /' /tmp/said-applied
sed 's/^/err /' /tmp/err-applied
"#;

/// Emulated AMD with Linux 6.12, where each vhost device has a thread in QEMU's process.
#[test]
fn threads_of_vhost_are_placed_and_put_back_however_the_monitor_ends() {
    let built = run(&["guest", "build"]);
    assert_eq!(built.status, 0, "{}", built.err);
    let said = in_host(&["--guest-image"], LINUX, HOWEVER_IT_ENDS);
    let before = of(&said, "before");
    assert_eq!(before.len(), 2, "{}", said.out);
    assert_eq!(before[0], before[1], "{}", said.out);
    for word in ["dry-run", "ended", "restored"] {
        assert_eq!(of(&said, word), before, "{word}: {}", said.out);
    }
    for word in ["applied", "again", "killed"] {
        is_apart(&said, word);
    }
    assert_eq!(of(&said, "restore"), ["0"]);
    assert!(of(&said, "status")[0].contains("vhost"), "{}", said.out);
    let decided = of(&said, "decided");
    assert!(
        decided.iter().any(|line| line.contains("vhost-") && line.contains("\"figures\"")),
        "{}",
        said.out
    );
    // The monitor counts the exits of each VM along with its other observations.
    let seen: Value = serde_json::from_str(of(&said, "seen")[0]).unwrap();
    let state = &seen["monitor"]["state"];
    assert_eq!(state["exits_missing"], Value::Null, "{state}");
    let exits = &state["vms"][0]["exits"];
    let of_all = exits["per_second"].as_f64().unwrap();
    assert!(of_all >= 1.0 && exits["io_per_second"].as_f64().unwrap() <= of_all, "{state}");
    assert!(state["figures"]["exits"]["per_second"].as_f64() > Some(0.0), "{state}");
    let page = of(&said, "page").join("\n");
    assert!(page.contains("to devices") && page.contains("/s"), "{page}");
    assert!(!of(&said, "err").iter().any(|line| line.contains("not counted")), "{}", said.out);
}

/// The cgroups of a VM as libvirt nests them, and their settings.
const GROUPS: &str = r#"
guest
mount -t cgroup2 none /sys/fs/cgroup || true
home=/sys/fs/cgroup/machine/web
mkdir -p $home
echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
echo +cpuset > /sys/fs/cgroup/machine/cgroup.subtree_control
echo $process > $home/cgroup.procs
mkdir $home/emulator; echo threaded > $home/emulator/cgroup.type
echo +cpuset > $home/cgroup.subtree_control
for task in /proc/$process/task/*; do
    name=$(cat $task/comm); group=emulator
    case "$name" in 'CPU '*) number=${name#CPU }; group=vcpu${number%/KVM};; esac
    [ -d $home/$group ] || { mkdir $home/$group; echo threaded > $home/$group/cgroup.type; }
    echo ${task##*/} > $home/$group/cgroup.threads
done
groups() { echo "$1 [$(cat $home/vcpu0/cpuset.cpus)] [$(cat $home/emulator/cpuset.cpus)]"; }
where before; groups groups-before
placed applied --cpusets --no-exits
where applied; groups groups-applied
end TERM
where ended; groups groups-ended
placed again --cpusets --no-exits
end KILL
groups groups-killed
exitless restore > /dev/null; echo "restore $?"
where restored; groups groups-restored
placed affinity --no-exits
where affinity; groups groups-affinity
# As `virsh vcpupin` does it, while the monitor runs.
echo 0 > $home/vcpu0/cpuset.cpus
wait_for 60 grep 'left alone' /tmp/said-affinity
end TERM
sed 's/^/pinned /' /tmp/said-affinity
groups groups-pinned
echo 0-2 > $home/vcpu0/cpuset.cpus
where unpinned
# As `systemctl set-property --runtime machine-web.scope AllowedCPUs=1` does it.
echo 1 > $home/cpuset.cpus
monitor narrow --apply --no-exits
wait_for 60 grep 'left alone' /tmp/said-narrow
end TERM
sed 's/^/narrow /' /tmp/said-narrow
"#;

#[test]
fn threads_are_placed_by_their_control_groups_and_what_groups_forbid_is_left_alone() {
    let said = with_firmware(GROUPS);
    let before = of(&said, "before");
    for word in ["ended", "restored", "unpinned"] {
        assert_eq!(of(&said, word), before, "{word}: {}", said.out);
    }
    for word in ["applied", "affinity"] {
        is_apart(&said, word);
    }
    let [_, vcpu] = of(&said, "applied")[..] else { panic!("{}", said.out) };
    let by_group = format!("[{vcpu}] []");
    for word in ["groups-applied", "groups-killed"] {
        assert_eq!(of(&said, word), [by_group.as_str()], "{word}: {}", said.out);
    }
    assert_eq!(of(&said, "groups-before"), ["[] []"]);
    // The kernel refuses an empty list for a group that has threads, so the monitor sets the parent group's
    // list instead.
    let all = format!("[{}] []", before[1]);
    for word in ["groups-ended", "groups-restored", "groups-affinity"] {
        assert_eq!(of(&said, word), [all.as_str()], "{word}: {}", said.out);
    }
    assert_eq!(of(&said, "restore"), ["0"]);
    assert_eq!(of(&said, "groups-pinned"), ["[0] []"], "what others wrote stays");
    let pinned = of(&said, "pinned").join("\n");
    assert!(pinned.contains("the control group /machine/web/vcpu0 leaves CPUs 0 to thread"), "{pinned}");
    let narrow = of(&said, "narrow").join("\n");
    assert!(narrow.contains("its control group leaves it CPUs 1, of which 1 may be used"), "{narrow}");
    assert!(!narrow.contains("\"add\""), "it does nothing: {narrow}");
}

/// CPUs that go offline and online, and VMs that end and start, while one monitor runs.
const COMING_AND_GOING: &str = r#"
cpu=/sys/devices/system/cpu/cpu2/online
monitor watch --apply
wait_for 30 grep 'no VM that may be placed' /tmp/said-watch
guest
# One thread is placed after the other.
moved() { threads && [ "$(allowed "$thread")" = "$1" ] && ! holds "$(allowed "$vcpu")" "$1"; }
wait_for 60 moved 2
where with-cpu
echo 0 > $cpu
wait_for 60 moved 1
where without-cpu
echo 1 > $cpu
sleep 3
where with-cpu-again
kill -KILL $process; wait $process
wait_for 60 sh -c 'tail -n 1 /tmp/said-watch | grep "no VM that may be placed"'
guest
one_cpu() { moved 1 || moved 2; }
wait_for 60 one_cpu
where next-vm
# It ends while a CPU is off.
echo 0 > $cpu
sleep 3
end TERM
echo 1 > $cpu
sleep 1
where ended
exitless restore; echo "restore $?"
sed 's/^/decided /' /tmp/said-watch
sed 's/^/err /' /tmp/err-watch
"#;

#[test]
fn cpus_and_vms_come_and_go_while_the_monitor_runs() {
    let said = with_firmware(COMING_AND_GOING);
    for word in ["with-cpu", "without-cpu", "with-cpu-again", "next-vm"] {
        is_apart(&said, word);
    }
    assert_eq!(of(&said, "ended"), ["0-2", "0-2"], "it may run anywhere again: {}", said.out);
    assert_eq!(of(&said, "restore"), ["0"], "{}", said.out);
    let decided = of(&said, "decided");
    let decided: Vec<Value> = decided.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |words: &str| {
        decided.iter().filter(|one| one["trouble"].as_str().is_some_and(|told| told.contains(words))).count()
    };
    assert_eq!(told("no VM that may be placed"), 2, "before the first VM and between the two: {}", said.out);
    assert!(!of(&said, "err").iter().any(|line| line.contains("is left")), "{}", said.out);
}
