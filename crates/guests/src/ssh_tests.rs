use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::testing::{LONG, beyond_limits, ends, patience};

/// A server on the loopback interface with its own keys. The test has the socket, so that nobody else gets the port, and
/// starts an sshd for each connection. They are killed when this is dropped.
struct Server {
    connections: Arc<Mutex<Vec<Child>>>,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in self.connections.lock().unwrap().iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Server {
    /// Starts a server; `None`, with the reason printed, if sshd cannot run here.
    fn start() -> Option<Self> {
        const SSHD: &str = "/usr/sbin/sshd";
        if !Path::new(SSHD).exists() {
            println!("not tested: there is no {SSHD}");
            return None;
        }
        // sshd needs its privilege separation directory, which its service would have created.
        if !Path::new("/run/sshd").exists() && fs::create_dir("/run/sshd").is_err() {
            println!("not tested: /run/sshd is not there and this user cannot make it");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        for key in ["host", "user"] {
            let file = folder.path().join(key);
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
            assert!(made.unwrap().success());
        }
        fs::copy(folder.path().join("user.pub"), folder.path().join("authorized")).unwrap();
        let at = folder.path().display();
        let configuration = format!(
            "HostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
        );
        let (config, log) = (folder.path().join("config"), folder.path().join("log"));
        fs::write(&config, configuration).unwrap();
        let log = fs::File::create(log).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<Child>>>::default();
        let started = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (OwnedFd::from(stream.unwrap()), log.try_clone().unwrap());
                let mut sshd = Command::new(SSHD);
                sshd.args(["-i", "-e", "-f"]).arg(&config).stderr(log);
                let child = sshd.stdin(stream.try_clone().unwrap()).stdout(stream).spawn().unwrap();
                started.lock().unwrap().push(child);
            }
        });
        Some(Self { connections, folder, port })
    }

    fn access(&self) -> SshAccess {
        SshAccess {
            user: None,
            key: Some(self.folder.path().join("user")),
            port: Some(self.port),
            options: vec![
                format!("UserKnownHostsFile={}/known", self.folder.path().display()),
                "StrictHostKeyChecking=accept-new".to_owned(),
                "IdentitiesOnly=yes".to_owned(),
            ],
        }
    }

    fn guest(&self) -> SshGuest {
        SshGuest::connect("there", "127.0.0.1", &self.access(), patience(LONG)).unwrap_or_else(|error| {
            panic!("{error}\n{}", fs::read_to_string(self.folder.path().join("log")).unwrap())
        })
    }
}

#[test]
fn scripts_run_there_with_their_quotes_and_outputs() {
    let Some(server) = Server::start() else { return };
    let mut guest = server.guest();
    assert_eq!(guest.address(), Some([127, 0, 0, 1].into()));
    assert_eq!(guest.host_address(), Some([127, 0, 0, 1].into()));
    assert!(guest.vcpus() > 0);
    let output = guest.run("x='a  \"b\"'; echo \"$x\"; echo wrong >&2; exit 5", LONG).unwrap();
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (5, "a  \"b\"\n", "wrong\n"));
}

#[test]
fn a_release_starts_what_waits_there_and_a_stop_ends_it_there() {
    let Some(server) = Server::start() else { return };
    let mut guest = server.guest();
    let mark = server.folder.path().join("mark");
    let script = format!("echo $$ > {}; sleep 100", mark.display());
    let mut armed = guest.arm(&script, LONG).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(!mark.exists());
    armed.release().unwrap();
    let begun = Instant::now();
    while !fs::read_to_string(&mark).is_ok_and(|text| text.ends_with('\n')) {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(10));
    }
    let finished = armed.finish(&AtomicBool::new(true)).unwrap();
    assert_ne!(finished.output.status, 0);
    let pid = fs::read_to_string(&mark).unwrap();
    assert!(ends(&pid));
}

#[test]
fn a_server_that_is_not_there_is_named_with_what_ssh_said() {
    if Command::new("ssh").arg("-V").output().is_err() {
        println!("not tested: there is no ssh");
        return;
    }
    let access = SshAccess { port: Some(1), ..SshAccess::default() };
    let refusal =
        SshGuest::connect("there", "127.0.0.1", &access, patience(Duration::ZERO)).unwrap_err().to_string();
    assert!(refusal.contains("ssh to 127.0.0.1 failed") && refusal.contains("refused"), "{refusal}");
}

/// A guest through a mock of ssh, which replaces lines that begin with a pattern, and runs the others on this machine.
fn mock(folder: &Path, beginning: &str, instead: &str) -> Result<SshGuest, GuestError> {
    mock_within(folder, beginning, instead, patience(LONG))
}

