//! Open vSwitch with DPDK as a back-end, in its own folder and without huge pages.

use crate::Outcome;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's name of the daemon with DPDK.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The reason why it cannot be measured here.
pub(crate) fn missing() -> Option<&'static str> {
    let is_there = Path::new(DAEMON).exists() && Path::new(SCHEMA).exists();
    (!is_there).then_some("there is no Open vSwitch with DPDK (package openvswitch-switch-dpdk)")
}

/// A database that lists the ports, and the daemon to be started with it. Its sockets are named like the ports: `s0`,
/// `s1`. A single port drops what it receives; between two it switches by learnt addresses.
pub(crate) fn prepared(folder: &Path, ports: usize) -> Outcome<(Child, Command)> {
    let (database, socket) = (folder.join("ovs.db"), folder.join("ovs.sock"));
    for path in [&database, &socket] {
        let _ = std::fs::remove_file(path);
    }
    let command = |program: &str| {
        let mut command = Command::new(program);
        for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"] {
            command.env(name, folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !command("ovsdb-tool").arg("create").arg(&database).arg(SCHEMA).status()?.success() {
        return Err("ovsdb-tool makes no database".into());
    }
    let remote = format!("punix:{}", socket.display());
    let server = command("ovsdb-server").arg(&database).arg("--remote").arg(remote).spawn()?;
    let begin = Instant::now();
    while !socket.exists() {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err("ovsdb-server does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let address = format!("unix:{}", socket.display());
    let mut settings = command("ovs-vsctl");
    settings.arg(format!("--db={address}")).args([
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        "other_config:dpdk-init=true",
    ]);
    // By default it allocates memory in a way that needs huge pages. With much less memory it removes ports again: the
    // packet buffers of a port are allocated anew when a front-end connects.
    let memory = "--legacy-mem --no-huge -m 2048 --no-pci --no-telemetry";
    settings.arg(format!("other_config:dpdk-extra={memory} --file-prefix=iocm-ovs-{}", std::process::id()));
    settings.args(["other_config:dpdk-lcore-mask=2", "other_config:pmd-cpu-mask=1"]);
    settings.args(["--", "add-br", "lan", "--", "set", "bridge", "lan", "datapath_type=netdev"]);
    if ports == 1 {
        // Without flows nothing is forwarded.
        settings.arg("fail-mode=secure");
    }
    for port in 0..ports {
        let name = format!("s{port}");
        settings.args([
            "--",
            "add-port",
            "lan",
            &name,
            "--",
            "set",
            "Interface",
            &name,
            "type=dpdkvhostuser",
        ]);
    }
    if !settings.status()?.success() {
        return Err("ovs-vsctl sets nothing".into());
    }
    let mut daemon = command(DAEMON);
    daemon.arg(address).arg("--no-chdir").arg(format!("--unixctl={}", folder.join("ovs.ctl").display()));
    Ok((server, daemon))
}
