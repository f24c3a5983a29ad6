//! Reads and changes the running daemon with commands, and checks its cleanup.

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::command::command;

fn exitless(arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("NO_COLOR", "1");
    command
}

pub(crate) struct Served {
    directory: tempfile::TempDir,
    child: Child,
}

impl Served {
    pub(crate) fn start(mount: &str, safety: &str) -> Self {
        Self::start_for(mount, "", safety)
    }

    /// Starts a daemon; `group` is a setting that lets the members of a group use it too.
    fn start_for(mount: &str, group: &str, safety: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mount = if mount.is_empty() { PathBuf::new() } else { file(mount) };
        let text = format!(
            "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {:?}\n[control]\nsocket = {:?}\nmount = {mount:?}\n{group}\n\
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

    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let outcome = self.ask(arguments);
        assert_eq!(outcome.status.code(), Some(0), "{}", String::from_utf8_lossy(&outcome.stderr));
        String::from_utf8(outcome.stdout).unwrap()
    }

    fn signal(&mut self, signal: i32) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: kill() has no memory safety requirement, and the child has not been waited for, so its ID
        // is not reused.
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

/// Tests whether a file system is mounted at a path, without accessing it.
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
    assert_eq!(
        (&rates[1]["queues"][0]["queue"], &rates[1]["queues"][0]["state"]),
        (&"vq.0.0".into(), &"idle".into())
    );
    let table = served.told(&["top", "--every", "20ms", "--count", "1"]);
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
    // Whether or not this host has the daemon's own user.
    const AS_ROOT: &str = "user = \"0\"\nseccomp = \"kill\"";
    for (signal, safety) in [
        (libc::SIGTERM, "user = \"61234\""),
        (libc::SIGTERM, AS_ROOT),
        (libc::SIGKILL, ""),
        (libc::SIGTERM, ""),
    ] {
        if !is_root() {
            return;
        }
        let mut served = Served::start("tree", safety);
        let tree = served.path("tree");
        assert_eq!(std::fs::read_to_string(tree.join("devices/d.0/name")).unwrap(), "disk\n");
        std::fs::write(tree.join("workers/create"), "\n").unwrap();
        assert_eq!(served.told(&["get", "w.1/pace/polling"]), "adaptive\n");
        let ended = served.signal(signal);
        if signal == libc::SIGTERM {
            assert_eq!(ended, Some(0), "{safety}");
            assert!(safety != AS_ROOT || !served.path("disk.sock").exists(), "its socket is removed");
        }
        let end = Instant::now() + Duration::from_secs(30);
        while is_mounted(&tree) {
            assert!(Instant::now() < end, "the mount stays after signal {signal} {safety}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The daemon's user in these tests, and some other user.
const USER: u32 = 61_234;
const STRANGER: u32 = 61_235;

/// Tests whether this is root with FUSE, and may mount, which a container's root may not; says so if not.
fn is_root() -> bool {
    let mounts = || {
        let tried = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    // SAFETY: geteuid() has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists() && mounts();
    if !is_root {
        println!("not tested: this needs root who may mount, and /dev/fuse");
    }
    is_root
}

/// The content of a file as read by another user; `None` if that is not permitted.
fn read_as(user: u32, path: &Path) -> Option<String> {
    let outcome = Command::new("cat").arg(path).uid(user).gid(user).output().unwrap();
    outcome.status.success().then(|| String::from_utf8(outcome.stdout).unwrap())
}

#[test]
fn whoever_is_refused_at_the_socket_reads_no_file_of_the_tree() {
    if !is_root() {
        return;
    }
    for (group, may) in [("", false), ("group = \"61235\"", true)] {
        let served = Served::start_for("tree", group, &format!("user = \"{USER}\""));
        std::fs::set_permissions(served.directory.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["configuration", "devices/d.0/socket", "pid"] {
            let file = served.path("tree").join(name);
            assert!(read_as(USER, &file).is_some_and(|text| !text.is_empty()), "{name}");
            assert_eq!(read_as(STRANGER, &file).is_some(), may, "{name}");
            assert!(std::fs::read_to_string(&file).is_ok(), "{name}");
        }
        let mut ask = exitless(&["iocm", "get", "pid", "--socket"]);
        let asked = ask.arg(served.path("control")).uid(STRANGER).gid(STRANGER).output().unwrap();
        assert_eq!(asked.status.success(), may, "{}", String::from_utf8_lossy(&asked.stderr));
    }
}

#[test]
fn what_the_daemons_user_plants_leads_root_nowhere() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let [run, etc] = ["run", "etc"].map(|name| root.path().join(name));
    for (mount, socket, planted) in [
        ("tree", "control", "tree"),
        ("deep/tree", "control", "deep"),
        ("", "deep/control", "deep"),
        ("", "control", "control"),
    ] {
        for directory in [&run, &etc] {
            let _ = std::fs::remove_dir_all(directory);
            std::fs::create_dir(directory).unwrap();
        }
        std::fs::write(etc.join("shadow"), "secret").unwrap();
        chown(&run, Some(USER), Some(USER)).unwrap();
        let target = if planted == "control" { etc.join("shadow") } else { etc.clone() };
        symlink(target, run.join(planted)).unwrap();
        let mount = if mount.is_empty() { PathBuf::new() } else { run.join(mount) };
        let config = root.path().join("iocm.toml");
        let text = format!(
            "[control]\nsocket = {:?}\nmount = {mount:?}\n[safety]\nuser = \"{USER}\"\n",
            run.join(socket)
        );
        std::fs::write(&config, text).unwrap();
        let outcome = exitless(&["iocm", "serve", "--config"]).arg(&config).output().unwrap();
        assert_eq!(outcome.status.code(), Some(125), "{}", String::from_utf8_lossy(&outcome.stderr));
        assert!(!is_mounted(&etc) && !is_mounted(&etc.join("tree")), "{planted}");
        let names: Vec<_> =
            std::fs::read_dir(&etc).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["shadow"], "{planted}");
        let shadow = std::fs::metadata(etc.join("shadow")).unwrap();
        assert_eq!((shadow.uid(), std::fs::metadata(&etc).unwrap().uid()), (0, 0), "{planted}");
    }
}

#[test]
fn the_mount_is_taken_away_and_nothing_else_when_its_directory_is_exchanged() {
    if !is_root() {
        return;
    }
    let mut served = Served::start("above/tree", &format!("user = \"{USER}\""));
    // A user who may write to the directory above puts another of root's mounts at the path.
    let (above, aside, other) = (served.path("above"), served.path("aside"), served.path("other"));
    std::fs::rename(&above, &aside).unwrap();
    std::fs::create_dir_all(above.join("tree")).unwrap();
    std::fs::create_dir(&other).unwrap();
    let mount = |arguments: &[&std::ffi::OsStr]| Command::new("mount").args(arguments).status().unwrap();
    let tree = above.join("tree");
    assert!(mount(&["--bind".as_ref(), other.as_os_str(), tree.as_os_str()]).success());
    served.signal(libc::SIGTERM);
    let end = Instant::now() + Duration::from_secs(30);
    while is_mounted(&aside.join("tree")) {
        assert!(Instant::now() < end, "the mount stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_mounted(&tree), "another mount was taken away");
    assert!(Command::new("umount").arg(&tree).status().unwrap().success());
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
