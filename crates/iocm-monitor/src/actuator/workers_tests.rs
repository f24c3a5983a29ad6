//! Daemons that answer late, never, or with other objects each time.

use super::*;
use host::fake::unpack;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

fn host() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    unpack("\n== /sys/devices/system/cpu/online\n0-3\n== /proc/1/comm\ninit\n", directory.path()).unwrap();
    directory
}

/// Workers of a daemon that handles each connection with `treat`.
fn workers(root: &Path, mut treat: impl FnMut(UnixStream) + Send + 'static) -> Workers {
    let socket = root.join("control");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(&mut treat));
    Workers::new(root, &socket, None)
}

fn impatient(mut workers: Workers) -> Workers {
    workers.patience = Duration::from_millis(200);
    workers
}

#[test]
fn a_daemon_that_gives_no_answer_is_waited_for_no_longer_than_that() {
    let host = host();
    let mut held = Vec::new();
    let mut workers = impatient(workers(host.path(), move |stream| held.push(stream)));
    let trouble = workers.look().unwrap_err();
    assert!(matches!(trouble, Trouble::DataPlane(ClientError::NoAnswer { .. })), "{trouble}");
}

#[test]
fn a_daemon_whose_answer_never_ends_is_waited_for_no_longer_than_that() {
    let host = host();
    let mut workers = impatient(workers(host.path(), |mut stream| {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }));
    let trouble = workers.look().unwrap_err();
    assert!(matches!(trouble, Trouble::DataPlane(ClientError::NoAnswer { .. })), "{trouble}");
}

#[test]
fn a_daemon_that_takes_no_connection_is_waited_for_no_longer_than_that() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};
    let host = host();
    let path = host.path().join("control");
    let address = SocketAddrUnix::new(&path).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    // This connection fills the listen queue.
    let first = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    connect(&first, &address).unwrap();
    let trouble = impatient(Workers::new(host.path(), &path, None)).look().unwrap_err();
    assert!(matches!(trouble, Trouble::DataPlane(ClientError::Unreachable { .. })), "{trouble}");
}

#[test]
fn queues_that_are_gone_are_forgotten_and_their_numbers_are_not_given_again() {
    let host = host();
    let mut looks = 0;
    let mut workers = workers(host.path(), move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(_)) = lines.next() {
            looks += 1;
            let queue = json!({ "worker": "w.0", "state": "served", "device": "d.0" });
            let kept = queue.clone();
            let tree = json!({ "workers": { "w.0": {} }, "queues": { "vq.kept": kept, format!("vq.{looks}"): queue } });
            writeln!(&stream, "{}", json!({ "ok": true, "value": tree })).unwrap();
        }
    });
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.extend(workers.look().unwrap().view.queues.iter().map(|queue| queue.number));
    }
    assert_eq!(workers.numbers.of.len(), 2);
    let kept = workers.numbers.of["vq.kept"];
    assert_eq!((workers.numbers.keys.len(), workers.name_of(kept)), (2, "vq.kept".to_owned()));
    assert_eq!(numbers.iter().filter(|number| **number == kept).count(), 5);
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>().len(), 6);
}

#[test]
fn the_node_of_a_front_end_is_read_once_for_all_its_queues() {
    let host = host();
    let status = |tid: i32| format!("== /proc/4000/task/{tid}/status\nCpus_allowed_list:\t2-3\n");
    let nodes =
        "\n== /sys/devices/system/node/node0/cpulist\n0-1\n== /sys/devices/system/node/node1/cpulist\n2-3\n";
    unpack(&format!("{nodes}{}{}", status(4001), status(4002)), host.path()).unwrap();
    let mut workers = workers(host.path(), |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(_)) = lines.next() {
            let queue = json!({ "worker": "w.0", "state": "served", "device": "d.0" });
            let tree = json!({
                "workers": { "w.0": {} }, "devices": { "d.0": { "pid": 4000 } },
                "queues": { "vq.0.0": queue.clone(), "vq.0.1": queue },
            });
            writeln!(&stream, "{}", json!({ "ok": true, "value": tree })).unwrap();
        }
    });
    let mut nodes = || {
        let queues = workers.look().unwrap().view.queues;
        // No search during this test, however long it takes.
        workers.discovered = Some(Instant::now() + Duration::from_secs(3600));
        queues.iter().map(|queue| queue.node).collect::<Vec<_>>()
    };
    assert_eq!(nodes(), [Some(1); 2]);
    for tid in [4001, 4002] {
        std::fs::remove_file(host.path().join(format!("proc/4000/task/{tid}/status"))).unwrap();
    }
    assert_eq!(nodes(), [Some(1); 2], "the threads are not read again for each queue");
}

