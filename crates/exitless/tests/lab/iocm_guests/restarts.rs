//! Restarts and kills of the daemon by a real systemd, while fio in a Linux guest writes and verifies.

use std::time::{Duration, Instant};

use iocm::control::client::Client;

use super::{Daemon, Process, counted, grow, guests, guests_within, printed, until_the_disk_grows};
use crate::systemd::Systemd;

/// The number of restarts and kills; `scripts/iocm-restarts` sets another one.
fn times() -> usize {
    std::env::var("IOCM_RESTARTS").map_or(3, |times| times.parse().expect("a number of restarts"))
}

/// The chardev option for reconnecting: QEMU has `reconnect-ms` since 9.2.
fn reconnect() -> String {
    std::env::var("IOCM_RECONNECT").unwrap_or_else(|_| "reconnect-ms=20".to_owned())
}

/// The number of requests between two restarts.
const REQUESTS: u64 = 200;

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn fio_verifies_what_it_wrote_over_restarts_and_kills_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (socket, path, control) = (at("disk.sock"), at("disk"), at("control"));
    std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let config = format!(
        "[workers]\ncount = 2\n[[device]]\nname = \"disk\"\ntype = \"block\"\nqueues = 2\nserial = \"verified\"\n\
         socket = {socket:?}\npath = {path:?}\n[control]\nsocket = {control:?}\nmount = \"\"\n"
    );
    std::fs::write(at("iocm.toml"), config).unwrap();
    let systemd = match Systemd::start(folder.path()) {
        Ok(systemd) => systemd,
        Err(why) => return println!("not tested: {why}"),
    };
    systemd.ctl(&["start"]).expect("the unit starts");
    let table = format!(
        "arguments = [\"-object\", \"memory-backend-memfd,id=memory,share=on,size=256M\", \
         \"-machine\", \"memory-backend=memory\", \"-chardev\", \"socket,id=disk,path={},{}\", \
         \"-device\", \"vhost-user-blk-pci,chardev=disk,num-queues=2\"]",
        socket.display(),
        reconnect()
    );
    let times = times();
    // The error, and the longest read and write latency in microseconds, of terse format 3.
    let script = until_the_disk_grows("5,39,80");
    let mut guest = guests_within(240 + 10 * times as u64, folder.path(), "1", &table, &script);

    let mut daemon = Client::connect(&control).unwrap();
    let mut pauses: [Vec<Duration>; 2] = Default::default();
    let begin_load = load_average();
    for number in 0..2 * times {
        // The guest reads its disk with a few requests before fio starts.
        let wanted = if number == 0 { 1000 } else { REQUESTS };
        let end = Instant::now() + Duration::from_secs(200);
        while counted(&mut daemon, "d.0", "statistics/requests") < wanted {
            if guest.try_wait().unwrap().is_some() {
                panic!("the guest ended after {number} restarts: {:?}", printed(guest));
            }
            assert!(Instant::now() < end, "the guest does not go on after {number} restarts");
            std::thread::sleep(Duration::from_millis(2));
        }
        let pid = daemon.get("pid").unwrap();
        let is_kill = number >= times;
        let began = Instant::now();
        match is_kill {
            false => drop(systemd.ctl(&["restart", "--no-block"]).expect("the unit is restarted")),
            true => {
                let pid =
                    rustix::process::Pid::from_raw(i32::try_from(pid.as_u64().unwrap()).unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
        // Connections wait in the stored socket for the next daemon.
        daemon = loop {
            let next = Client::connect(&control)
                .ok()
                .and_then(|mut next| (next.get("pid").ok()? != pid).then_some(next));
            match next {
                Some(next) => break next,
                None => assert!(Instant::now() < end, "no daemon after {number} restarts"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        while counted(&mut daemon, "d.0", "statistics/requests") == 0 {
            assert!(Instant::now() < end, "no request after {number} restarts");
            std::thread::sleep(Duration::from_millis(1));
        }
        pauses[usize::from(is_kill)].push(began.elapsed());
    }
    assert!(systemd.has(&format!("NRestarts={times}")), "each crash was one");
    grow(&mut daemon);
    let report = printed(guest);
    let lines: Vec<Vec<u64>> = report[0]
        .lines()
        .map(|line| {
            line.split(';').map(|field| field.parse::<f64>().expect("a figure of fio") as u64).collect()
        })
        .collect();
    assert!(lines.len() >= 2 && lines.iter().all(|line| line.len() == 3), "{report:?}");
    assert!(lines.iter().all(|line| line[0] == 0), "fio found what it had not written: {report:?}");
    let longest = lines.iter().flat_map(|line| &line[1..]).max().unwrap() / 1000;

    println!(
        "| no I/O, from the command to the first request that ended | n | p50, ms | longest, ms |\n|---|---|---|---|"
    );
    for (what, mut pauses) in
        ["`systemctl restart`", "`kill -9`, then `RestartSec=100ms`"].into_iter().zip(pauses)
    {
        pauses.sort();
        let ms = |pause: Duration| pause.as_millis();
        println!("| {what} | {times} | {} | {} |", ms(pauses[times / 2]), ms(pauses[times - 1]));
    }
    println!(
        "{} passes of fio verified {} MiB: 0 errors; the longest request took {longest} ms in the guest; {}; load average {begin_load} to {}",
        lines.len() / 2,
        lines.len() * 4,
        reconnect(),
        load_average()
    );
}

/// After a kill QEMU says where a packed ring was at its first start.
#[test]
fn packets_go_on_in_packed_rings_over_kills() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["first", "second"].map(|name| folder.path().join(name));
    let devices = sockets.each_ref().map(|socket| {
        let name = socket.file_name().unwrap();
        format!(
            "[[device]]\nname = {name:?}\ntype = \"net\"\nsocket = {socket:?}\nbackend = {{ switch = \"lan\" }}\n"
        )
    });
    let devices = devices.concat();
    let mut daemon = Daemon::start(folder.path(), &devices);
    let arguments = [0, 1].map(|number| {
        format!(
            "\"-chardev\", \"socket,id=net{number},path={},{}\", \"-netdev\", \"vhost-user,id=net{number},chardev=net{number}\", \
             \"-device\", \"virtio-net-pci,netdev=net{number},packed=on\"",
            sockets[number].display(),
            reconnect()
        )
    });
    // The last list of modules counts; the guest's own has virtio_net only for devices of the table's `net`.
    let table = format!(
        "kernel_arguments = [\"exitless.modules=overlay,virtio_blk,virtio_net\"]\n\
         arguments = [\"-object\", \"memory-backend-memfd,id=memory,share=on,size=256M\", \"-machine\", \
         \"memory-backend=memory\", {}]",
        arguments.join(", ")
    );
    // Nobody answers: each question goes from one device to the other by the switch.
    let script = "ip link set eth0 up\nip link set eth1 up\nip addr add 198.18.0.10/24 dev eth0\n\
                  while true; do busybox ping -c 1 -w 1 198.18.0.77 > /dev/null; done";
    let _guest = Process(guests(folder.path(), "1", &table, script));
    for round in 0..3 {
        let mut client = daemon.client();
        // Transmitted by the one, received by the other. The guest's interfaces may have either order.
        let passed = |client: &mut Client| {
            [["vq.0.1", "vq.1.0"], ["vq.1.1", "vq.0.0"]]
                .iter()
                .any(|queues| queues.iter().all(|queue| counted(client, queue, "requests") >= 5))
        };
        let end = Instant::now() + Duration::from_secs(200);
        while !passed(&mut client) {
            assert!(Instant::now() < end, "no packets pass after {round} kills");
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(client);
        if round < 2 {
            daemon.kill();
            daemon = Daemon::start(folder.path(), &devices);
        }
    }
}
