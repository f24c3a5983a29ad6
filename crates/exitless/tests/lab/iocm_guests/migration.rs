//! A running Linux guest migrates from one daemon to another with its disk and its network device.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iocm::testing::Qmp;
use serde_json::json;

use super::{Daemon, Process, REQUESTS, VERIFY, counted, guests};

fn until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(200);
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(Instant::now() < end, "waited 200 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The command line of the running QEMU that has `argument`.
fn command_line(argument: &str) -> Option<Vec<String>> {
    std::fs::read_dir("/proc").unwrap().find_map(|entry| {
        let words = std::fs::read(entry.unwrap().path().join("cmdline")).ok()?;
        let words = words.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        // The process that starts QEMU has this text only within a longer argument.
        (words[0].contains("ld-linux") && words.iter().any(|word| word == argument)).then_some(words)
    })
}

/// QEMU's arguments for a disk and a network device.
fn devices(folder: &Path, side: &str) -> String {
    let at = |name: &str| folder.join(format!("{side}.{name}"));
    let (disk, net, path) = (at("disk"), at("net"), folder.join("disk"));
    format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nqueues = 2\nserial = \"verified\"\nsocket = {disk:?}\n\
         path = {path:?}\n[[device]]\nname = \"net\"\ntype = \"net\"\nsocket = {net:?}\n\
         backend = {{ switch = \"lan\" }}\n"
    )
}

#[test]
fn a_guest_that_migrates_to_another_daemon_finds_all_that_it_wrote() {
    migrates("");
}

/// A packed ring's used descriptors overwrite available ones, and those pages must be in the dirty log too.
#[test]
fn a_guest_with_a_packed_ring_that_migrates_finds_all_that_it_wrote() {
    migrates(",packed=on");
}

/// Migrates a guest whose disk also has these properties.
fn migrates(disk_properties: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::File::create(at("disk")).unwrap().set_len(32 << 20).unwrap();
    let mut daemons = ["from", "to"].map(|side| {
        std::fs::create_dir(at(side)).unwrap();
        Daemon::start(&at(side), &devices(folder.path(), side))
    });
    let monitor = format!("unix:{},server=on,wait=off", at("from.qmp").display());
    let (disk, net) = (at("from.disk"), at("from.net"));
    let table = format!(
        "net = {{ backend = \"vhost-user\", socket = {net:?} }}\n\
         arguments = [\"-chardev\", \"socket,id=disk,path={},reconnect=1\", \
         \"-device\", \"vhost-user-blk-pci,chardev=disk,num-queues=2{disk_properties}\", \"-qmp\", \"{monitor}\"]",
        disk.display()
    );
    // fio runs until the link goes down, so that the guest migrates under load however long that takes.
    // Nobody answers on its network; that the guest asks is enough.
    let script = format!(
        "set -e\nip addr add 198.18.0.10/24 dev eth0 || true\ncarrier() {{ cat /sys/class/net/eth0/carrier; }}\n\
         until [ \"$(carrier)\" = 0 ]; do\n{VERIFY}\ngrep '^3;' report >> reports\ndone\n\
         echo ERRORS $(cut -d ';' -f 5 reports | sort -u) > /dev/ttyS0\n\
         until [ \"$(carrier)\" = 1 ]; do sleep 0.1; done\nbusybox ping -c 3 -w 3 198.18.0.77 || true\n\
         echo PINGED > /dev/ttyS0"
    );
    let source = Process(guests(folder.path(), "1", &table, &script));
    let mut client = daemons[0].client();
    until("fio is at work", || {
        (counted(&mut client, "d.0", "statistics/requests") >= 2 * REQUESTS).then_some(())
    });

    let words = command_line(&monitor).expect("QEMU runs");
    let of_target = |word: &String| {
        let word = word.replace("/from.", "/to.");
        word.replace("file:console", &format!("file:{}", at("console").display()))
    };
    let migration = format!("unix:{}", at("migration").display());
    let mut target = Command::new(&words[0]);
    target.args(words[1..].iter().map(of_target)).args(["-incoming", &migration]);
    target.current_dir(at("to")).stdin(Stdio::piped()).stdout(Stdio::null());
    let _target = Process(target.spawn().unwrap());
    let (mut from, mut to) = (Qmp::connect(&at("from.qmp")), Qmp::connect(&at("to.qmp")));
    from.ask("migrate", json!({ "uri": migration }));
    let migrated = until("the migration ends", || {
        let state = from.ask("query-migrate", json!({}));
        assert_ne!(state["status"], "failed", "{state}");
        (state["status"] == "completed").then_some(state)
    });
    let of_source = counted(&mut client, "d.0", "statistics/requests");
    drop(source);
    drop(from);
    until("the guest runs where it went", || {
        (to.ask("query-status", json!({}))["running"] == true).then_some(())
    });
    let mut client = daemons[1].client();
    until("fio is at work where it went", || {
        (counted(&mut client, "d.0", "statistics/requests") > REQUESTS).then_some(())
    });
    let said = |line: &str| {
        until(line, || {
            let console = std::fs::read_to_string(at("console")).unwrap_or_default();
            // The guest writes byte by byte: ignore a line that has no end yet.
            let is_whole = |said: &str| said.contains(line) && said.ends_with('\n');
            console.split_inclusive('\n').any(is_whole).then_some(console)
        })
    };
    to.ask("set_link", json!({ "name": "net", "up": false }));
    let console = said("ERRORS");
    assert!(console.lines().any(|line| line.trim_end().ends_with("ERRORS 0")), "{console}");
    to.ask("set_link", json!({ "name": "net", "up": true }));
    said("PINGED");
    let of_target = counted(&mut client, "d.0", "statistics/requests");
    assert!(counted(&mut client, "vq.1.1", "requests") >= 3, "the guest is heard on the network");
    println!(
        "a guest migrated with {of_source} requests before and {of_target} after it: {} ms, {} of them without it",
        migrated["total-time"], migrated["downtime"]
    );
}
