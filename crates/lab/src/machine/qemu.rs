//! QEMU's command line, and its snapshots: a saved state refers to a separate file with the memory.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Machine;
use crate::assemble::{STOCK_QEMU, TOOLS};
use crate::device;
use crate::emulator_time::EmulatorTime;
use crate::error::Error;
use crate::guest_image::GuestImage;
use crate::job::{PORT_NAME, STOP_PORT_NAME};
use crate::process::{PowerOn, Process};
use crate::tools::{Invocation, LIBRARIES};
use crate::watch::Watch;
use crate::xen_boot;

/// A single thread, and a clock that advances by a fixed time per instruction and jumps ahead when all CPUs
/// are idle: time is counted in instructions.
const ONE_THREAD: [&str; 2] = ["-accel", "tcg,thread=single"];
/// Each CPU has its own clock. None gets ahead of another by more than the quantum, in instructions; while
/// they send each other IPIs, by more than the smaller quantum. Two busy CPUs are emulated 1.6 times as fast
/// as with a constant 64.
const CLOCKS: &str = ",quantum=512,ipi-quantum=64";
/// All CPUs share one clock. It takes half the time to emulate, but two busy CPUs run at half speed each.
/// Used for booting Xen.
const SHARED_CLOCK: &str = "";
/// The CPUs of KVM hosts, without and with AVIC. The latter resembles Zen 4, because since 6.17 Linux uses
/// all of AVIC only there. It has virtual GIF: without it, KVM cannot hold back AVIC's interrupts while a
/// nested hypervisor has cleared GIF.
const SVM_CPU: &str = "EPYC,+svm";
const AVIC_CPU: &str = "EPYC,family=25,model=17,stepping=1,+svm,+avic,+x2avic,+vgif";
/// The machine's clock at power-on.
const START: &str = "base=2026-01-01T00:00:00,clock=vm";

// File names in the folder of a run or a snapshot. Names, not paths: QEMU treats a comma in a path as the end
// of the value.
const MEMORY: &str = "memory";
const STATE: &str = "state";
const CONTROL: &str = "qmp";
const CONTROLLED: [&str; 2] = ["-qmp", "unix:qmp,server=on,wait=off"];
const OVERLAY: &str = "disk.qcow2";
/// The character device of the port at which a machine stops to be saved.
const STOP: &str = "stop";

/// The limit on QEMU's time ([`EmulatorTime`]) for writing or reading a state.
const SAVE_LIMIT: Duration = Duration::from_secs(120);
/// The limit on QEMU's time for opening its control channel.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// The interval at which waits for QEMU check the stop flag.
const TURN: Duration = Duration::from_millis(100);
/// The longest line that is read, in bytes; QEMU's answers have some hundred.
const LONGEST_LINE: u64 = 1 << 20;

/// A machine whose memory is in a file of its own, so that only the state of devices has to be written.
#[derive(Debug)]
pub(crate) struct Saving {
    folder: PathBuf,
    saved: PathBuf,
    /// The snapshot includes the disk's changes.
    overlay: bool,
}

