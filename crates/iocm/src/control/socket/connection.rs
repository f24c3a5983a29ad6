//! The connection of a peer.

use crate::clock::now_ns;

use crate::control::error::{ControlError, Errno};
use crate::control::facts::Control;
use crate::control::request::{ANSWER_FORMAT, ControlRequest, LONGEST_LINE, RequestLine, answer};
use serde_json::{Map, Value as Json, json};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time after which a peer that does not read its answers is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection of a peer.
#[derive(Debug)]
pub(super) struct PeerConnection {
    stream: UnixStream,
    /// Bytes that were read but not handled yet.
    read: Vec<u8>,
}

/// The result of waiting for a line.
enum Received {
    Line(Vec<u8>),
    TooLong,
    Nothing,
}

impl PeerConnection {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Tells the peer why it is not served.
    pub(super) fn refuse(&mut self, why: &str) {
        let _ = self.stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = self.send(None, Err(ControlError::new(Errno::Denied, why)));
    }

    /// Answers requests until the peer disconnects.
    pub(super) fn serve(mut self, control: &impl Control) {
        let _ = self.stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let mut next = None;
        let outcome: io::Result<()> = (|| loop {
            let received = match next.take() {
                Some(received) => received,
                None => self.receive(None)?,
            };
            let Received::Line(line) = received else {
                let why = format!("A line has {LONGEST_LINE} bytes at most");
                return self.send(None, Err(ControlError::new(Errno::TooLarge, why)));
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let RequestLine { id, request } = RequestLine::parse(&line);
            match request {
                Ok(ControlRequest::Watch(path, interval, count)) => {
                    let request = ControlRequest::Watch(path, interval, count);
                    next = self.watch(control, id.as_ref(), &request, interval, count)?;
                }
                Ok(request) => self.send(id.as_ref(), answer(control, &request))?,
                Err(error) => self.send(id.as_ref(), Err(error))?,
            }
        })();
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                tracing::debug!("A peer of the control socket is left: {error}");
            }
            _ => {}
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Repeats the answer to a request. Returns the line that ended it, if one did.
    fn watch(
        &mut self,
        control: &impl Control,
        id: Option<&Json>,
        request: &ControlRequest,
        interval: Duration,
        count: Option<u64>,
    ) -> io::Result<Option<Received>> {
        let mut due = Instant::now();
        let mut told: u64 = 0;
        while count.is_none_or(|count| told < count) {
            told += 1;
            let fields = answer(control, request).map(|mut fields| {
                fields.insert("watch".to_owned(), Json::from(told));
                fields.insert("time_ns".to_owned(), Json::from(now_ns()));
                fields
            });
            let ends = fields.is_err();
            self.send(id, fields)?;
            if ends {
                break;
            }
            due += interval;
            // A slow peer misses samples.
            due = due.max(Instant::now());
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                match self.receive(Some(left))? {
                    Received::Nothing => {}
                    received => return Ok(Some(received)),
                }
            }
        }
        Ok(None)
    }

    /// Waits for a line.
    fn receive(&mut self, timeout: Option<Duration>) -> io::Result<Received> {
        // A timeout of 0 would mean none, so use at least what the kernel can measure.
        self.stream.set_read_timeout(timeout.map(|left| left.max(Duration::from_millis(1))))?;
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return Ok(if line.len() > LONGEST_LINE { Received::TooLong } else { Received::Line(line) });
            }
            if self.read.len() > LONGEST_LINE {
                return Ok(Received::TooLong);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(
        &mut self,
        id: Option<&Json>,
        outcome: Result<Map<String, Json>, ControlError>,
    ) -> io::Result<()> {
        let mut all = Map::new();
        all.insert("format".to_owned(), Json::from(ANSWER_FORMAT));
        if let Some(id) = id {
            all.insert("id".to_owned(), id.clone());
        }
        all.insert("ok".to_owned(), Json::from(outcome.is_ok()));
        match outcome {
            Ok(fields) => all.extend(fields),
            Err(error) => {
                let error = json!({
                    "errno": error.errno.name(),
                    "code": error.errno.code(),
                    "message": error.message,
                });
                all.insert("error".to_owned(), error);
            }
        }
        let mut line = Json::Object(all).to_string();
        line.push('\n');
        self.stream.write_all(line.as_bytes())
    }
}
