//! The running daemon, looked at and changed by commands, and what is left of it at the end.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn exitless(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

struct Served {
    directory: tempfile::TempDir,
    child: Child,
}

impl Served {
    fn start(mount: &str, safety: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mount = if mount.is_empty() { PathBuf::new() } else { file(mount) };
        let text = format!(
            "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {:?}\n[control]\nsocket = {:?}\nmount = {mount:?}\n\
             [safety]\n{safety}\n",
            file("disk.sock"),
            file("control"),
        );
        std::fs::write(file("iocm.toml"), text).unwrap();
        let config = file("iocm.toml");
        let child =
            exitless(&["iocm", "serve", "--config"]).arg(config).stderr(Stdio::piped()).spawn().unwrap();
        let served = Self { directory, child };
        served.wait();
        served
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.ask(&["get", "pid"]).status.code() != Some(0) {
            assert!(Instant::now() < end, "the daemon does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.path("control");
        exitless(&["iocm"]).args(arguments).arg("--socket").arg(socket).output().unwrap()
    }

    fn told(&self, arguments: &[&str]) -> String {
        let outcome = self.ask(arguments);
        assert_eq!(outcome.status.code(), Some(0), "{}", String::from_utf8_lossy(&outcome.stderr));
        String::from_utf8(outcome.stdout).unwrap()
    }

    fn signal(&mut self, signal: i32) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the child was not waited for, so that the number is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a file system is mounted there, without looking into it.
fn is_mounted(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} ", path.display()))
}

#[test]
fn commands_look_at_the_daemon_and_change_it() {
    let mut served = Served::start("", "seccomp = \"kill\"");
    assert!(served.told(&["ls"]).starts_with("workers/\ndevices/\nqueues/\n"));
    assert_eq!(served.told(&["get", "d.0/name"]), "disk\n");
    assert_eq!(served.told(&["create", "workers", "{ polling = \"never\" }"]), "w.1\n");
    served.told(&["set", "w.1/cpu", "0"]);
    served.told(&["move", "d.0", "w.1"]);
    let both = served.told(&["get", "vq.0.0/worker", "w.1/pace"]);
    assert!(both.starts_with("vq.0.0/worker w.1\n") && both.contains("w.1/pace/polling never\n"), "{both}");
    let json: serde_json::Value = serde_json::from_str(&served.told(&["get", "d.0", "--json"])).unwrap();
    assert_eq!(json["d.0"]["limits"]["requests_per_second"], 0);
    let rates = served.told(&["watch", "--every", "20ms", "--count", "2", "--json"]);
    let rates: Vec<serde_json::Value> =
        rates.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rates.len(), &rates[1]["devices"][0]["requests_per_second"]), (2, &0.0.into()));
    let table = served.told(&["watch", "--every", "20ms", "--count", "1"]);
    assert!(table.contains("w.1") && table.lines().all(|line| line.chars().count() <= 100), "{table}");
    served.told(&["remove", "w.0"]);
    for (arguments, status, word) in [
        (&["remove", "w.1"][..], 1, "last"),
        (&["get", "w.7/cpu"], 2, "w.7"),
        (&["set", "w.1/cpu", "fast"], 2, "fast"),
        (&["set", "w.1/pid", "1"], 1, "only be read"),
    ] {
        let outcome = served.ask(arguments);
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.code() == Some(status) && told.contains(word), "{arguments:?}: {told}");
    }
    assert_eq!(served.signal(libc::SIGTERM), Some(0));
    assert!(!served.path("control").exists() && !served.path("disk.sock").exists());
    let outcome = served.ask(&["ls"]);
    assert_eq!(outcome.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("iocm serve"));
}

#[test]
fn a_mount_is_taken_away_after_the_daemon_however_it_ends() {
    for (signal, safety) in [(libc::SIGTERM, "user = \"61234\""), (libc::SIGKILL, ""), (libc::SIGTERM, "")] {
        // SAFETY: it changes nothing.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || !Path::new("/dev/fuse").exists() {
            println!("not tested: mounting needs root and /dev/fuse");
            return;
        }
        let mut served = Served::start("tree", safety);
        let tree = served.path("tree");
        assert_eq!(std::fs::read_to_string(tree.join("devices/d.0/name")).unwrap(), "disk\n");
        std::fs::write(tree.join("workers/create"), "\n").unwrap();
        assert_eq!(served.told(&["get", "w.1/pace/polling"]), "adaptive\n");
        served.signal(signal);
        let end = Instant::now() + Duration::from_secs(30);
        while is_mounted(&tree) {
            assert!(Instant::now() < end, "the mount stays after signal {signal} {safety}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_user_who_is_not_there_makes_no_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("iocm.toml");
    std::fs::write(&config, "[safety]\nuser = \"nobody-at-all\"\n").unwrap();
    let mut child =
        exitless(&["iocm", "serve", "--config"]).arg(&config).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{told}");
    assert!(told.contains("nobody-at-all"), "{told}");
}
