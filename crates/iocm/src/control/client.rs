//! A client of the control socket.

use super::error::{ControlError, Errno};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde_json::{Value as Json, json};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest answer. A served queue takes 0.7 to 1.7 KiB of a tree, and a host can have tens of thousands.
const LONGEST: usize = 64 << 20;
/// The most memory for the values of an answer, if the caller does not say: an object takes hundreds of bytes, even if its
/// text has just a few.
const MOST_MEMORY: usize = 768 << 20;
const OF_OBJECT: usize = 640;
const OF_VALUE: usize = 128;

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// The time limit for an answer.
    limit: Option<Duration>,
    most_memory: usize,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The daemon cannot be reached.
    #[error("Cannot reach an I/O daemon at {path}: {}", next_step(source))]
    Unreachable {
        /// The path of its socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The daemon ended, or its answer cannot be read.
    #[error("The I/O daemon at {path} gave no answer")]
    NoAnswer {
        /// The path of its socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] ControlError),
}

/// A value with the time at which it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Nanoseconds of the daemon's monotonic clock.
    pub time_ns: u64,
    /// The value.
    pub value: Json,
}

impl Client {
    /// Connects to a daemon.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ClientError::Unreachable { path: path.to_owned(), source })?;
        Ok(Self::over(stream, path, None))
    }

    /// Connects to a daemon. The time limits the connection attempt, and later each answer, in however many parts it
    /// arrives.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect_within(path: &Path, time: Duration) -> Result<Self, ClientError> {
        let connect = || -> io::Result<UnixStream> {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // The send timeout limits writes, and also connect(2), which blocks while the daemon's listen queue is full
            // (unix(7), listen(2)).
            set_socket_timeout(&socket, Timeout::Send, Some(time))?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket.into())
        };
        let stream =
            connect().map_err(|source| ClientError::Unreachable { path: path.to_owned(), source })?;
        Ok(Self::over(stream, path, Some(time)))
    }

    fn over(stream: UnixStream, path: &Path, limit: Option<Duration>) -> Self {
        Self { path: path.to_owned(), stream: BufReader::new(stream), limit, most_memory: MOST_MEMORY }
    }

    /// Limits the memory in bytes that the values of an answer may take; 768 MiB otherwise.
    #[must_use]
    pub fn with_memory(self, most: usize) -> Self {
        Self { most_memory: most, ..self }
    }

    /// Sends a request, and waits for its answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&mut self, request: &Json) -> Result<Json, ClientError> {
        self.send(request)?;
        self.receive()
    }

    /// Reads an attribute, or all attributes below a directory.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get(&mut self, path: &str) -> Result<Json, ClientError> {
        Ok(self.ask(&json!({ "op": "get", "path": path }))?["value"].take())
    }

    /// Lists a directory: objects with `name`, `kind`, and for attributes `access`, `unit` and `about`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list(&mut self, path: &str) -> Result<Vec<Json>, ClientError> {
        match self.ask(&json!({ "op": "ls", "path": path }))?["entries"].take() {
            Json::Array(entries) => Ok(entries),
            _ => Err(self.no_answer("it has no entries")),
        }
    }

    /// Writes an attribute.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), ClientError> {
        self.ask(&json!({ "op": "set", "path": path, "value": value })).map(drop)
    }

    /// Makes an object in a collection (`workers`, `devices`). Returns its name.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create(&mut self, collection: &str, line: &str) -> Result<String, ClientError> {
        let answer = self.ask(&json!({ "op": "create", "path": collection, "value": line }))?;
        answer["name"].as_str().map(str::to_owned).ok_or_else(|| self.no_answer("it has no name"))
    }

    /// Removes a worker or a device.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn remove(&mut self, path: &str) -> Result<(), ClientError> {
        self.ask(&json!({ "op": "remove", "path": path })).map(drop)
    }

    /// Moves queues, or all queues of devices, to a worker: all of them or none.
    ///
    /// # Errors
    ///
    /// [`ClientError`]; nothing has moved then.
    pub fn move_to(&mut self, paths: &[impl AsRef<str>], worker: &str) -> Result<(), ClientError> {
        let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        self.ask(&json!({ "op": "move", "paths": paths, "to": worker })).map(drop)
    }

    /// Asks for repeated samples of [`Self::get`], which [`Self::sample`] reads.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn watch(&mut self, path: &str, interval: Duration, count: Option<u64>) -> Result<(), ClientError> {
        let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let mut request = json!({ "op": "watch", "path": path, "interval_ms": interval });
        if let Some(count) = count {
            request["count"] = Json::from(count);
        }
        self.send(&request)
    }

    /// Waits for the next sample while watching.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn sample(&mut self) -> Result<Sample, ClientError> {
        let mut answer = self.receive()?;
        let time_ns = answer["time_ns"].as_u64().ok_or_else(|| self.no_answer("it has no time"))?;
        Ok(Sample { time_ns, value: answer["value"].take() })
    }

    fn send(&mut self, request: &Json) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(format!("{request}\n").as_bytes());
        match sent {
            // A daemon that refuses this user sends the reason before it closes the connection: read that.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(ClientError::NoAnswer { path: self.path.clone(), source: error })
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self) -> Result<Json, ClientError> {
        let line = self.line();
        let line = line.map_err(|source| ClientError::NoAnswer { path: self.path.clone(), source })?;
        if line.is_empty() {
            return Err(ClientError::NoAnswer {
                path: self.path.clone(),
                source: io::ErrorKind::UnexpectedEof.into(),
            });
        }
        if line.len() >= LONGEST || memory(&line) > self.most_memory {
            return Err(self.no_answer(too_long(self.most_memory)));
        }
        let answer: Json = serde_json::from_slice(&line).map_err(|_| self.no_answer("it is not JSON"))?;
        if answer["ok"].as_bool() == Some(true) {
            return Ok(answer);
        }
        let error = &answer["error"];
        let name = error["errno"].as_str().unwrap_or_default();
        let errno = Errno::ALL.iter().find(|errno| errno.name() == name).copied();
        let message = error["message"].as_str().ok_or_else(|| self.no_answer("it has no message"))?;
        Err(ControlError::new(errno.unwrap_or(Errno::Failed), message).into())
    }

    /// Reads up to the end of a line, or of the stream.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let end = self.limit.map(|limit| Instant::now() + limit);
        let mut line = Vec::new();
        loop {
            if let Some(end) = end {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.stream.get_ref().set_read_timeout(Some(left))?;
            }
            let part = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                part => part?,
            };
            let (taken, is_last) = match part.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (part.len(), part.is_empty()),
            };
            line.extend_from_slice(&part[..taken]);
            self.stream.consume(taken);
            if is_last || line.len() >= LONGEST {
                return Ok(line);
            }
        }
    }

    fn no_answer(&self, why: impl Into<String>) -> ClientError {
        let source = io::Error::new(io::ErrorKind::InvalidData, Into::<String>::into(why));
        ClientError::NoAnswer { path: self.path.clone(), source }
    }
}

fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "start one with `exitless iocm serve`, or say where it is with --socket"
        }
        // One may be running.
        io::ErrorKind::PermissionDenied => {
            "run as root, as the daemon's user, or as a member of the `group` under [control] in its configuration"
        }
        _ => "see the cause",
    }
}

fn too_long(most_memory: usize) -> String {
    format!(
        "it is longer than {} MiB, or takes more than {} MiB of memory; ask for a part of the tree, such as devices/d.0",
        LONGEST >> 20,
        most_memory >> 20
    )
}

/// An upper bound of the memory for the values of a JSON text.
fn memory(text: &[u8]) -> usize {
    // Every value but the first comes after one of these bytes, which strings may contain, too.
    let of = |byte: &u8| match byte {
        b'{' => OF_OBJECT,
        b',' | b'[' => OF_VALUE,
        _ => 0,
    };
    text.iter().map(of).sum()
}

/// Flattens a value that was read at `path`: all attributes with their paths, in order.
#[must_use]
pub fn flat(path: &str, value: &Json) -> Vec<(String, Json)> {
    let Json::Object(fields) = value else { return vec![(path.to_owned(), value.clone())] };
    let below = fields.iter().flat_map(|(name, value)| match path.trim_matches('/') {
        "" => flat(name, value),
        path => flat(&format!("{path}/{name}"), value),
    });
    below.collect()
}

