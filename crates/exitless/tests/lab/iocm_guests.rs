//! Linux guests with devices of `iocm serve`, run on this machine with the laboratories' QEMU and the guest
//! image.

mod migration;
mod restarts;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use iocm::control::client::Client;
use serde_json::Value;

use crate::command::{exitless, run, said};

/// A daemon and its settings; killed when it is dropped.
struct Daemon {
    child: Child,
    control: PathBuf,
}

impl Daemon {
    fn start(folder: &Path, devices: &str) -> Self {
        let (config, control) = (folder.join("iocm.toml"), folder.join("control"));
        let text = format!("{devices}[control]\nsocket = {control:?}\nmount = \"\"\n");
        std::fs::write(&config, text).unwrap();
        let child = exitless(&["iocm", "serve", "--config", config.to_str().unwrap()])
            .spawn()
            .expect("exitless starts");
        let mut daemon = Self { child, control };
        daemon.client();
        daemon
    }

    fn client(&mut self) -> Client {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match Client::connect(&self.control) {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the daemon ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the daemon like `kill -9`.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A queue's counter of completed requests or bytes.
fn counted(client: &mut Client, queue: &str, what: &str) -> u64 {
    let value = client.get(&format!("{queue}/{what}")).unwrap();
    value.as_u64().unwrap_or_else(|| panic!("{queue}/{what} is {value}"))
}

/// A script that runs the laboratories' QEMU with its own libraries, so that all machines test the same QEMU.
fn qemu(folder: &Path) -> PathBuf {
    let cache = lab::Cache::of_user().unwrap();
    let build = |command: &[&str]| {
        let built = run(command);
        assert_eq!(built.status, 0, "{}", built.err);
    };
    // Build only what is missing: for an existing image, `build` would read all of it to check hashes.
    if lab::Image::find(&cache).unwrap().is_none() {
        build(&["lab", "build", "amd-svm"]);
    }
    if lab::GuestImage::find(&cache).unwrap().is_none() {
        build(&["guest", "build"]);
    }
    let images = std::fs::read_dir(cache.root()).unwrap().map(|entry| entry.unwrap().path());
    let mut tools = images.map(|path| path.join("tools/usr"));
    let tools =
        tools.find(|path| path.join("bin/qemu-system-x86_64").exists()).expect("a laboratory's image");
    let (program, tools) = (folder.join("qemu"), tools.display());
    let libraries = format!("{tools}/lib/x86_64-linux-gnu");
    let mut file = std::fs::File::create(&program).unwrap();
    writeln!(
        file,
        "#!/bin/sh\nQEMU_MODULE_DIR='{libraries}/qemu' exec '{libraries}/ld-linux-x86-64.so.2' \
         --library-path '{libraries}' '{tools}/bin/qemu-system-x86_64' \
         -L '{tools}/share/qemu' -L '{tools}/share/seabios' \"$@\""
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Starts guests with these settings and script.
fn guests(folder: &Path, count: &str, table: &str, script: &str) -> Child {
    guests_within(240, folder, count, table, script)
}

/// Like [`guests`], with a time limit in seconds.
fn guests_within(limit: u64, folder: &Path, count: &str, table: &str, script: &str) -> Child {
    let program = qemu(folder);
    let table = format!("accel = \"tcg\"\nmemory = \"256M\"\nvcpus = 2\nprogram = {program:?}\n{table}");
    let folder = folder.join("guests");
    let mut command =
        exitless(&["guest", "run", "--json", "--timeout", &limit.to_string(), "--count", count]);
    command.arg("--folder").arg(folder).args(["--set", &table, "--", script]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().expect("exitless starts")
}

/// The output of each guest's script.
fn printed(guests: Child) -> Vec<String> {
    let said = said(&guests.wait_with_output().unwrap());
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let guests = said.json()["guests"].as_array().unwrap().clone();
    guests.iter().map(|guest: &Value| guest["stdout"].as_str().unwrap().to_owned()).collect()
}

const KILLS: u32 = 5;
/// The number of requests between two kills.
const REQUESTS: u64 = 250;

/// Two processes each write 1024 blocks at random offsets in an area of their own, 16 in flight with flushes
/// in between, and verify them.
const VERIFY: &str = "set -e
for disk in /sys/block/vd*; do
    if [ \"$(cat $disk/serial)\" = verified ]; then device=/dev/${disk##*/}; fi
done
fio --name=verified --filename=$device --direct=1 --rw=randwrite --bs=4k --size=4m --numjobs=2 \\
    --offset_increment=4m --ioengine=libaio --iodepth=16 --fdatasync=64 --verify=crc32c --verify_fatal=1 \\
    --minimal --terse-version=3 > report
grep '^3;' report | cut -d ';' -f 5";

/// A guest's script: fio writes and verifies until [`grow`] is called. Prints these fields of fio's terse format
/// for each process in each pass.
fn until_the_disk_grows(fields: &str) -> String {
    let (find, fio) = VERIFY.split_once("fio ").expect("it runs fio");
    let fio = fio.replace("cut -d ';' -f 5", &format!("cut -d ';' -f {fields}"));
    format!(
        "{find}\nsize=/sys/block/${{device##*/}}/size\nbefore=$(cat $size)\nwhile [ $(cat $size) = $before ]; do\nfio {fio}\ndone"
    )
}

/// Makes the disk larger than 32 MiB.
fn grow(client: &mut Client) {
    client.set("d.0/size", &(48_u64 << 20).to_string()).unwrap();
}

#[test]
fn fio_verifies_what_it_wrote_over_kills_of_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = (folder.path().join("disk.sock"), folder.path().join("disk"));
    std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let device = format!(
        "[workers]\ncount = 2\n[[device]]\nname = \"disk\"\ntype = \"block\"\nqueues = 2\nserial = \"verified\"\n\
         socket = {socket:?}\npath = {path:?}\n"
    );
    let mut daemon = Daemon::start(folder.path(), &device);
    let table = format!(
        "arguments = [\"-object\", \"memory-backend-memfd,id=memory,share=on,size=256M\", \
         \"-machine\", \"memory-backend=memory\", \"-chardev\", \"socket,id=disk,path={},reconnect=1\", \
         \"-device\", \"vhost-user-blk-pci,chardev=disk,num-queues=2\"]",
        socket.display()
    );
    let mut guest = guests(folder.path(), "1", &table, &until_the_disk_grows("5"));
    for kill in 0..KILLS {
        let mut client = daemon.client();
        let end = Instant::now() + Duration::from_secs(200);
        // The guest reads its disk with a few requests before fio starts.
        let wanted = if kill == 0 { 2 * REQUESTS } else { REQUESTS };
        while counted(&mut client, "d.0", "statistics/requests") < wanted {
            assert!(guest.try_wait().unwrap().is_none(), "the guest ended after {kill} kills");
            assert!(Instant::now() < end, "the guest does not go on after {kill} kills");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon.kill();
        daemon = Daemon::start(folder.path(), &device);
    }
    let mut client = daemon.client();
    let end = Instant::now() + Duration::from_secs(200);
    // QEMU has connected again, too: it is not told of a size that was set before.
    for queue in ["vq.0.0", "vq.0.1"] {
        while counted(&mut client, queue, "requests") == 0 {
            assert!(Instant::now() < end, "{queue} does not go on after the last kill");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    grow(&mut client);
    let report = printed(guest);
    let errors: Vec<&str> = report[0].lines().collect();
    assert!(errors.len() >= 2 && errors.iter().all(|errors| *errors == "0"), "{report:?}");
}

/// From each of its two vCPUs, a guest finds the other and sends it two streams of 8 MiB at once. A vCPU
/// sends through its own queue; later packets of a stream use the queue on which its answers arrive.
const TALK: &str = "set -e
number=$(cut -d : -f 6 /sys/class/net/eth0/address)
own=$((number + 1)) other=$((2 - number))
ip addr add 10.77.0.$own/24 dev eth0
until busybox ping -c 1 -w 5 10.77.0.$other > /dev/null; do :; done
for cpu in 0 1; do
    taskset -c $cpu busybox ping -c 3 -w 60 10.77.0.$other
done > ping
head -c 8388608 /dev/urandom > sent
for cpu in 0 1; do
    taskset -c $cpu busybox nc -l -p 500$cpu > got.$cpu < /dev/null &
done
for cpu in 0 1; do
    until taskset -c $cpu bash -c \"cat sent > /dev/tcp/10.77.0.$other/500$cpu\" 2> /dev/null; do
        sleep 0.2
    done &
done
wait
sha256sum sent got.0 got.1 | cut -d ' ' -f 1
grep -c 'bytes from' ping";

#[test]
fn guests_of_a_switch_get_what_the_other_sent_by_all_queues_while_these_move() {
    let folder = tempfile::tempdir().unwrap();
    let device = |number: u32| {
        let socket = folder.path().join(format!("net-{number}"));
        format!(
            "[[device]]\nname = \"net{number}\"\ntype = \"net\"\nqueues = 2\nsocket = {socket:?}\n\
             backend = {{ switch = \"lan\", check-source = true }}\nmac = \"52:54:00:18:00:0{number}\"\n"
        )
    };
    let devices = format!("[workers]\ncount = 2\n{}{}", device(0), device(1));
    let mut daemon = Daemon::start(folder.path(), &devices);
    let socket = folder.path().join("net-{guest}");
    let table = format!("net = {{ backend = \"vhost-user\", socket = {socket:?}, queues = 2 }}");
    let mut guests = guests(folder.path(), "2", &table, TALK);
    let mut client = daemon.client();
    for worker in ["w.1", "w.0"].into_iter().cycle() {
        if guests.try_wait().unwrap().is_some() {
            break;
        }
        for device in ["d.0", "d.1"] {
            client.move_to(&[device], worker).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let out = printed(guests);
    let lines: Vec<Vec<&str>> = out.iter().map(|out| out.lines().collect()).collect();
    for (own, other) in [(0, 1), (1, 0)] {
        assert_eq!(lines[own].len(), 4, "{}", out[own]);
        assert_eq!(
            lines[own][1..],
            [lines[other][0], lines[other][0], "6"],
            "what the other sent, and answers"
        );
    }
    let (mut longest, mut moves) = (0, 0);
    for device in 0..2 {
        // Odd queues are transmit queues. The sender's queue decides through which queue the other guest
        // receives.
        for queue in [1, 3] {
            let queue = format!("vq.{device}.{queue}");
            assert!(counted(&mut client, &queue, "requests") >= 3, "{queue} had its echoes");
            assert_eq!(counted(&mut client, &queue, "errors"), 0);
        }
        for queue in 0..4 {
            let queue = format!("vq.{device}.{queue}");
            let moved = counted(&mut client, &queue, "moves/count");
            assert!(moved > 0, "{queue} moved");
            moves += moved;
            longest = longest.max(counted(&mut client, &queue, "moves/longest_pause_ns"));
        }
    }
    println!("queues moved {moves} times; the longest pause of one {longest} ns");
}
