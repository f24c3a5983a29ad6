//! Guests reached by the QEMU guest agent (docs/interop/qemu-ga-ref of QEMU).
//!
//! The agent runs a program and returns its output in the end; it does not stream. So a script gets a start time, by a
//! guest clock whose difference from the host's has just been measured, and reports itself when it began and ended. The
//! guest's clock can be set meanwhile (chrony does so in guests that have just booted), so the script also reads the
//! uptime, which is coarser but never set.

mod base64;
mod clock;
mod transport;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guest::Ending;
use serde_json::{Value, json};

use super::waiting::{GRACE, end_rest};
use super::{Armed, Finished, Guest, GuestError, Patience};
use crate::Output;
use crate::shell::quoted;
use clock::{ClockDifference, Reading};
use transport::{answer, request};

pub use transport::Transport;
pub(super) use transport::Virsh;

/// How long before its start a script is told the start time: it must read it and sleep until then.
const LEAD: Duration = Duration::from_millis(1500);
/// How long a script waits for its start time. Nothing in the guest tells it that this program was killed. Longer than
/// the preparation of all scripts of a large study, which have to wait for the last one.
const TOLD_WITHIN: Duration = Duration::from_secs(900);
/// The shortest and the longest interval at which to ask whether a script has ended. Each request costs the guest an
/// interrupt and some work.
const POLL: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
const TOLD: &str = "exitless-told ";
const BEGAN: &str = "exitless-began ";
const ENDED: &str = "exitless-ended ";

/// Prints the name of a new directory to which no other user of the guest has access. `/run` is root's, where it can be
/// written to.
const MAKE_PLACE: &str = "mktemp -d /run/exitless-XXXXXX 2> /dev/null || mktemp -d";

/// For `sh -c WAITING sh SCRIPT FILE SECONDS`: waits for FILE, which contains the start time in nanoseconds of the guest's
/// clock, and the longest wait. Both must be numbers: in `$(( ))` a variable's value is an expression, and bash runs
/// commands in it. If FILE does not come within SECONDS, removes its directory, unless another file is in it. Sleeps until
/// shortly before the start time and then polls the clock; if the clock was set back, the uptime (`cs`, in centiseconds)
/// ends the wait.
const WAITING: &str = "exitless_read() { read -r up _ < /proc/uptime; real=$(date +%s%N); \
    read -r later _ < /proc/uptime; cs=$(( ${later%.*} * 100 + 1${later#*.} - 100 )); }; \
    read -r up _ < /proc/uptime; end=$(( ${up%.*} + $3 )); \
    until [ -s \"$2\" ]; do read -r up _ < /proc/uptime; [ ${up%.*} -lt $end ] || { \
    echo \"exitless: the start time in $2 did not come within $3 s\" >&2; rmdir \"${2%/*}\" 2> /dev/null; exit 125; }; \
    sleep 0.02; done; read -r at most < \"$2\"; rm -f \"$2\"; \
    for word in \"$at\" \"$most\"; do case $word in '' | *[!0-9]*) \
    echo \"exitless: $2 held no start time\" >&2; exit 125 ;; esac; done; \
    exitless_read; echo \"exitless-told $up $real $later\" >&2; \
    left=$(( at - real )); [ $left -le $most ] || left=$most; \
    end=$(( cs + left / 10000000 + 2 )); left=$(( left / 1000000 - 30 )); \
    [ $left -le 0 ] || sleep $(( left / 1000 )).$(printf %03d $(( left % 1000 ))); exitless_read; \
    while [ $real -lt $at ] && [ $cs -lt $end ]; do exitless_read; done; \
    echo \"exitless-began $up $real $later\" >&2; (eval \"$1\") < /dev/null; status=$?; \
    exitless_read; echo \"exitless-ended $up $real $later\" >&2; exit $status";

/// A guest with a QEMU guest agent.
pub struct AgentGuest {
    name: String,
    vcpus: u32,
    address: Option<IpAddr>,
    channel: Channel,
    /// The directory for its scripts' start times, once it was made.
    place: Option<Arc<Place>>,
}