impl Machine<'_> {
    pub(super) fn boot_qemu(
        &self,
        folder: &Path,
        initial_ram_disk: &[u8],
        saved: Option<&Path>,
    ) -> Result<PowerOn, Error> {
        let initrd = folder.join("initrd");
        fs::write(&initrd, initial_ram_disk).map_err(Error::file("Could not write", &initrd))?;
        let mut invocation = self.qemu(folder, saved.is_some())?;
        invocation.arg("-m").arg(self.memory_mib.to_string());
        let command_line = self.command_line();
        match self.xen {
            Some(xen) => {
                let arguments = self.hypervisor_arguments();
                xen_boot::arguments(&mut invocation, xen, folder, &arguments, &initrd, &command_line)?;
            }
            None => {
                invocation.arg("-kernel").arg(self.kernel()).arg("-initrd").arg(initrd);
                invocation.arg("-append").arg(command_line);
            }
        }
        if let Some(saved) = saved {
            // QEMU would create the file, but not at the end of a symbolic link.
            let memory = saved.join(MEMORY);
            fs::File::create(&memory).map_err(Error::file("Could not make", &memory))?;
            self.memory_in_file(&mut invocation, folder, &saved.join(MEMORY), "on")?;
            invocation.args(CONTROLLED);
            if self.keeps_disk() {
                // Do not start yet: first redirect the disk's changes to a file.
                invocation.arg("-S");
            }
        }
        // Let QEMU discard the disk's changes at its end, unless they are to be saved.
        let forgets = saved.is_none() || !self.keeps_disk();
        self.disks(&mut invocation, (&self.disk(), "raw"), forgets);
        Ok(PowerOn { invocation, console: folder.join("console"), log: None })
    }

    pub(super) fn restore_qemu(&self, folder: &Path, saved: &Path) -> Result<PowerOn, Error> {
        let mut invocation = self.qemu(folder, false)?;
        invocation.arg("-m").arg(self.memory_mib.to_string());
        self.memory_in_file(&mut invocation, folder, &saved.join(MEMORY), "off")?;
        let state = folder.join(STATE);
        symlink(saved.join(STATE), &state).map_err(Error::file("Could not link", &state))?;
        invocation.args(["-incoming", "defer"]).args(CONTROLLED);
        let overlay = saved.join(OVERLAY);
        let disk = self.disk();
        let disk = if self.keeps_disk() { (overlay.as_path(), "qcow2") } else { (disk.as_path(), "raw") };
        self.disks(&mut invocation, disk, true);
        Ok(PowerOn { invocation, console: folder.join("console"), log: None })
    }

    /// The arguments that boots and restores share. With `stops`, the machine stops when the agent opens the
    /// stop port.
    fn qemu(&self, folder: &Path, stops: bool) -> Result<Invocation, Error> {
        let tools = self.image.path(TOOLS);
        let mut invocation = match &self.emulator.program {
            Some(program) => Invocation::of_host(program),
            None => {
                let mut own = Invocation::of_tree(&tools, STOCK_QEMU);
                own.env("QEMU_MODULE_DIR", tools.join(LIBRARIES).join("qemu"));
                own
            }
        };
        invocation.arg("-L").arg(tools.join("usr/share/qemu")).arg("-L").arg(tools.join("usr/share/seabios"));
        invocation.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        invocation.args(["-machine", "q35"]);
        if self.emulator.patched {
            let clock = if self.xen.is_some() { SHARED_CLOCK } else { CLOCKS };
            invocation.args(ONE_THREAD).arg("-icount");
            invocation.arg(format!("shift={},sleep=off{clock}", self.speed.icount_shift()));
            invocation.args(["-rtc", START, "-seed", "1"]);
        } else {
            invocation.args(["-accel", "tcg,thread=multi"]);
        }
        invocation.arg("-smp").arg(self.cpus.to_string());
        let cpu = match (self.xen, self.lab.apicv) {
            (Some(_), _) => xen_boot::QEMU_CPU,
            (None, true) => AVIC_CPU,
            (None, false) => SVM_CPU,
        };
        invocation.args(["-cpu", cpu]);
        invocation.args(["-serial", "file:console", "-serial"]);
        match &self.terminal {
            Some(terminal) => invocation.arg(terminal),
            None => invocation.arg("null"),
        };
        invocation.args([
            "-chardev",
            "stdio,id=frames,signal=off",
            "-device",
            "virtio-serial-pci,ioeventfd=off",
        ]);
        // Debian's QEMU can neither wait for the input nor charge for an exit.
        let expected =
            if self.emulator.patched { format!(",expected-input={}", self.input) } else { String::new() };
        invocation.arg("-device").arg(format!("virtserialport,chardev=frames,name={PORT_NAME}{expected}"));
        if self.emulator.patched {
            invocation.args(["-device", "vmexit-cost"]);
            // The port waits for a byte that never comes, so the machine stops at an exact instruction. A QMP
            // command would stop it anywhere.
            let expected = u8::from(stops);
            invocation.args(["-chardev", &format!("null,id={STOP}"), "-device"]).arg(format!(
                "virtserialport,chardev={STOP},name={STOP_PORT_NAME},expected-input={expected}"
            ));
        }
        device::add(&mut invocation, self.devices, self.lab.apicv);
        // QEMU creates the file with a run's changes to a disk here.
        invocation.env("TMPDIR", folder);
        Ok(invocation)
    }

    fn memory_in_file(
        &self,
        invocation: &mut Invocation,
        folder: &Path,
        file: &Path,
        share: &str,
    ) -> Result<(), Error> {
        let link = folder.join(MEMORY);
        symlink(file, &link).map_err(Error::file("Could not link", &link))?;
        invocation.args(["-machine", "memory-backend=memory", "-object"]).arg(format!(
            "memory-backend-file,id=memory,size={}M,mem-path={MEMORY},share={share}",
            self.memory_mib
        ));
        Ok(())
    }

    fn disks(&self, invocation: &mut Invocation, own: (&Path, &str), forgets: bool) {
        if !self.with_disk {
            return;
        }
        let snapshot = if forgets { "on" } else { "off" };
        let own = (own.0, format!("id=disk,format={},snapshot={snapshot},file.locking=off", own.1));
        let guest = self.guest.as_ref().map(GuestImage::root);
        let guest = guest.as_deref().map(|guest| (guest, "id=guest,format=raw,snapshot=on".to_owned()));
        for ((name, slot), (file, options)) in
            [("disk", 8), ("guest", 9)].into_iter().zip([own].into_iter().chain(guest))
        {
            invocation.arg("-drive").arg(drive(file, &options));
            // Without an ioeventfd, the CPU that kicks submits the request itself. The main loop would do it
            // at a time that depends on the host.
            invocation.arg("-device").arg(format!(
                "virtio-blk-pci,drive={name},serial={name},ioeventfd=off,bus=pcie.0,addr={slot:#x}"
            ));
        }
    }
}