#[test]
fn figures_are_the_growth_of_counters_over_the_time_between_two_looks() {
    let host = host();
    let mut looks = 0_u64;
    let mut workers = workers(host.path(), move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(_)) = lines.next() {
            looks += 1;
            // The third answer is that of a daemon whose counters began anew.
            let grown = if looks == 3 { 0 } else { looks };
            let worker = json!({ "cpu": "1", "statistics": { "useful_ticks": 5_000_000 * grown } });
            let queue = json!({
                "worker": "w.0", "state": "served", "device": "d.0", "useful_ticks": 3_000_000 * grown,
                "requests": 1000 * grown, "bytes": 4_096_000 * grown,
            });
            let tree = json!({
                "ticks_per_second": 1_000_000_000, "workers": { "w.0": worker }, "queues": { "vq.0.0": queue },
            });
            writeln!(&stream, "{}", json!({ "ok": true, "value": tree })).unwrap();
        }
    });
    let mut look = || {
        let view = workers.look().unwrap().view;
        let queue = view.queues[0];
        [view.workers[0].useful, queue.useful, queue.requests, queue.bytes]
    };
    assert_eq!(look(), [0.0; 4]);
    std::thread::sleep(Duration::from_millis(20));
    let found = look();
    let seconds = 1000.0 / found[2];
    assert!(seconds >= 0.02, "{found:?}");
    for (rate, grown) in found.into_iter().zip([0.005, 0.003, 1000.0, 4_096_000.0]) {
        assert!((rate * seconds / grown - 1.0).abs() < 1e-6, "{rate} in {seconds} s, not {grown}");
    }
    assert_eq!(look(), [0.0; 4]);
}

#[test]
fn no_worker_is_removed_for_one_that_was_not_made() {
    let host = host();
    let (told, asked) = std::sync::mpsc::channel();
    let mut workers = workers(host.path(), move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            let request: Json = serde_json::from_str(&line).unwrap();
            let operation = request["op"].as_str().unwrap().to_owned();
            let tree = json!({ "workers": { "w.0": { "cpu": "1" }, "w.1": { "cpu": "2" } }, "queues": {} });
            let error = json!({ "errno": "EINVAL", "message": "no such CPU" });
            let answer = match operation.as_str() {
                "create" => json!({ "ok": false, "error": error }),
                _ => json!({ "ok": true, "value": tree }),
            };
            told.send(operation).unwrap();
            writeln!(&stream, "{answer}").unwrap();
        }
    });
    let now = Layout::of(&workers.look().unwrap().view);
    let wanted = Layout([(Some(1), BTreeSet::new()), (Some(3), BTreeSet::new())].into());
    let left_out = workers.act(&now.actions_to(&wanted), &wanted).unwrap();
    assert_eq!(left_out, ["no such CPU"]);
    drop(workers);
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), ["get", "create"]);
}