/// A directory in the guest, which is removed with the last script that waits there.
struct Place {
    path: String,
    channel: Channel,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Fails if the guest was shut down, which leaves nothing in it.
        let _ = self.channel.exec(&[&format!("rm -rf {}", quoted(&self.path))]);
    }
}

/// The agent, shared by the guest and its scripts; it executes one command at a time.
#[derive(Clone)]
struct Channel {
    name: String,
    transport: Arc<Mutex<Box<dyn Transport>>>,
}

impl AgentGuest {
    /// Waits until the agent answers.
    ///
    /// # Errors
    /// [`GuestError::Start`] if it does not answer within `patience`, or does not tell its vCPUs.
    pub fn with(
        name: &str,
        transport: Box<dyn Transport>,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        let channel = Channel { name: name.to_owned(), transport: Arc::new(Mutex::new(transport)) };
        let begun = Instant::now();
        while let Err(why) = channel.ask("guest-ping", None) {
            if patience.left(begun).is_zero() {
                let why =
                    format!("its QEMU guest agent does not answer: {why}; install qemu-guest-agent in it");
                return Err(GuestError::Start { name: name.to_owned(), why });
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let refused = |why| GuestError::Start { name: name.to_owned(), why };
        let cpus = channel.ask("guest-get-vcpus", None).map_err(refused)?;
        let online = |cpu: &&Value| cpu.get("online").and_then(Value::as_bool).unwrap_or(true);
        let vcpus = cpus.as_array().map_or(1, |cpus| cpus.iter().filter(online).count());
        // A guest without a network has no address.
        let address = channel.ask("guest-network-get-interfaces", None).ok().as_ref().and_then(first_address);
        let vcpus = u32::try_from(vcpus).unwrap_or(u32::MAX);
        Ok(Self { name: name.to_owned(), vcpus, address, channel, place: None })
    }

    /// The directory in the guest for start times.
    fn place(&mut self) -> Result<Arc<Place>, String> {
        if let Some(place) = &self.place {
            return Ok(Arc::clone(place));
        }
        let made = self.channel.output(MAKE_PLACE, GRACE)?;
        let path = made.stdout.trim_end().to_owned();
        if made.status != 0 || !path.starts_with('/') {
            return Err(format!("`{MAKE_PLACE}` made no directory: {}", made.stderr.trim_end()));
        }
        let place = Arc::new(Place { path, channel: self.channel.clone() });
        Ok(Arc::clone(self.place.insert(place)))
    }
}

/// The first IPv4 address, except that of the loopback interface.
fn first_address(interfaces: &Value) -> Option<IpAddr> {
    let addresses = interfaces
        .as_array()?
        .iter()
        .filter_map(|interface| interface.get("ip-addresses")?.as_array())
        .flatten()
        .filter_map(|address| address.get("ip-address")?.as_str()?.parse::<IpAddr>().ok());
    addresses.into_iter().find(|address| address.is_ipv4() && !address.is_loopback())
}

impl Channel {
    fn ask(&self, command: &str, arguments: Option<Value>) -> Result<Value, String> {
        let request = request(command, arguments);
        let said = self.transport.lock().unwrap_or_else(PoisonError::into_inner).ask(&request)?;
        answer(&said)
    }

    /// Starts `sh -c` with these arguments, and returns the PID in the guest.
    fn exec(&self, words: &[&str]) -> Result<u64, String> {
        let arguments = [&["-c"], words].concat();
        let started = self.ask(
            "guest-exec",
            Some(json!({ "path": "/bin/sh", "arg": arguments, "capture-output": true })),
        )?;
        let pid = started.get("pid").and_then(Value::as_u64);
        pid.ok_or_else(|| format!("guest-exec gave no pid but {started}"))
    }

    /// The output of a process, if it has ended.
    fn end(&self, pid: u64) -> Result<Option<Output>, String> {
        let status = self.ask("guest-exec-status", Some(json!({ "pid": pid })))?;
        if !status.get("exited").and_then(Value::as_bool).unwrap_or(false) {
            return Ok(None);
        }
        let number =
            |key| status.get(key).and_then(Value::as_i64).and_then(|value| i32::try_from(value).ok());
        let text = |key| {
            let coded = status.get(key).and_then(Value::as_str).unwrap_or_default();
            base64::decode(coded).ok_or_else(|| format!("{key} of guest-exec-status is not base64"))
        };
        let code = number("exitcode").or_else(|| number("signal").map(|signal| 128 + signal)).unwrap_or(125);
        let mut stderr = text("err-data")?;
        if ["out-truncated", "err-truncated"].iter().any(|key| status.get(key) == Some(&Value::Bool(true))) {
            stderr += "\nexitless: the guest agent kept 16 MiB of the output alone\n";
        }
        Ok(Some(Output { status: code, stdout: text("out-data")?, stderr }))
    }

    /// Runs a command line that takes no longer than `patience`.
    fn output(&self, line: &str, patience: Duration) -> Result<Output, String> {
        let pid = self.exec(&[line])?;
        let begun = Instant::now();
        loop {
            if let Some(output) = self.end(pid)? {
                return Ok(output);
            }
            if begun.elapsed() > patience {
                return Err(format!("`{line}` had not ended after {} s", patience.as_secs()));
            }
            std::thread::sleep(POLL[0]);
        }
    }

    fn unreachable(&self, why: String) -> GuestError {
        GuestError::Unreachable { name: self.name.clone(), why }
    }
}

impl Guest for AgentGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        self.vcpus
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn host_address(&self) -> Option<IpAddr> {
        None
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = self.place().map_err(|why| {
            self.channel.unreachable(format!("making a directory for a script's start time: {why}"))
        })?;
        let file = format!("{}/{number}", place.path);
        // In a new session, so that a signal to its process group ends the script with its child processes.
        let outer = "exec setsid sh -c \"$0\" sh \"$1\" \"$2\" \"$3\"";
        let seconds = TOLD_WITHIN.as_secs().to_string();
        let pid = self
            .channel
            .exec(&[outer, WAITING, script, &file, &seconds])
            .map_err(|why| self.channel.unreachable(format!("starting a script by guest-exec: {why}")))?;
        let channel = self.channel.clone();
        let (clock, sent_ns, released) = (None, 0, None);
        Ok(Box::new(AgentArmed {
            channel,
            pid,
            _place: place,
            file,
            limit,
            clock,
            sent_ns,
            released,
            over: false,
        }))
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        Ok(())
    }
}

/// A script that waits in a guest for its start time.
struct AgentArmed {
    channel: Channel,
    pid: u64,
    _place: Arc<Place>,
    file: String,
    limit: Duration,
    clock: Option<ClockDifference>,
    /// The host's time at which the start time was sent.
    sent_ns: u64,
    /// The start.
    released: Option<Instant>,
    over: bool,
}

impl AgentArmed {
    fn signal(&self, how: Ending) {
        // If this fails, waiting for the script's end reports it.
        let _ = self.channel.exec(&[&format!("kill -{} -{}", how.signal(), self.pid)]);
    }

