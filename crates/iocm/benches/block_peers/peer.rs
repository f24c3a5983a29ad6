//! The back-ends that are compared, and the way to start each.

use crate::common::{cpu, run_on};
use crate::{Outcome, SERVE};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that names an older build of this program.
const OLD: &str = "IOCM_BENCH_OLD";
/// The variable that names a `qemu-storage-daemon` other than the first in `PATH`.
const STORAGE_DAEMON: &str = "IOCM_BENCH_STORAGE_DAEMON";
/// The variable that names SPDK's program `vhost`, version 26.07 or later: its DPDK must take memory in slots, as
/// libblkio passes it.
const SPDK_VHOST: &str = "IOCM_BENCH_SPDK_VHOST";
/// The variable that names cloud-hypervisor's program `vhost_user_block`.
const VHOST_USER_BLOCK: &str = "IOCM_BENCH_VHOST_USER_BLOCK";

/// The size of null disks, bytes.
const NULL_SIZE: u64 = 1 << 30;
const SECTOR: u64 = 512;

/// The storage of the measured disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Null,
    /// A file in memory.
    File,
    /// A file on a disk, with O_DIRECT.
    Direct,
}

/// The disks that a back-end is to serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disks<'a> {
    pub(crate) disk: Disk,
    pub(crate) devices: usize,
    /// The folder of the sockets.
    pub(crate) directory: &'a Path,
    /// The folder of the files.
    pub(crate) images: &'a Path,
}

impl Disks<'_> {
    pub(crate) fn socket(self, number: usize) -> PathBuf {
        self.directory.join(socket_name(number))
    }

    /// The file of a disk, which is created if it does not exist.
    fn image(self, number: usize) -> Outcome<PathBuf> {
        let path = self.images.join(number.to_string());
        if !path.exists() {
            let mut file = File::create(&path)?;
            file.write_all(&vec![1; 16 << 20])?;
            // Otherwise writeback would run during the measurement.
            file.sync_all()?;
        }
        Ok(path)
    }

    fn is_direct(self) -> bool {
        self.disk == Disk::Direct
    }
}