/// As [`mock`], with the time that the machine has to answer.
fn mock_within(
    folder: &Path,
    beginning: &str,
    instead: &str,
    patience: Patience<'_>,
) -> Result<SshGuest, GuestError> {
    let program = folder.join("ssh");
    let text = format!(
        "#!/bin/sh\nfor line; do :; done\ncase \"$*\" in *\" -O \"* | *\" -G \"*) exit ;; esac\n\
         case \"$line\" in {beginning}*) echo $$ > {}/pid; {instead} ;; esac\nexec sh -c \"$line\"\n",
        folder.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    SshGuest::connect_by(program, "there", "10.0.0.9", &SshAccess::default(), patience)
}

#[test]
fn a_machine_that_holds_a_command_or_prints_without_end_is_not_waited_for() {
    for (instead, limit, why) in
        [("exec sleep 1000", Duration::ZERO, "after 2.0 s"), ("exec yes", LONG, "more than 64 KiB")]
    {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let refusal = mock_within(folder.path(), "*nproc", instead, patience(limit)).unwrap_err().to_string();
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
        let known = ["there", "`ssh 10.0.0.9 nproc`", why].iter().all(|word| refusal.contains(word));
        assert!(known, "{refusal}");
        assert!(ends(&fs::read_to_string(folder.path().join("pid")).unwrap()));
    }
}

#[test]
fn any_login_shell_reads_lines_as_words_and_quotes_and_kills_nothing_itself() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    let mut guest = mock(folder.path(), "", &format!("echo \"$line\" >> {}", lines.display())).unwrap();
    let mut armed = guest.arm("sleep 1000", LONG).unwrap();
    armed.release().unwrap();
    armed.finish(&AtomicBool::new(true)).unwrap();
    let lines = fs::read_to_string(&lines).unwrap();
    let all = ["'nproc; ", "sh 'sleep 1000'\n", "'kill -TERM -", "'read -r up "];
    assert!(all.iter().all(|part| lines.contains(part)), "{lines}");
    let unquoted: String = lines.split('\'').step_by(2).collect();
    assert!(unquoted.chars().all(|c| c.is_ascii_alphanumeric() || " -\n".contains(c)), "{lines}");
}

#[test]
fn a_login_that_hangs_ends_with_a_signal_or_the_limit_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, ending, pid) = (Instant::now(), AtomicBool::new(false), folder.path().join("pid"));
    let hour = Patience { limit: Duration::from_secs(3600), ending: &ending };
    std::thread::scope(|scope| {
        let connected =
            scope.spawn(|| mock_within(folder.path(), "*nproc", "exec sleep 1000", hour).map(drop));
        let is_held = || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
        while !is_held() && begun.elapsed() < LONG / 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        ending.store(true, Ordering::Relaxed);
        let refusal = connected.join().unwrap().unwrap_err().to_string();
        assert!(refusal.contains("`ssh 10.0.0.9 nproc`"), "{refusal}");
    });
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert!(ends(&fs::read_to_string(&pid).unwrap()));
}

#[test]
fn a_machine_that_holds_the_end_of_a_script_holds_no_study() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = mock(folder.path(), "*\\'kill", "exec sleep 1000").unwrap();
    let mut armed = guest.arm("sleep 1000", LONG).unwrap();
    armed.release().unwrap();
    let begun = Instant::now();
    let finished = armed.finish(&AtomicBool::new(true)).unwrap();
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_ne!(finished.output.status, 0);
    assert!(ends(&fs::read_to_string(folder.path().join("pid")).unwrap()));
}

#[test]
fn what_a_script_started_there_is_ended_although_it_outlives_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let mut guest = mock(folder.path(), "nothing", "exit").unwrap();
    let outlives = "(trap '' TERM; exec sleep 1000) > /dev/null 2>&1 &";
    let script = format!("{outlives} echo $! > {}; wait", mark.display());
    let pid = beyond_limits(&mark, |limit| guest.run(&script, limit).unwrap_err());
    assert!(ends(&pid));
}

#[test]
fn the_control_socket_has_a_short_path() {
    let place = |length: usize| PathBuf::from(format!("/{}", "x".repeat(length - 1)));
    assert_eq!(place_of_control(place(LONGEST_PLACE)), place(LONGEST_PLACE));
    assert_eq!(place_of_control(place(LONGEST_PLACE + 1)), Path::new("/tmp"));
}

#[test]
fn the_control_socket_has_a_path_that_ssh_takes_as_it_is() {
    let plain = PathBuf::from("/var/tmp/a-b_c.d");
    assert_eq!(place_of_control(plain.clone()), plain);
    for path in ["/tmp/a b", "/tmp/100%", "/tmp/\"a", "/tmp/a\\b", "/tmp/ä"] {
        assert_eq!(place_of_control(path.into()), Path::new("/tmp"), "{path}");
    }
}