    /// The guest's clock, which is measured once.
    fn clock(&mut self) -> Result<ClockDifference, GuestError> {
        if let Some(clock) = self.clock {
            return Ok(clock);
        }
        let clock = ClockDifference::measure(|| {
            let time = self.channel.ask("guest-get-time", None)?;
            time.as_u64().ok_or_else(|| format!("guest-get-time gave {time}"))
        });
        let clock = clock.map_err(|why| self.channel.unreachable(format!("reading its clock: {why}")))?;
        Ok(*self.clock.insert(clock))
    }

    fn finished(&self, mut output: Output) -> Finished {
        let now = live::monotonic_ns();
        let [told, began, ended] = [TOLD, BEGAN, ENDED].map(|mark| take_line(&mut output.stderr, mark));
        let (Some(told), Some(began), Some(clock)) = (told, began, self.clock) else {
            // It was ended before it began, or its reports were lost.
            return Finished { output, began_ns: now, ended_ns: now };
        };
        let times = clock.times([told, began], ended, (self.sent_ns, now));
        if times.set {
            let note = "its clock was set while a script waited or ran; the times of that are by its uptime";
            tracing::warn!("The guest {}: {note}", self.channel.name);
            output.stderr += &format!("\nexitless: {note}\n");
        }
        Finished { output, began_ns: times.began_ns, ended_ns: times.ended_ns }
    }
}

/// Removes a report from a script's output and returns its times. The script's own last line before the mark may lack
/// its newline.
fn take_line(text: &mut String, mark: &str) -> Option<Reading> {
    let start = text.find(mark)?;
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length + 1);
    let line: String = text.drain(start..end).collect();
    Reading::parse(line[mark.len()..].trim_end())
}

