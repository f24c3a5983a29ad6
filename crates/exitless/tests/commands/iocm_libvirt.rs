//! A real libvirt in session mode, as a user of its own, whose QEMU uses the daemon's devices.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::command::command;
use crate::iocm_device::{Ended, disk, until};

/// A user other than the daemon's: `nobody`, which every host has.
const USER: u32 = 65_534;

/// A libvirtd of one user, with all its files in one directory.
struct Libvirt {
    daemon: Ended,
    directory: PathBuf,
}

impl Libvirt {
    /// Starts libvirtd; `None` if it is not installed.
    fn start(directory: &Path) -> Option<Self> {
        for folder in ["run", "config", "cache"] {
            std::fs::create_dir(directory.join(folder)).unwrap();
            give(&directory.join(folder));
        }
        // Do without virtlogd, which would outlive the test.
        std::fs::create_dir(directory.join("config/libvirt")).unwrap();
        std::fs::write(directory.join("config/libvirt/qemu.conf"), "stdio_handler = \"file\"\n").unwrap();
        give(&directory.join("config/libvirt"));
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let spawned = Self::command(directory, "libvirtd").stderr(log).stdin(Stdio::null()).spawn();
        let daemon = Ended(spawned.ok()?);
        let mut libvirt = Self { daemon, directory: directory.to_owned() };
        until("libvirtd answers", || {
            // The daemon ends at once if setpriv(1) exists but the program does not.
            libvirt.daemon.0.try_wait().unwrap().is_some() || libvirt.virsh(&["version"]).status.success()
        });
        libvirt.daemon.0.try_wait().unwrap().is_none().then_some(libvirt)
    }

    /// A command that runs a program as the user.
    fn command(directory: &Path, program: &str) -> Command {
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let user = USER.to_string();
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", program]);
                command
            }
            false => Command::new(program),
        };
        command
            .env("XDG_RUNTIME_DIR", directory.join("run"))
            .env("XDG_CONFIG_HOME", directory.join("config"));
        command.env("XDG_CACHE_HOME", directory.join("cache")).env("HOME", directory);
        command
    }

    fn virsh(&self, arguments: &[&str]) -> Output {
        let mut command = Self::command(&self.directory, "virsh");
        command.args(["--connect", "qemu:///session"]).args(arguments).output().unwrap()
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        self.virsh(&["destroy", "guest"]);
    }
}

/// Makes the user the owner of a file, if this is root.
fn give(path: &Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// The definition in docs/iocm-host.md, changed to a small machine without hardware virtualization.
fn definition(directory: &Path) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let page = include_str!("../../../../docs/iocm-host.md");
    let shown = |begin: &str| {
        let block = page.split("```xml\n").find(|block| block.starts_with(begin)).unwrap();
        block.split("```").next().unwrap().to_owned()
    };
    let devices = shown("<disk").replace("/run/exitless/web.sock", &at("disk.sock"));
    let devices = devices.replace("/run/exitless/web-net.sock", &at("net.sock"));
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>guest</name>
         <memory unit='MiB'>64</memory>{}<vcpu>2</vcpu>
         <os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}
         <controller type='usb' model='none'/><memballoon model='none'/></devices>
         <qemu:commandline><qemu:arg value='-debugcon'/><qemu:arg value='file:{}'/></qemu:commandline></domain>",
        shown("<memoryBacking"),
        at("told")
    )
}

#[test]
fn a_guest_of_libvirt_starts_from_a_socket_that_was_given_to_its_user() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| directory.path().join(name);
    let Some(libvirt) = Libvirt::start(directory.path()) else {
        return println!("not tested: no libvirtd with a driver of QEMU here (Debian: libvirt-daemon)");
    };
    let capabilities = told(&libvirt.virsh(&["domcapabilities", "--virttype", "qemu", "--arch", "x86_64"]));
    if !capabilities.contains("/usr/bin/qemu-system-x86_64") {
        return println!("not tested: libvirt finds no QEMU: {capabilities}");
    }
    // libvirt's capabilities do not list vhost-user disks, but the shared memory that they need.
    assert!(capabilities.contains("<value>memfd</value>"), "{capabilities}");
    let own = rustix::process::geteuid().as_raw();
    let (user, owner) = if own == 0 { (USER, format!("owner = \"{USER}\"")) } else { (own, String::new()) };
    let config = format!(
        "[sockets]\nmode = \"0600\"\n{owner}
         [[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {:?}\npath = {:?}\nqueues = 2
         [[device]]\nname = \"net\"\ntype = \"net\"\nsocket = {:?}\nqueues = 2
         [control]\nsocket = \"\"\nmount = \"\"\n[safety]\nuser = \"{own}\"\n",
        at("disk.sock"),
        disk(directory.path()),
        at("net.sock"),
    );
    std::fs::write(at("iocm.toml"), config).unwrap();
    let mut command = command(&["iocm", "serve", "--config"]);
    let _daemon = Ended(command.arg(at("iocm.toml")).spawn().unwrap());
    until("the daemon listens", || at("net.sock").exists());
    for socket in ["disk.sock", "net.sock"] {
        until("the socket is given away", || std::fs::metadata(at(socket)).unwrap().uid() == user);
        until("it has its mode", || std::fs::metadata(at(socket)).unwrap().mode() & 0o777 == 0o600);
    }
    std::fs::write(at("guest.xml"), definition(directory.path())).unwrap();
    std::fs::write(at("told"), "").unwrap();
    give(&at("told"));
    let created = libvirt.virsh(&["create", at("guest.xml").to_str().unwrap()]);
    assert!(created.status.success(), "{}", told(&created));
    until("the guest starts from its disk", || std::fs::read(at("told")).is_ok_and(|told| told == b"K"));
}
