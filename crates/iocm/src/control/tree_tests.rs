use super::*;
use crate::config::{PollingConfig, WorkerConfig};
use crate::control::object::QueueName;
use crate::control::{ControlRequest, RequestLine, answer};
use crate::testing::MadeUpDaemon as MadeUp;
use host::CpuSet;
use proptest::prelude::*;
use serde_json::json;

fn text(path: &str) -> Result<String, ControlError> {
    let view = MadeUp::default();
    read(&view, Node::find(&view, path)?).map(|value| value.text())
}

fn asked(path: &str, text: &str) -> Result<Operation, Errno> {
    let view = MadeUp::default();
    let node = Node::find(&view, path).map_err(|error| error.errno)?;
    write(&view, node, text).map_err(|error| error.errno)
}

fn names(path: &str) -> Vec<String> {
    let view = MadeUp::default();
    list(&view, Node::find(&view, path).unwrap()).unwrap().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn reading_gives_one_value_a_line() {
    for (path, wanted) in [
        ("workers/w.0/cpu", "0-2,5\n"),
        ("w.3/load", "12.3\n"),
        ("w.0/queues", "vq.1.0\n"),
        ("w.0/pace/polling", "adaptive\n"),
        ("w.0/pace/longest_nap_us", "60\n"),
        ("w.0/statistics/sweeps", "9\n"),
        ("devices/d.1/vm", "guest\n"),
        ("d.1/worker", "w.0\n"),
        ("d.1/queues", "vq.1.0\nvq.1.1\n"),
        ("d.1/size", "1048576\n"),
        ("d.1/read_only", "no\n"),
        ("d.1/block_size", "512\n"),
        ("d.1/serial", ""),
        ("d.1/limits/requests_per_second", "5\n"),
        ("d.1/statistics/requests", "20\n"),
        ("queues/vq.1.1/worker", "w.0\n"),
        ("vq.1.0/poll", "auto\n"),
        ("vq.1.0/moves/longest_pause_ns", "5000\n"),
        ("pid", "7\n"),
        ("removed_workers/sleeps", "3\n"),
        ("refused", "web: its file is gone\n"),
        ("configuration", "[workers]\n"),
    ] {
        assert_eq!(text(path).as_deref(), Ok(wanted), "{path}");
    }
}

#[test]
fn writing_asks_for_actions() {
    let queue = QueueName { device: 1, queue: 1 };
    for (path, text, wanted) in [
        ("workers/create", "\n", Operation::AddWorker(WorkerConfig::default())),
        ("workers/remove", "w.3\n", Operation::RemoveWorker(3)),
        ("w.0/cpu", "2,4-5\n", Operation::Pin(0, [2, 4, 5].into_iter().collect())),
        ("w.0/cpu", "all", Operation::Pin(0, CpuSet::default())),
        ("w.0/pace/polling", "never", Operation::Poll(0, PollingConfig::Never)),
        ("w.0/pace/longest_nap_us", "50", Operation::LongestNap(0, 50)),
        ("devices/remove", "d.1", Operation::RemoveDevice(1)),
        ("d.1/worker", "w.3", Operation::MoveDevice(1, 3)),
        ("d.1/size", "2097152", Operation::Resize(1, Some(2 << 20))),
        ("d.1/size", "file", Operation::Resize(1, None)),
        ("d.1/limits/bytes_per_second", "7", Operation::LimitBytes(1, 7)),
        ("vq.1.1/worker", "w.3", Operation::MoveQueues(vec![queue], 3)),
        ("vq.1.1/weight", "300", Operation::Weigh(queue, 300)),
        ("vq.1.1/weight", "4", Operation::Weigh(queue, 4)),
        ("vq.1.1/weight", "800", Operation::Weigh(queue, 800)),
        ("vq.1.1/poll", "always", Operation::PollQueue(queue, true)),
    ] {
        assert_eq!(asked(path, text), Ok(wanted), "{path}");
    }
    let device = asked("devices/create", "{ name = \"a\", type = \"block\", socket = \"/a\" }").unwrap();
    assert!(matches!(device, Operation::AddDevice(config) if config.name == "a"));
}

#[test]
fn what_cannot_be_is_refused_by_its_kind() {
    for (path, text, errno) in [
        ("w.0/cpu", "x", Errno::Invalid),
        ("w.0/pid", "1", Errno::Denied),
        ("w.1/cpu", "1", Errno::Missing),
        ("w.00/cpu", "1", Errno::Missing),
        ("w.0", "1", Errno::IsDirectory),
        ("w.0/cpu/x", "1", Errno::NotDirectory),
        ("vq.1.2/weight", "1", Errno::Missing),
        ("vq.1.1/weight", "3", Errno::Invalid),
        ("vq.1.1/weight", "801", Errno::Invalid),
        ("vq.1.1/worker", "d.1", Errno::Invalid),
        ("d.1/size", "-1", Errno::Invalid),
        ("d.1/block_size", "4096", Errno::Denied),
        ("devices/create", "{}", Errno::Invalid),
        ("w.0/pace/longest_nap_us", "0", Errno::Invalid),
    ] {
        assert_eq!(asked(path, text), Err(errno), "{path} {text}");
    }
    assert_eq!(text("workers/create").unwrap_err().errno, Errno::Denied);
    assert_eq!(text("workers").unwrap_err().errno, Errno::IsDirectory);
}

#[test]
fn directories_list_what_is_in_them() {
    assert_eq!(names("")[..3], ["workers", "devices", "queues"]);
    assert_eq!(names("workers"), ["w.0", "w.3", "create", "remove"]);
    assert_eq!(names("queues"), ["vq.1.0", "vq.1.1"]);
    assert_eq!(names("w.0/pace"), ["polling", "longest_nap_us"]);
    let queue = names("vq.1.0");
    assert_eq!(queue.iter().filter(|name| *name == "delays").count(), 1);
    assert!(queue.contains(&"requests".to_owned()) && queue.contains(&"moves".to_owned()));
}

#[test]
fn places_have_numbers_of_their_own() {
    let view = MadeUp::default();
    let mut seen = std::collections::HashSet::new();
    let mut left = vec![Node::Object(Object::Root)];
    while let Some(node) = left.pop() {
        assert!(seen.insert(node.number()), "{node:?}");
        let again = Node::of_number(node.number()).unwrap();
        assert_eq!((again.number(), again.object()), (node.number(), node.object()));
        if node.kind() == NodeKind::Directory {
            for entry in list(&view, node).unwrap() {
                let found = node.child(&view, &entry.name).unwrap().unwrap();
                assert_eq!(found.number(), entry.node.number(), "{}", entry.name);
                left.push(found);
            }
        }
    }
    assert!(seen.len() > 80, "{}", seen.len());
}

#[test]
fn a_directory_is_read_as_an_object() {
    let view = MadeUp::default();
    let all = read_below(&view, Node::find(&view, "").unwrap()).unwrap();
    assert_eq!(all["workers"]["w.3"]["pace"]["polling"], "adaptive");
    assert_eq!(all["queues"]["vq.1.1"]["delays"]["p99_ns"], 0);
    assert_eq!(all["workers"].as_object().unwrap().len(), 2, "what can only be written says nothing");
    let pace = read_below(&view, Node::find(&view, "w.0/pace").unwrap()).unwrap();
    assert_eq!(pace, json!({ "polling": "adaptive", "longest_nap_us": 60 }));
}

#[test]
fn requests_are_answered_or_carried_out() {
    let daemon = MadeUp::default();
    let ask = |line: &str| {
        let request = RequestLine::parse(line.as_bytes()).request?;
        answer(&daemon, &request)
    };
    assert_eq!(ask(r#"{"op":"get","path":"d.1/vm"}"#).unwrap()["value"], "guest");
    let listed = ask(r#"{"op":"ls","path":"w.0"}"#).unwrap();
    assert_eq!(listed["entries"][0]["name"], "cpu");
    assert_eq!(listed["entries"][0]["access"], "read-write");
    ask(r#"{"op":"set","path":"vq.1.0/weight","value":7}"#).unwrap();
    ask(r#"{"op":"move","path":"d.1","to":"w.3"}"#).unwrap();
    ask(r#"{"op":"move","paths":["vq.1.1","queues/vq.1.0"],"to":"w.0"}"#).unwrap();
    ask(r#"{"op":"remove","path":"w.3"}"#).unwrap();
    ask(r#"{"op":"create","path":"workers"}"#).unwrap();
    let queues = [0, 1].map(|queue| QueueName { device: 1, queue });
    let wanted = [
        Operation::Weigh(queues[0], 7),
        Operation::MoveQueues(queues.to_vec(), 3),
        Operation::MoveQueues(vec![queues[1], queues[0]], 0),
        Operation::RemoveWorker(3),
        Operation::AddWorker(WorkerConfig::default()),
    ];
    assert_eq!(daemon.asked(), wanted);
    let errno = |line: &str| ask(line).unwrap_err().errno;
    assert_eq!(errno(r#"{"op":"remove","path":"vq.1.0"}"#), Errno::Unsupported);
    assert_eq!(errno(r#"{"op":"move","path":"d.1","to":"w.9"}"#), Errno::Missing);
    assert_eq!(errno(r#"{"op":"move","path":"w.0","to":"w.3"}"#), Errno::Unsupported);
    assert_eq!(errno(r#"{"op":"move","paths":["vq.1.0","vq.9.0"],"to":"w.3"}"#), Errno::Missing);
    assert_eq!(daemon.asked().len(), wanted.len(), "nothing was asked for by what was refused");
    assert_eq!(errno(r#"{"op":"create","path":"queues"}"#), Errno::Unsupported);
    assert_eq!(errno(r#"{"op":"get","path":"../x"}"#), Errno::Missing);
}

proptest! {
    #[test]
    fn any_line_is_answered(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = RequestLine::parse(&line).request {
            let _ = answer(&MadeUp::default(), &request);
        }
    }

    #[test]
    fn any_path_and_text_is_taken_or_refused(
        op in "ls|get|set|create|remove|move",
        path in "(workers|devices|queues|w|d|vq|[./0-9a-z]){0,6}",
        value in any::<String>(),
    ) {
        let request = match op.as_str() {
            "ls" => ControlRequest::List(path),
            "get" => ControlRequest::Get(path),
            "set" => ControlRequest::Set(path, value),
            "create" => ControlRequest::Create(path, value),
            "remove" => ControlRequest::Remove(path),
            _ => ControlRequest::Move(vec![path], value),
        };
        if let Err(error) = answer(&MadeUp::default(), &request) {
            prop_assert!(!error.message.is_empty() && error.errno.code() > 0);
        }
    }

    #[test]
    fn any_number_is_a_place_or_none(number in any::<u64>()) {
        if let Some(node) = Node::of_number(number) {
            prop_assert_eq!(node.number(), number);
        }
    }
}