/// The value of `-drive` for a disk.
fn drive(file: &Path, options: &str) -> String {
    // QEMU reads a doubled comma as one comma.
    let file = file.display().to_string().replace(',', ",,");
    // If the cache's file system is full, the emulated host gets an error. By default QEMU would stop the host
    // until somebody tells it to go on, and nobody would.
    format!("file={file},if=none,werror=report,{options}")
}

impl Saving {
    pub(super) fn new(folder: &Path, saved: &Path, overlay: bool) -> Self {
        Self { folder: folder.to_owned(), saved: saved.to_owned(), overlay }
    }

    /// If the snapshot includes the disk, redirects its changes to a file and starts the machine.
    pub(crate) fn begin(&self, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
        if !self.overlay {
            return Ok(());
        }
        self.keep_changes_apart(process, watch.stop).map_err(|error| watch.explain(process, error))
    }

    fn keep_changes_apart(&self, process: &mut Process, stop: &AtomicBool) -> Result<(), Error> {
        let mut control = Control::open(&self.folder, process, stop)?;
        let overlay = self.saved.join(OVERLAY);
        let arguments = json!({ "device": "disk", "snapshot-file": overlay, "format": "qcow2" });
        control.execute("blockdev-snapshot-sync", arguments)?;
        control.execute("cont", json!({})).map(drop)
    }

    pub(crate) fn finish(self, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
        self.write_state(process, watch.stop).map_err(|error| watch.explain(process, error))?;
        if process.wait_its_time(SAVE_LIMIT, watch.stop)?.is_none() {
            return Err(watch.died(process, "it did not end".to_owned()));
        }
        let (state, place) = (self.folder.join(STATE), self.saved.join(STATE));
        fs::rename(&state, &place).map_err(Error::file("Could not keep", &place))
    }

