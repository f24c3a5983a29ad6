//! Runs the daemon as a unit of a real systemd.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A systemd user instance whose private /run pretends that systemd booted the host.
pub(crate) struct Systemd {
    manager: Child,
    directory: PathBuf,
    /// The unit's name, unique because all these instances share cgroups, and one ends foreign processes in
    /// its unit's cgroup.
    unit: String,
}

impl Systemd {
    /// Starts systemd with a unit for the daemon. The error says why that is not possible here.
    pub(crate) fn start(directory: &Path) -> Result<Self, String> {
        let at = |name: &str| directory.join(name);
        std::fs::create_dir_all(at("config/systemd/user")).unwrap();
        std::fs::create_dir(at("run")).unwrap();
        let own = include_str!("../../../../packaging/systemd/exitless-iocm.service");
        let (of_unit, of_service) = own.split_once("[Service]\n").unwrap();
        let kept = |section: &str, wanted: &[&str]| {
            let kept = section.lines().filter(|line| wanted.iter().any(|key| line.starts_with(key)));
            let kept: Vec<&str> = kept.collect();
            assert_eq!(kept.len(), wanted.len(), "{wanted:?}: {kept:?}");
            kept.join("\n")
        };
        let restarts = ["Restart=", "RestartSec=", "RestartPreventExitStatus="];
        let others = ["Type=", "NotifyAccess=", "WatchdogSec=", "FileDescriptorStoreMax="];
        let unit = format!(
            "[Unit]\n{}\n[Service]\n{}\nStandardError=append:{}\nExecStart={} iocm serve --config {}\n",
            kept(of_unit, &["StartLimitIntervalSec="]),
            kept(of_service, &[restarts.as_slice(), &others].concat()),
            at("log").display(),
            env!("CARGO_BIN_EXE_exitless"),
            at("iocm.toml").display()
        );
        let name = directory.file_name().unwrap().to_string_lossy().replace('.', "-");
        let name = format!("iocm{name}.service");
        std::fs::write(at("config/systemd/user").join(&name), unit).unwrap();
        let begins = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec /usr/lib/systemd/systemd --user";
        let mut command = Command::new("unshare");
        Self::surroundings(&mut command, directory);
        command.args(["--mount", "sh", "-c", begins]).stdout(Stdio::null()).stderr(Stdio::null());
        let manager = command.spawn().map_err(|error| format!("no unshare: {error}"))?;
        let mut systemd = Self { manager, directory: directory.to_owned(), unit: name };
        let end = Instant::now() + Duration::from_secs(60);
        while systemd.ctl(&["show", "--property=Version"]).is_none() {
            if let Some(status) = systemd.manager.try_wait().unwrap() {
                return Err(format!("systemd does not run for a user here: {status}"));
            }
            assert!(Instant::now() < end, "systemd --user did not answer systemctl for 60 s");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(systemd)
    }

    fn surroundings(command: &mut Command, directory: &Path) {
        command
            .env("XDG_RUNTIME_DIR", directory.join("run"))
            .env("XDG_CONFIG_HOME", directory.join("config"));
        command.env_remove("DBUS_SESSION_BUS_ADDRESS");
    }

    /// The output of systemctl(1) for the unit; `None` if it fails.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("systemctl");
        Self::surroundings(&mut command, &self.directory);
        let output = command.arg("--user").args(arguments).arg(&self.unit).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Tests whether the unit has a property `NAME=VALUE`.
    pub(crate) fn has(&self, property: &str) -> bool {
        self.ctl(&["show"]).is_some_and(|shown| shown.lines().any(|line| line == property))
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.directory.join("log")).unwrap_or_default());
            eprintln!("{}", self.ctl(&["status"]).unwrap_or_default());
        }
        self.ctl(&["stop"]);
        let manager = rustix::process::Pid::from_child(&self.manager);
        let _ = rustix::process::kill_process(manager, rustix::process::Signal::TERM);
        let _ = self.manager.wait();
    }
}
