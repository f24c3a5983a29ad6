//! A daemon without privileges: what it can no longer do, and what it still can.

use super::daemon::Daemon;
use iocm::control::Errno;
use iocm::control::client::ClientError;
use serde_json::json;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A user that owns nothing.
const USER: u32 = 61_234;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that the user may write to, with a disk that only root may open.
fn prepared() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("own");
    fs::create_dir(&own).unwrap();
    if is_root() {
        rustix::fs::chown(&own, Some(rustix::fs::Uid::from_raw(USER)), None).unwrap();
    }
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    File::create(directory.path().join("disk")).unwrap().set_len(1 << 20).unwrap();
    fs::set_permissions(directory.path().join("disk"), Permissions::from_mode(0o600)).unwrap();
    directory
}

fn config(directory: &Path) -> String {
    let user = if is_root() { format!("user = \"{USER}\"\n") } else { String::new() };
    config_with(directory, &user)
}

fn config_with(directory: &Path, user: &str) -> String {
    format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {:?}\npath = {:?}\n\
         [control]\nsocket = {:?}\nmount = \"\"\n[safety]\nseccomp = \"kill\"\n{user}",
        directory.join("own/disk.sock"),
        directory.join("disk"),
        directory.join("own/control"),
    )
}

/// The first word of a field in `/proc/PID/task/TID/status`.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
}

/// No user is named, and the host has a user `exitless`, or not.
pub(crate) fn usual_user() {
    if !is_root() {
        println!("not tested: only root can become another user");
        return;
    }
    let real = fs::read_to_string("/etc/passwd").unwrap();
    let others: String =
        real.lines().filter(|line| !line.starts_with("exitless:")).map(|line| format!("{line}\n")).collect();
    let with = format!("{others}exitless:x:{USER}:{USER}::/:/usr/sbin/nologin\n");
    for (users, wanted) in [(with, USER), (others, 0)] {
        let directory = prepared();
        let path = directory.path().join("passwd");
        fs::write(&path, users).unwrap();
        // Only the daemon sees these users.
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"",
            "sh",
        ]);
        command.arg(&path).arg(std::env::current_exe().unwrap());
        let mut daemon =
            Daemon(command.args(["daemon", &config_with(directory.path(), "")]).spawn().unwrap());
        daemon.client(&directory.path().join("own/control")).get("pid").unwrap();
        for task in fs::read_dir(format!("/proc/{}/task", daemon.0.id())).unwrap() {
            let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
            assert_eq!(
                (field(&status, "Uid"), field(&status, "Gid")),
                (wanted.to_string(), wanted.to_string())
            );
            assert_eq!(u64::from_str_radix(&field(&status, "CapEff"), 16), Ok(0));
        }
    }
}

pub(crate) fn given_away() {
    let directory = prepared();
    let mut daemon = Daemon::start(&config(directory.path()));
    daemon.client(&directory.path().join("own/control")).get("pid").unwrap();
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.0.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        // The thread that served a client may end meanwhile.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| field(&status, name);
        for sets in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&field(sets), 16), Ok(0), "{sets}");
        }
        assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
        if is_root() {
            assert_eq!((field("Uid"), field("Gid")), (USER.to_string(), USER.to_string()));
            assert_eq!(u64::from_str_radix(&field("CapBnd"), 16), Ok(0));
        }
        threads += 1;
    }
    assert!(threads >= 4, "the main one, a worker, a front-end's and the control socket's: {threads}");
    let own = rustix::thread::capabilities(None).unwrap().effective;
    if own.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.0.id())).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max nice priority")).unwrap();
        let soft = limit.split_whitespace().next().unwrap().parse::<i32>().unwrap();
        let nice = rustix::process::getpriority_process(None).unwrap();
        assert!(soft >= (29 - nice).min(40), "workers may have the weight of eight threads: {limit}");
    }
}

pub(crate) fn changes() {
    let directory = prepared();
    // As the packaged unit has it.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o007));
    let mut daemon = Daemon::start(&config(directory.path()));
    rustix::process::umask(umask);
    let mut client = daemon.client(&directory.path().join("own/control"));
    let path = directory.path().join("own/more");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    if is_root() {
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(USER)), None).unwrap();
    }
    let socket = directory.path().join("own/more.sock");
    let line = json!({
        "name": "more", "type": "block", "socket": socket, "path": path, "socket-mode": "0666"
    });
    assert_eq!(client.create("devices", &line.to_string()).unwrap(), "d.1");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660, "less the umask");
    let given =
        json!({ "name": "x", "type": "block", "socket": "/tmp/x", "path": path, "socket-group": "0" });
    match client.create("devices", &given.to_string()) {
        Err(ClientError::Refused(refusal)) => assert!(refusal.message.contains("while the daemon starts")),
        other => panic!("{other:?}"),
    }
    let apart = json!({
        "name": "net", "type": "net", "socket": directory.path().join("own/net.sock"),
        "backend": { "tap": "t0", "netns": "blue" }
    });
    match client.create("devices", &apart.to_string()) {
        Err(ClientError::Refused(refusal)) => assert!(refusal.message.contains("while the daemon starts")),
        other => panic!("{other:?}"),
    }
    // A directory of root's group that the group may write to: its access control list is looked at.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o775)).unwrap();
    let below = json!({ "name": "below", "type": "block", "socket": shared.join("sock") });
    let _ = client.create("devices", &below.to_string());
    assert!(daemon.0.try_wait().unwrap().is_none(), "no system call was beyond what is allowed");
    assert_eq!(client.create("workers", "{ cpus = \"0\" }").unwrap(), "w.1");
    client.set("w.1/cpu", "all").unwrap();
    client.set("w.1/pace/polling", "never").unwrap();
    let nice = rustix::process::getpriority_process(None).unwrap();
    assert_eq!(client.get("w.1/nice").unwrap(), nice.to_string());
    client.move_to(&["d.0"], "w.1").unwrap();
    client.set("d.1/size", "2097152").unwrap();
    client.set("d.0/size", "2097152").unwrap();
    client.remove("w.0").unwrap();
    client.remove("d.1").unwrap();
    assert!(!socket.exists());
    assert!(daemon.0.try_wait().unwrap().is_none(), "no system call was beyond what is allowed");
}

pub(crate) fn refused() {
    if !is_root() {
        println!("not tested: only root can become another user");
        return;
    }
    let directory = prepared();
    let mut daemon = Daemon::start(&config(directory.path()));
    let mut client = daemon.client(&directory.path().join("own/control"));
    let mut errno = |socket: &str, path: &str| {
        let [socket, path] = [socket, path].map(|name| directory.path().join(name));
        let line = json!({ "name": "x", "type": "block", "socket": socket, "path": path }).to_string();
        match client.create("devices", &line) {
            Err(ClientError::Refused(refusal)) => (refusal.errno, refusal.message),
            other => panic!("{other:?}"),
        }
    };
    let (kind, message) = errno("own/x.sock", "disk");
    assert_eq!(kind, Errno::Denied, "{message}");
    assert!(message.contains("this user may use"), "{message}");
    File::create(directory.path().join("own/x")).unwrap().set_len(4096).unwrap();
    fs::set_permissions(directory.path().join("own/x"), Permissions::from_mode(0o666)).unwrap();
    assert_eq!(errno("x.sock", "own/x").0, Errno::Denied, "the directory is not its own");
    assert!(daemon.0.try_wait().unwrap().is_none());
}