#[test]
fn the_cores_are_those_of_the_daemon_s_control_group() {
    let host = host();
    let own = std::process::id();
    let files = format!(
        "\n== /proc/4242/comm\nexitless\n== /proc/4243/comm\nsystemd\n== /proc/4243/task/4243/cgroup\n0::/daemon\n\
         == /proc/4242/cgroup\n0::/daemon\n== /proc/4242/task/4242/cgroup\n0::/daemon\n\
         == /proc/{own}/cgroup\n0::/monitor\n== /proc/{own}/task/{own}/cgroup\n0::/monitor\n\
         == /sys/fs/cgroup/daemon/cpuset.cpus.effective\n1-2\n== /sys/fs/cgroup/monitor/cpuset.cpus.effective\n2-3\n"
    );
    unpack(&files, host.path()).unwrap();
    let mut workers = workers(host.path(), |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut pid = 4242;
        while let Some(Ok(_)) = lines.next() {
            let tree = json!({ "pid": pid, "workers": { "w.0": {} }, "queues": {} });
            writeln!(&stream, "{}", json!({ "ok": true, "value": tree })).unwrap();
            pid = 4243;
        }
    });
    for cpus in [[1, 2], [2, 3]] {
        let view = workers.look().unwrap().view;
        assert_eq!(view.cores.iter().map(|core| core.number).collect::<Vec<_>>(), cpus);
    }
    workers.cores = CpuSet::parse("3");
    let trouble = workers.usable(Some(4242)).unwrap_err().told();
    assert!(trouble.contains("the daemon's control group leaves it 1-2"), "{trouble}");
}

#[test]
fn cpus_of_which_the_daemon_is_kept_off_are_used_only_if_they_are_named() {
    let host = host();
    let mut workers = Workers::new(host.path(), Path::new("/none"), None);
    let mut usable = |affinity: &str, isolated: &str, named: Option<&str>| {
        let files = format!(
            "\n== /sys/devices/system/cpu/online\n0-7\n== /sys/devices/system/cpu/isolated\n{isolated}\n\
             == /proc/4242/comm\nexitless\n== /proc/4242/task/4242/status\nCpus_allowed_list:\t{affinity}\n"
        );
        unpack(&files, host.path()).unwrap();
        workers.cores = named.and_then(CpuSet::parse);
        let cores = workers.usable(Some(4242)).map_err(|trouble| trouble.told())?;
        Ok::<CpuSet, String>(cores.iter().map(|core| core.number).collect())
    };
    for (affinity, isolated, named, found) in [
        ("0-1", "", None, "0-1"),
        ("0-7", "6-7", None, "0-5"),
        ("0-1", "6-7", Some("5-7"), "5-7"),
        ("0-1023", "", None, "0-7"),
    ] {
        let cores = usable(affinity, isolated, named).unwrap();
        assert_eq!(cores.to_string(), found, "{affinity}, {isolated} isolated, {named:?}");
    }
    let trouble = usable("0", "4-7", None).unwrap_err();
    for why in ["the daemon's affinity leaves it 0, others", "; isolated CPUs are used if --cores"] {
        assert!(trouble.contains(why), "{trouble}");
    }
    let group =
        "\n== /proc/4242/task/4242/cgroup\n0::/daemon\n== /sys/fs/cgroup/daemon/cpuset.cpus.effective\n2\n";
    unpack(group, host.path()).unwrap();
    let trouble = usable("2", "4-7", None).unwrap_err();
    assert!(trouble.contains("control group leaves it 2") && !trouble.contains("if --cores"), "{trouble}");
}

#[test]
fn a_worker_that_stays_with_its_device_is_no_place_once_it_is_empty() {
    let host = host();
    let (told, asked) = std::sync::mpsc::channel();
    let mut workers = workers(host.path(), move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut moved = false;
        while let Some(Ok(line)) = lines.next() {
            let request: Json = serde_json::from_str(&line).unwrap();
            let operation = request["op"].as_str().unwrap().to_owned();
            moved |= operation == "move";
            let of = |own: &str| json!({ "worker": if moved { "w.2" } else { own }, "state": "served" });
            let tree = json!({
                "configuration": "[workers]\narrangement = \"per-device\"\n",
                "workers": { "w.0": {}, "w.1": {}, "w.2": { "cpu": "3" } },
                "queues": { "vq.0.0": of("w.0"), "vq.1.0": of("w.1") },
            });
            let error = json!({ "errno": "EBUSY", "message": "it serves only d.0" });
            let answer = match operation.as_str() {
                "remove" => json!({ "ok": false, "error": error }),
                _ => json!({ "ok": true, "value": tree }),
            };
            told.send(operation).unwrap();
            writeln!(&stream, "{answer}").unwrap();
        }
    });
    let wanted = |view: &View| {
        let now = Layout::of(view);
        now.actions_to(&crate::balance(&view.queues, &view.cores[3..], &now))
    };
    let actions = wanted(&workers.look().unwrap().view);
    assert!(actions.contains(&Action::Remove { at: None }), "{actions:?}");
    assert_eq!(workers.act(&actions, &Layout::default()).unwrap(), [""; 0]);
    assert_eq!(wanted(&workers.look().unwrap().view), []);
    let removed = asked.try_iter().filter(|operation| operation == "remove").count();
    assert_eq!(removed, 2);
}