/// A value as the attribute's file has it, without the last newline.
#[must_use]
pub fn plain(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::Bool(switch) => if *switch { "yes" } else { "no" }.to_owned(),
        Json::String(text) => text.trim_end_matches('\n').to_owned(),
        Json::Array(lines) => {
            let of = |line: &Json| match line {
                Json::Array(words) => words.iter().map(plain).collect::<Vec<_>>().join(" "),
                other => plain(other),
            };
            lines.iter().map(of).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::tree::{self, Node};
    use crate::control::{DaemonFacts, DeviceFacts, FactSource, QueueFacts, QueueName, WorkerFacts};
    use crate::statistics::{BUCKETS, Times};
    use crate::testing::{MadeUpDaemon, queue_facts};
    use serde_json::json;

    fn error_of_answer(value: &str) -> String {
        error_of_answer_within(MOST_MEMORY, value)
    }

    /// The error of a client whose daemon sends this answer and nothing else.
    fn error_of_answer_within(most_memory: usize, value: &str) -> String {
        let (ours, mut daemons) = UnixStream::pair().unwrap();
        let answer = format!("{{\"ok\":true,\"value\":{value}}}\n");
        let writer = std::thread::spawn(move || {
            // The client may close the connection before it has read everything.
            let _ = daemons.write_all(answer.as_bytes());
        });
        let mut client = Client::over(ours, Path::new("/daemon"), None).with_memory(most_memory);
        let outcome = client.get("");
        drop(client);
        writer.join().unwrap();
        match outcome {
            Ok(_) => String::new(),
            Err(error) => std::error::Error::source(&error).unwrap().to_string(),
        }
    }

    #[test]
    fn only_where_no_daemon_listens_one_is_to_be_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let missing = Client::connect(&path).unwrap_err().to_string();
        assert!(missing.contains("iocm serve"), "{missing}");
        for (code, next) in
            [(libc::ECONNREFUSED, "iocm serve"), (libc::EACCES, "run as root"), (libc::EAGAIN, "see")]
        {
            let source = io::Error::from_raw_os_error(code);
            let told = ClientError::Unreachable { path: path.clone(), source }.to_string();
            assert!(told.contains(next) && told.contains("iocm serve") == (next == "iocm serve"), "{told}");
        }
    }

    #[test]
    fn an_answer_that_would_take_much_memory_is_refused() {
        let objects = |number: usize| format!("[{}]", vec![r#"{"":0}"#; number].join(","));
        assert_eq!(error_of_answer(&objects(100_000)), "");
        assert_eq!(error_of_answer(&objects(1_200_000)), too_long(MOST_MEMORY));
        assert_eq!(error_of_answer(&format!("\"{}\"", "x".repeat(LONGEST))), too_long(MOST_MEMORY));
        let error = error_of_answer_within(1 << 20, &objects(2_000));
        assert!(error.contains("more than 1 MiB of memory"), "{error}");
    }

    /// A daemon whose queues have counted much.
    #[derive(Default)]
    struct Busy(MadeUpDaemon);

    impl FactSource for Busy {
        fn daemon(&self) -> DaemonFacts {
            self.0.daemon()
        }

        fn workers(&self) -> Vec<u32> {
            self.0.workers()
        }

        fn worker(&self, number: u32) -> Option<WorkerFacts> {
            self.0.worker(number)
        }

        fn devices(&self) -> Vec<u32> {
            self.0.devices()
        }

        fn device(&self, number: u32) -> Option<DeviceFacts> {
            self.0.device(number)
        }

        fn queue_count(&self, device: u32) -> u16 {
            self.0.queue_count(device)
        }

        fn queue(&self, name: QueueName) -> Option<QueueFacts> {
            let many = 1 << 50;
            let times = Times { worked_ns: many, polled_ns: many, napped_ns: many, slept_ns: many };
            Some(QueueFacts { times, delays: [1 << 40; BUCKETS], ..queue_facts(name) })
        }
    }

    #[test]
    fn the_tree_of_ten_thousand_queues_is_read_at_once() {
        let source = Busy::default();
        let queue = tree::read_below(&source, Node::find(&source, "vq.1.0").unwrap()).unwrap();
        let queues: Vec<_> = (0..10_000).map(|number| format!("\"vq.{number}.0\":{queue}")).collect();
        let tree = format!("{{{}}}", queues.join(","));
        assert!(tree.len() > 8 << 20, "{queue}");
        assert_eq!(error_of_answer(&tree), "");
    }

    #[test]
    fn the_tree_of_thirty_thousand_queues_is_within_the_limits() {
        let source = Busy::default();
        let queue = tree::read_below(&source, Node::find(&source, "vq.1.0").unwrap()).unwrap();
        let queue = format!("\"vq.10000.10\":{queue},");
        let (length, memory) = (queue.len() * 30_000, memory(queue.as_bytes()) * 30_000);
        assert!(length < LONGEST && memory < MOST_MEMORY, "{length} bytes, {memory} of memory");
    }

    #[test]
    fn a_tree_is_lines() {
        let value = json!({ "w.0": { "cpu": "2", "pace": { "polling": "never" }, "load": 1.5 } });
        let lines: Vec<_> =
            flat("/workers/", &value).into_iter().map(|(path, value)| (path, plain(&value))).collect();
        let wanted =
            [("workers/w.0/cpu", "2"), ("workers/w.0/load", "1.5"), ("workers/w.0/pace/polling", "never")];
        assert_eq!(lines, wanted.map(|(path, value)| (path.to_owned(), value.to_owned())));
        assert_eq!(plain(&json!([[1, 2], [4, 5]])), "1 2\n4 5");
        assert_eq!(plain(&json!(["a", "b"])), "a\nb");
        assert_eq!(flat("", &json!(3)), [(String::new(), json!(3))]);
    }
}
