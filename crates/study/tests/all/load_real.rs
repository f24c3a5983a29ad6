//! Loads against real servers, where they are installed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use load::{HttpLoad, LoadResult, MqttLoad};
use study::workload::{Scene, WorkloadPlan};

/// A server that is ended when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, not SIGKILL: nginx then ends its workers.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Starts the server with the steps of a workload, on a free port in `folder`.
fn serve(plan: &str, port: &str, program: &str, folder: &Path) -> Option<(Server, SocketAddr)> {
    if !Path::new("/usr/sbin").join(program).exists() {
        println!("not tested: {program} is not installed");
        return None;
    }
    let plan: WorkloadPlan = toml::from_str(plan).unwrap();
    let steps = plan.steps(&Scene::default());
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::ports::free(1)));
    let start = |script: &str| {
        let script = script.replace(port, &free.port().to_string());
        Command::new("sh").arg("-c").arg(script).env("TMPDIR", folder).stderr(Stdio::null()).spawn().unwrap()
    };
    assert!(start(&steps.prepare[0].script).wait().unwrap().success());
    let server = Server(start(&steps.serve[0].script));
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(free).is_err() {
        assert!(Instant::now() < until, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((server, free))
}

fn sound(outcome: &LoadResult) {
    println!("{}", serde_json::to_string(outcome).unwrap());
    assert_eq!((outcome.due, outcome.failed_connections), (1000, 0), "{outcome:?}");
    assert_eq!((outcome.answered, outcome.refused), (outcome.sent, 0), "{outcome:?}");
    let latency = outcome.latency.unwrap();
    assert!(latency.p50 > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.max, "{latency:?}");
}

#[test]
fn mosquitto_delivers_every_message() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "name = \"m\"\ntool = \"mqtt\"\nconnections = 1\nrate = 1";
    let Some((_server, broker)) = serve(plan, "1883", "mosquitto", folder.path()) else { return };
    for acknowledged in [false, true] {
        let load = MqttLoad {
            brokers: vec![broker],
            connections: 200,
            subscribers: 4,
            rate: 1000.0,
            duration: Duration::from_secs(1),
            message_size: 64,
            acknowledged,
            threads: 2,
            sources: Vec::new(),
        };
        let outcome = load.run().unwrap();
        sound(&outcome);
        assert_eq!(outcome.sent, 1000, "{outcome:?}");
    }
}

#[test]
fn nginx_answers_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "name = \"h\"\ntool = \"http\"\ngenerator = \"exitless\"\nrate = 1";
    let Some((_server, server)) = serve(plan, "8080", "nginx", folder.path()) else { return };
    let load = HttpLoad {
        server,
        host: server.to_string(),
        path: "/document".to_owned(),
        connections: 20,
        rate: 1000.0,
        duration: Duration::from_secs(1),
        threads: 2,
        sources: Vec::new(),
    };
    let outcome = load.run().unwrap();
    sound(&outcome);
    // What is due at the end while all connections are busy is not sent, and is lost.
    let is_all_else_lost = |load: &LoadResult| load.sent > 0 && load.lost == 1000 - load.sent;
    assert!(is_all_else_lost(&outcome), "{outcome:?}");
    let own = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let size = fs::metadata(own.join("h-0/html/document")).unwrap().len();
    assert!(outcome.bytes >= outcome.answered_in_time * size, "{outcome:?}");
    let missing = HttpLoad { path: "/missing".to_owned(), ..load }.run().unwrap();
    assert_eq!((missing.due, missing.failed_connections), (1000, 0), "{missing:?}");
    assert_eq!((missing.answered, missing.refused), (0, missing.sent), "{missing:?}");
    assert!(is_all_else_lost(&missing), "{missing:?}");
}