/// A daemon with these workers, which poll as given. It refuses to set `w.2` to anything but `always`, and reports what
/// was set.
fn polling_daemon(root: &Path, polling: &[(&str, &str)]) -> (Workers, std::sync::mpsc::Receiver<String>) {
    let (told, set) = std::sync::mpsc::channel();
    let core = |name: &str| number_in(name).unwrap().to_string();
    let mut tree: BTreeMap<String, Json> = polling
        .iter()
        .map(|(name, polling)| {
            ((*name).to_owned(), json!({ "cpu": core(name), "pace": { "polling": polling } }))
        })
        .collect();
    let workers = workers(root, move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            let request: Json = serde_json::from_str(&line).unwrap();
            let (path, value) = (request["path"].as_str().unwrap(), request["value"].as_str());
            let mut answer = json!({ "ok": true, "value": { "workers": tree, "queues": {} } });
            if let Some(value) = value {
                let name = path.strip_suffix("/pace/polling").unwrap();
                if name == "w.2" && value != "always" {
                    answer = json!({ "ok": false, "error": { "errno": "EBUSY", "message": "not now" } });
                } else {
                    tree.get_mut(name).unwrap()["pace"]["polling"] = value.into();
                    told.send(format!("{name} {value}")).unwrap();
                }
            }
            writeln!(&stream, "{answer}").unwrap();
        }
    });
    (workers, set)
}

#[test]
fn workers_that_the_monitor_set_to_poll_wait_again_at_its_end_and_others_stay() {
    let host = host();
    let given = [("w.0", "adaptive"), ("w.1", "adaptive"), ("w.2", "adaptive"), ("w.3", "always")];
    let (mut workers, set) = polling_daemon(host.path(), &given);
    workers.look().unwrap();
    let wanted = (0..4).map(|core| (Some(core), true)).collect();
    assert_eq!(workers.poll(&wanted).unwrap(), [""; 0]);
    assert_eq!(set.try_iter().collect::<Vec<_>>(), ["w.0 always", "w.1 always", "w.2 always"]);
    // Somebody else sets one worker. This daemon serves one connection at a time.
    workers.client = None;
    let mut client = Client::connect_within(&host.path().join("control"), PATIENCE).unwrap();
    client.set("w.1/pace/polling", "never").unwrap();
    drop(client);
    assert_eq!(workers.give_back(), ["w.2 still polls always: not now"]);
    assert_eq!(set.try_iter().collect::<Vec<_>>(), ["w.1 never", "w.0 adaptive"]);
    assert_eq!(workers.give_back(), [""; 0]);
}

#[test]
fn workers_that_the_monitor_stopped_from_polling_are_not_set_again_and_a_daemon_that_ended_needs_nothing() {
    let host = host();
    let (mut workers, set) = polling_daemon(host.path(), &[("w.0", "adaptive"), ("w.1", "adaptive")]);
    workers.look().unwrap();
    workers.poll(&[(Some(0), true), (Some(1), true)].into()).unwrap();
    workers.look().unwrap();
    workers.poll(&[(Some(0), false)].into()).unwrap();
    assert_eq!(workers.set_to_poll, ["w.1".to_owned()].into());
    assert_eq!(set.try_iter().count(), 3);
    workers.client = None;
    std::fs::remove_file(host.path().join("control")).unwrap();
    assert_eq!(workers.give_back(), [""; 0]);
}
