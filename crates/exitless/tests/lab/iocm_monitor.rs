//! The monitor on a stock host: real threads of the kernel's vhost, placed and put back.

use crate::command::run;

/// In the host: a guest with vhost-net, and where its threads may run before, under the monitor, and after it ended, was
/// killed, and was undone.
const SCRIPT: &str = r#"
modprobe -a tun vhost_net
table='memory = "192M"
net = { backend = "vhost" }'
exitless guest run --set "$table" -- 'sleep 1000' > /tmp/guest 2>&1 &
left=600
until thread=$(grep -l '^vhost-' /proc/[0-9]*/task/[0-9]*/comm 2> /dev/null | head -n 1) && [ -n "$thread" ]; do
    left=$((left - 1)); [ $left -gt 0 ] || { cat /tmp/guest >&2; exit 1; }
    sleep 0.1
done
vcpu=$(grep -l '^CPU 0/KVM' /proc/[0-9]*/task/[0-9]*/comm | head -n 1)
where() {
    for file in "$thread" "$vcpu"; do
        sed -n "s/^Cpus_allowed_list:[[:space:]]*/$1 /p" "${file%comm}status"
    done
}
echo 'least-cores = 1' > /tmp/settings
watch() {
    exitless iocm monitor --vhost --apply --every 200ms --settings /tmp/settings --json > "/tmp/$1" 2>&1 &
    monitor=$!
    left=300
    until grep -q '"add"' "/tmp/$1"; do
        left=$((left - 1)); [ $left -gt 0 ] || { cat "/tmp/$1" >&2; exit 1; }
        sleep 0.1
    done
    sleep 0.5
    where "$1"
}
where before
exitless iocm monitor --vhost --for 1s --every 200ms --settings /tmp/settings --json > /tmp/dry 2> /dev/null
where dry-run
watch applied
exitless iocm status | head -n 1 | sed 's/^/status /'
kill -TERM $monitor; wait $monitor || true
where ended
watch again
kill -KILL $monitor; wait $monitor || true
where killed
exitless restore > /dev/null; echo "restore $?"
where restored
sed 's/^/decided /' /tmp/applied
"#;

/// Emulated AMD: a Linux 6.12 whose vhost has a thread of QEMU for a device.
#[test]
fn threads_of_vhost_are_placed_and_put_back_however_the_monitor_ends() {
    let built = run(&["guest", "build"]);
    assert_eq!(built.status, 0, "{}", built.err);
    let said = run(&["lab", "run", "amd-svm", "--guest-image", "--", "sh", "-c", SCRIPT]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let of = |word: &str| -> Vec<&str> {
        let lines = said.out.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.collect()
    };
    let before = of("before");
    assert_eq!(before.len(), 2, "{}", said.out);
    assert_eq!(before[0], before[1], "{}", said.out);
    for word in ["dry-run", "ended", "restored"] {
        assert_eq!(of(word), before, "{word}: {}", said.out);
    }
    for word in ["applied", "again", "killed"] {
        let [io, vcpu] = of(word)[..] else { panic!("{word}: {}", said.out) };
        assert!(io.parse::<u32>().is_ok() && io != vcpu, "{word}: {io} and {vcpu}");
    }
    assert_eq!(of("restore"), ["0"]);
    assert!(of("status")[0].contains("vhost"), "{}", said.out);
    assert!(
        of("decided").iter().any(|line| line.contains("vhost-") && line.contains("\"figures\"")),
        "{}",
        said.out
    );
}