    fn write_state(&self, process: &mut Process, stop: &AtomicBool) -> Result<(), Error> {
        let mut control = Control::open(&self.folder, process, stop)?;
        control.memory_is_apart()?;
        control.wait_for("query-chardev", |ports| {
            let stop = ports.as_array()?.iter().find(|port| port["label"] == STOP)?;
            (stop["frontend-open"] == true).then_some(true)
        })?;
        control.execute("stop", json!({}))?;
        control.execute("migrate", json!({ "uri": format!("file:{STATE}") }))?;
        control.wait_for("query-migrate", |answer| match answer["status"].as_str()? {
            "completed" => Some(true),
            "failed" | "cancelled" => Some(false),
            _ => None,
        })?;
        control.execute("quit", json!({})).map(drop)
    }
}

/// Resumes the emulator in `folder`, which was started for a restore, from the saved state.
pub(super) fn resume(folder: &Path, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
    read_state(folder, process, watch.stop).map_err(|error| watch.explain(process, error))
}

fn read_state(folder: &Path, process: &mut Process, stop: &AtomicBool) -> Result<(), Error> {
    let mut control = Control::open(folder, process, stop)?;
    control.memory_is_apart()?;
    control.execute("migrate-incoming", json!({ "uri": format!("file:{STATE}") }))?;
    control.wait_for("query-status", |answer| match answer["status"].as_str()? {
        "inmigrate" => None,
        status => Some(status == "paused"),
    })?;
    control.execute("cont", json!({})).map(drop)
}

/// QEMU's control channel (QEMU Machine Protocol).
struct Control<'a> {
    lines: BufReader<UnixStream>,
    stop: &'a AtomicBool,
    time: EmulatorTime,
    /// The limit on QEMU's time for each answer, and for what [`Self::wait_for`] waits for.
    limit: Duration,
}

impl<'a> Control<'a> {
    /// Connects as soon as QEMU listens; it has a limited time for that.
    fn open(folder: &Path, process: &mut Process, stop: &'a AtomicBool) -> Result<Self, Error> {
        let stream = connect(folder, process, stop, CONNECT_LIMIT)?;
        let mut control =
            Self { lines: BufReader::new(stream), stop, time: process.time(), limit: SAVE_LIMIT };
        control.receive()?;
        control.execute("qmp_capabilities", json!({}))?;
        Ok(control)
    }

    /// Tells QEMU to leave the memory out of the state, because it is in a file of its own.
    fn memory_is_apart(&mut self) -> Result<(), Error> {
        let ignored = json!([{ "capability": "x-ignore-shared", "state": true }]);
        self.execute("migrate-set-capabilities", json!({ "capabilities": ignored })).map(drop)
    }

    /// Repeats a query until `done` returns true for the answer; false is an error.
    fn wait_for(&mut self, query: &str, done: impl Fn(&Value) -> Option<bool>) -> Result<(), Error> {
        let has_time = self.time.limit(self.limit);
        loop {
            let answer = self.execute(query, json!({}))?;
            match done(&answer) {
                Some(true) => return Ok(()),
                Some(false) => return Err(refused(query, &answer)),
                None if !has_time() => return Err(refused(query, &answer)),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
        text.push('\n');
        self.lines
            .get_mut()
            .write_all(text.as_bytes())
            .map_err(Error::file("Could not write to", CONTROL))?;
        loop {
            let mut answer = self.receive()?;
            if answer.get("error").is_some() {
                return Err(refused(command, &answer["error"]));
            }
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }

    /// Reads the next line, for which QEMU has limited time.
    fn receive(&mut self) -> Result<Value, Error> {
        let mut line = Vec::new();
        let has_time = self.time.limit(self.limit);
        loop {
            match self.lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => break,
                Ok(_) => {
                    let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::file("Could not read from", CONTROL)(ended));
                }
                // `line` keeps what has arrived so far.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.stop.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted);
                    }
                    if !has_time() {
                        return Err(too_late("answer"));
                    }
                }
                Err(error) => return Err(Error::file("Could not read from", CONTROL)(error)),
            }
        }
        let line = String::from_utf8_lossy(&line);
        serde_json::from_str(&line).map_err(|error| refused(&line, &Value::String(error.to_string())))
    }
}