fn socket_name(number: usize) -> String {
    format!("s{number}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Shared,
    /// [`Self::Shared`] of an older build.
    Old,
    PerDevice,
    StorageDaemonShared,
    StorageDaemonEach,
    /// SPDK's vhost target with one reactor. It polls, so its CPU is busy under any load.
    Spdk,
    /// cloud-hypervisor's back-end, one process for each disk.
    VhostUserBlock,
}

impl Peer {
    const ALL: [Self; 7] = [
        Self::Shared,
        Self::Old,
        Self::PerDevice,
        Self::StorageDaemonShared,
        Self::StorageDaemonEach,
        Self::Spdk,
        Self::VhostUserBlock,
    ];

    /// The peers that can be started here. Prints the versions of the foreign ones, and which are missing.
    pub(crate) fn all_here() -> Vec<Self> {
        let mut peers = Self::ALL.to_vec();
        let mut asked = None;
        peers.retain(|peer| match peer.program() {
            None => false,
            Some(_) if !peer.is_foreign() => true,
            // The arrangements of one program are neighbours in the list: ask the program once.
            Some(program) => {
                if asked.as_ref().is_none_or(|(before, _)| *before != program) {
                    let runs = peer.prints_version(&program);
                    asked = Some((program, runs));
                }
                asked.as_ref().is_some_and(|(_, runs)| *runs)
            }
        });
        peers
    }

    fn prints_version(self, program: &Path) -> bool {
        match Command::new(program).arg("--version").output() {
            Ok(said) if said.status.success() => {
                println!("{}", String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default());
                true
            }
            _ => {
                let why = match self {
                    Self::StorageDaemonShared | Self::StorageDaemonEach => {
                        "there is no qemu-storage-daemon (package qemu-system-common or qemu-utils)"
                            .to_owned()
                    }
                    _ => format!("{} does not run", program.display()),
                };
                println!("not compared: {why}");
                false
            }
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "one shared worker",
            Self::Old => "an older build, shared worker",
            Self::PerDevice => "a worker each",
            Self::StorageDaemonShared => "storage daemon, one iothread",
            Self::StorageDaemonEach => "storage daemon, one each",
            Self::Spdk => "SPDK vhost, one reactor",
            Self::VhostUserBlock => "vhost_user_block, one each",
        }
    }

    const fn is_foreign(self) -> bool {
        !matches!(self, Self::Shared | Self::Old | Self::PerDevice)
    }

    /// The program to start; `None` if a variable has to name it and does not.
    fn program(self) -> Option<PathBuf> {
        let named = |variable| std::env::var_os(variable).map(PathBuf::from);
        match self {
            Self::Shared | Self::PerDevice => std::env::current_exe().ok(),
            Self::Old => named(OLD),
            Self::StorageDaemonShared | Self::StorageDaemonEach => {
                Some(named(STORAGE_DAEMON).unwrap_or_else(|| "qemu-storage-daemon".into()))
            }
            Self::Spdk => named(SPDK_VHOST),
            Self::VhostUserBlock => named(VHOST_USER_BLOCK),
        }
    }

    /// The reason why it cannot serve this kind of disk.
    pub(crate) fn lacks(self, disk: Disk) -> Option<&'static str> {
        (self == Self::VhostUserBlock && disk == Disk::Null).then_some("it has no null disk")
    }

    /// Starts it on CPU 0, and returns when all its sockets exist.
    pub(crate) fn start(self, disks: Disks<'_>) -> Outcome<BackEnd> {
        let sockets: Vec<_> = (0..disks.devices).map(|number| disks.socket(number)).collect();
        for socket in &sockets {
            let _ = std::fs::remove_file(socket);
        }
        let commands = self.commands(disks)?;
        let mut back_end = BackEnd { processes: Vec::new(), ends_with_input: !self.is_foreign() };
        run_on(&[0]);
        for mut command in commands {
            back_end.processes.push(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
        }
        run_on(&[1]);
        let begin = Instant::now();
        while !sockets.iter().all(|socket| socket.exists()) {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err(format!("the back-end does not begin: {}", self.name()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(back_end)
    }

    /// The commands that serve these disks together.
    fn commands(self, disks: Disks<'_>) -> Outcome<Vec<Command>> {
        let program = self.program().ok_or("a peer without a program")?;
        let one = || Command::new(&program);
        match self {
            Self::Shared | Self::Old => Ok(vec![daemon(one(), "shared", disks)?]),
            Self::PerDevice => Ok(vec![daemon(one(), "per-device", disks)?]),
            Self::StorageDaemonShared => Ok(vec![storage_daemon(one(), 1, disks)?]),
            Self::StorageDaemonEach => Ok(vec![storage_daemon(one(), disks.devices, disks)?]),
            Self::Spdk => Ok(vec![spdk_vhost(one(), disks)?]),
            Self::VhostUserBlock => {
                (0..disks.devices).map(|number| vhost_user_block(one(), number, disks)).collect()
            }
        }
    }
}

/// This program as a back-end.
fn daemon(mut command: Command, arrangement: &str, disks: Disks<'_>) -> Outcome<Command> {
    let mut text = format!("[workers]\narrangement = \"{arrangement}\"\n");
    for number in 0..disks.devices {
        let socket = disks.socket(number);
        write!(text, "[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")?;
        if disks.disk != Disk::Null {
            writeln!(text, "path = {:?}\ndirect = {}", disks.image(number)?, disks.is_direct())?;
        }
    }
    let config = disks.directory.join("config.toml");
    std::fs::write(&config, text)?;
    command.env(SERVE, config);
    Ok(command)
}

fn storage_daemon(mut command: Command, threads: usize, disks: Disks<'_>) -> Outcome<Command> {
    for number in 0..threads {
        command.arg("--object").arg(format!("iothread,id=io{number}"));
    }
    for number in 0..disks.devices {
        let node = match disks.disk {
            Disk::Null => format!("null-co,node-name=n{number},size={NULL_SIZE},read-zeroes=off"),
            Disk::File | Disk::Direct => format!(
                "file,node-name=n{number},filename={},aio=io_uring,cache.direct={}",
                disks.image(number)?.display(),
                if disks.is_direct() { "on" } else { "off" }
            ),
        };
        command.arg("--blockdev").arg(node).arg("--export").arg(format!(
            "vhost-user-blk,id=e{number},node-name=n{number},addr.type=unix,addr.path={},writable=on,\
             num-queues=1,iothread=io{}",
            disks.socket(number).display(),
            number % threads
        ));
    }
    Ok(command)
}

/// SPDK's vhost with one reactor for all disks. SPDK opens each file with O_DIRECT if possible, which makes no
/// difference for a file in memory.
fn spdk_vhost(mut command: Command, disks: Disks<'_>) -> Outcome<Command> {
    let call = |method, params| json!({ "method": method, "params": params });
    // Each disk has a thread of SPDK's, which keeps buffers for requests that have to be copied. None of these has to
    // be, and the default number of buffers is not enough for 64 disks.
    let accel_buffers = call("accel_set_options", json!({ "small_cache_size": 16, "large_cache_size": 2 }));
    let disk_buffers =
        call("bdev_set_options", json!({ "iobuf_small_cache_size": 16, "iobuf_large_cache_size": 2 }));
    // Without huge pages the memory of front-ends cannot be registered for DMA, which gives a warning for each
    // connection. These disks do no DMA.
    let errors_only = call("log_set_print_level", json!({ "level": "ERROR" }));
    let (mut disk_calls, mut controllers) = (vec![errors_only, disk_buffers], Vec::new());
    for number in 0..disks.devices {
        let name = format!("d{number}");
        let file = |method, path: PathBuf| {
            call(method, json!({ "name": name, "filename": path, "block_size": SECTOR }))
        };
        disk_calls.push(match disks.disk {
            Disk::Null => call(
                "bdev_null_create",
                json!({ "name": name, "num_blocks": NULL_SIZE / SECTOR, "block_size": SECTOR }),
            ),
            // io_uring hands reads of tmpfs to kernel threads, which would have to share the CPU with a reactor that never
            // sleeps. Linux AIO reads at submission.
            Disk::File => file("bdev_aio_create", disks.image(number)?),
            Disk::Direct => file("bdev_uring_create", disks.image(number)?),
        });
        let controller = json!({ "ctrlr": socket_name(number), "dev_name": name });
        controllers.push(call("vhost_create_blk_controller", controller));
    }
    let config = disks.directory.join("spdk.json");
    let subsystems = json!({ "subsystems": [
        { "subsystem": "accel", "config": [accel_buffers] },
        { "subsystem": "bdev", "config": disk_calls },
        { "subsystem": "vhost_blk", "config": controllers },
    ]});
    std::fs::write(&config, serde_json::to_vec(&subsystems)?)?;
    // The mask is CPU 0. Neither huge pages nor PCI devices are needed for these disks.
    command.args(["--cpumask", "0x1", "--no-huge", "--mem-size", "1024", "--no-pci"]);
    // Leave nothing in shared places: locks of CPUs, traces, an RPC socket, DPDK's directory.
    command.args(["--disable-cpumask-locks", "--num-trace-entries", "0", "--silence-noticelog"]);
    // DPDK reports each step of a connection unless it is asked for errors only.
    command.args(["--env-context", "--log-level=lib.vhost*:error"]);
    command.arg("--rpc-socket").arg(disks.directory.join("rpc"));
    command.env("RUNTIME_DIRECTORY", disks.directory);
    command.arg("-S").arg(disks.directory).arg("--config").arg(config);
    Ok(command)
}

/// The back-end of one disk.
fn vhost_user_block(mut command: Command, number: usize, disks: Disks<'_>) -> Outcome<Command> {
    command.arg("--block-backend").arg(format!(
        "path={},socket={},num_queues=1,direct={}",
        disks.image(number)?.display(),
        disks.socket(number).display(),
        disks.is_direct()
    ));
    Ok(command)
}

/// The processes of a peer, which end with it.
pub(crate) struct BackEnd {
    processes: Vec<Child>,
    /// They end by themselves when standard input is closed.
    ends_with_input: bool,
}

impl BackEnd {
    /// Seconds of CPU time that all of them have used.
    pub(crate) fn cpu(&self) -> std::io::Result<f64> {
        self.processes.iter().map(|process| cpu(process.id())).sum()
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.stdin.take());
            if !self.ends_with_input {
                let _ = process.kill();
            }
            let _ = process.wait();
        }
    }
}