impl Armed for AgentArmed {
    fn prepare(&mut self) -> Result<Duration, GuestError> {
        self.clock()?;
        Ok(LEAD)
    }

    fn agree(&mut self, at_ns: u64) -> Result<(), GuestError> {
        let clock = self.clock()?;
        self.sent_ns = live::monotonic_ns();
        let (at, most) = (clock.guest(at_ns), at_ns.saturating_sub(self.sent_ns));
        let write = format!("echo {at} {most} > \"$0.new\" && mv \"$0.new\" \"$0\"");
        self.channel
            .exec(&[&write, &self.file])
            .map_err(|why| self.channel.unreachable(format!("releasing a script by guest-exec: {why}")))?;
        self.released = Some(Instant::now() + Duration::from_nanos(most));
        Ok(())
    }

    fn release(&mut self) -> Result<(), GuestError> {
        if self.released.is_some() { Ok(()) } else { self.agree(live::monotonic_ns()) }
    }

    fn finish(mut self: Box<Self>, stop: &AtomicBool) -> Result<Finished, GuestError> {
        let mut asked: Option<(Ending, Instant)> = None;
        let mut limited = false;
        let mut pause = POLL[0];
        let begun = self.released.unwrap_or_else(Instant::now);
        let limit = || GuestError::Limit { name: self.channel.name.clone(), limit: self.limit };
        let finished = loop {
            let end = self.channel.end(self.pid);
            let end = end.map_err(|why| self.channel.unreachable(format!("guest-exec-status: {why}")))?;
            if let Some(output) = end {
                // Before the wait for what is left, which is no part of the script's time.
                let finished = self.finished(output);
                if asked.is_some() {
                    // If this fails, the next request to the guest reports it.
                    let _ = self.channel.output(&end_rest(self.pid), GRACE * 2);
                }
                break if limited { Err(limit()) } else { Ok(finished) };
            }
            limited |= asked.is_none() && begun.elapsed() > self.limit;
            let next = match asked {
                None if limited || stop.load(Ordering::Relaxed) => Some(Ending::Terminate),
                Some((Ending::Terminate, since)) if since.elapsed() > GRACE => Some(Ending::Kill),
                Some((Ending::Kill, since)) if since.elapsed() > GRACE => break Err(limit()),
                _ => None,
            };
            if let Some(how) = next {
                self.signal(how);
                asked = Some((how, Instant::now()));
                pause = POLL[0];
            }
            // Check the stop flag more often than the guest is asked.
            let until = Instant::now() + pause;
            while Instant::now() < until && (asked.is_some() || !stop.load(Ordering::Relaxed)) {
                std::thread::sleep(POLL[0]);
            }
            pause = (pause * 2).min(POLL[1]);
        };
        self.over = true;
        finished
    }
}

impl Drop for AgentArmed {
    fn drop(&mut self) {
        if !self.over {
            self.signal(Ending::Kill);
        }
    }
}

#[cfg(test)]
#[path = "qga_tests.rs"]
mod tests;