/// Connects with QEMU as soon as it listens.
fn connect(
    folder: &Path,
    process: &mut Process,
    stop: &AtomicBool,
    patience: Duration,
) -> Result<UnixStream, Error> {
    let directory = fs::File::open(folder).map_err(Error::file("Could not open", folder))?;
    // A socket's path is limited to 107 bytes, and the cache's path may be longer.
    let path = format!("/proc/self/fd/{}/{CONTROL}", directory.as_raw_fd());
    let has_time = process.time().limit(patience);
    let stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(error) => {
                if process.wait(Duration::from_millis(5), stop)?.is_some() {
                    return Err(Error::file("Could not connect with", folder.join(CONTROL))(error));
                }
                if !has_time() {
                    return Err(too_late("connection"));
                }
            }
        }
    };
    let limited = stream.set_read_timeout(Some(TURN)).and_then(|()| stream.set_write_timeout(Some(TURN)));
    limited.map_err(Error::file("Could not limit the wait for", folder.join(CONTROL)))?;
    Ok(stream)
}

fn refused(command: &str, answer: &Value) -> Error {
    Error::ProgramFailed {
        program: format!("QEMU's {command}"),
        status: "refused".to_owned(),
        output: answer.to_string(),
    }
}

/// The error for a QEMU that hangs.
fn too_late(missing: &str) -> Error {
    Error::ProgramFailed {
        program: "QEMU".to_owned(),
        status: format!("no {missing} in time"),
        output: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;
    use crate::process::started;

    #[test]
    fn a_disk_reports_to_the_host_that_a_write_failed() {
        let drive = drive(Path::new("/a,b/disk"), "id=disk,format=raw");
        assert_eq!(drive, "file=/a,,b/disk,if=none,werror=report,id=disk,format=raw");
    }

    #[test]
    fn a_qemu_that_ends_before_it_listens_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started(folder.path(), "true", &[]);
        let begun = Instant::now();
        let error = Control::open(folder.path(), &mut process, &AtomicBool::new(false)).err().unwrap();
        assert!(matches!(error, Error::File { .. }) && begun.elapsed() < Duration::from_secs(10), "{error}");
    }

    #[test]
    fn a_qemu_that_hangs_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started(folder.path(), "sleep", &["100"]);
        let (stop, limit) = (AtomicBool::new(false), Duration::from_millis(10));
        let error = connect(folder.path(), &mut process, &stop, limit).err().unwrap();
        assert!(matches!(error, Error::ProgramFailed { .. }), "{error}");
        let _silent = UnixListener::bind(folder.path().join(CONTROL)).unwrap();
        let stream = connect(folder.path(), &mut process, &stop, limit).unwrap();
        let mut control = Control { lines: BufReader::new(stream), stop: &stop, time: process.time(), limit };
        let error = control.receive().err().unwrap();
        assert!(matches!(error, Error::ProgramFailed { .. }), "{error}");
    }

    #[test]
    fn a_qemu_that_does_not_answer_is_waited_for_until_an_interrupt() {
        let folder = tempfile::tempdir().unwrap();
        let _silent = UnixListener::bind(folder.path().join(CONTROL)).unwrap();
        let mut process = started(folder.path(), "sleep", &["100"]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(TURN * 3);
                stop.store(true, Ordering::Relaxed);
            });
            let error = Control::open(folder.path(), &mut process, &stop).err().unwrap();
            assert!(matches!(error, Error::Interrupted), "{error}");
        });
    }

    #[test]
    fn an_answer_that_comes_in_pieces_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(CONTROL)).unwrap();
        let mut process = started(folder.path(), "sleep", &["100"]);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"{\"QMP\": {}}\n{\"ret").unwrap();
                // The question has been sent before the socket is closed.
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                std::thread::sleep(TURN * 3);
                stream.write_all(b"urn\": {}}\n").unwrap();
            });
            Control::open(folder.path(), &mut process, &AtomicBool::new(false)).map(drop).unwrap();
        });
    }
}
