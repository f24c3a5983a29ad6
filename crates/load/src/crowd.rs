//! Many connections to one server, each with the state of its protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::LoadError;
use super::connection::{BUFFER, Connection};
use super::reactor::{Reactor, Ready};

/// The most connections being opened at a time: fewer than the usual backlog of a listening socket.
const OPENING: usize = 128;
/// The most unsent bytes of a connection when a reply is due, 262,144 acknowledgements: more would pile up for a server that
/// goes on sending but does not read.
const MOST_UNREAD: usize = 1 << 20;
/// The longest time without progress before opening is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The protocol state of one connection.
pub(super) trait Session {
    /// The first bytes to send on an open connection; if empty, the session is ready at once.
    fn greeting(&mut self) -> Vec<u8>;

    /// Parses the complete messages at the beginning of `incoming` and returns their length in bytes.
    ///
    /// # Errors
    /// The fault in the bytes; the connection is then closed.
    fn take(&mut self, incoming: &[u8], happened: &mut Vec<Happened>) -> Result<usize, String>;
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Happened {
    /// The session is ready for use.
    Ready,
    /// The answer to the connection's request, with its size; `good` is false if the server refused the request.
    Answer { good: bool, bytes: u64 },
    /// A message arrived.
    Delivery { message: u64, bytes: u64 },
    /// A message was acknowledged.
    Acknowledged,
    /// Bytes to send back.
    Reply(Vec<u8>),
    /// The connection was closed.
    Gone(String),
}

struct Member<S> {
    connection: Option<Connection>,
    session: S,
    open: bool,
}

/// All connections of one thread.
pub(super) struct Crowd<S> {
    targets: Vec<SocketAddr>,
    members: Vec<Member<S>>,
    reactor: Reactor,
    scratch: Vec<u8>,
    ready: Vec<Ready>,
    happened: Vec<Happened>,
}

impl<S: Session> Crowd<S> {
    /// Prepares connections to one server; if it listens at several `targets`, connections use them in turn.
    pub(super) fn new(targets: &[SocketAddr], sessions: impl Iterator<Item = S>) -> Result<Self, LoadError> {
        let member = |session| Member { connection: None, session, open: false };
        Ok(Self {
            targets: targets.to_vec(),
            members: sessions.map(member).collect(),
            reactor: Reactor::new()?,
            scratch: vec![0; BUFFER],
            ready: Vec::new(),
            happened: Vec::new(),
        })
    }

    /// Opens all connections, and returns the number that failed.
    pub(super) fn open(&mut self, sources: &[IpAddr]) -> Result<u32, LoadError> {
        let count = self.members.len();
        let (mut next, mut ready, mut failed) = (0, 0, 0);
        // A server can close a connection that was ready; then it has failed instead.
        let mut is_ready = vec![false; count];
        let mut first_error: Option<Failure> = None;
        let mut give_up = Instant::now() + PATIENCE;
        while ready + failed < count {
            let before = ready + failed;
            while next < count && next - ready - failed < OPENING {
                // Change the source only after each target had it, so that one port can serve all targets.
                let turn = next / self.targets.len();
                let source = (!sources.is_empty()).then(|| sources[turn % sources.len()]);
                if let Err(error) = self.begin(next, source) {
                    failed += 1;
                    first_error.get_or_insert(Failure::Connecting(error));
                }
                next += 1;
            }
            // Every connection that was left failed at once, and nothing will happen.
            if ready + failed == count {
                break;
            }
            self.poll(give_up, &mut |index, what| match what {
                Happened::Ready => ready += usize::from(!std::mem::replace(&mut is_ready[index], true)),
                Happened::Gone(why) => {
                    ready -= usize::from(std::mem::take(&mut is_ready[index]));
                    failed += 1;
                    first_error.get_or_insert(Failure::Greeting(why));
                }
                _ => {}
            })?;
            let now = Instant::now();
            if ready + failed > before {
                give_up = now + PATIENCE;
            } else if now >= give_up {
                let count_of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                let (opened, connections) = (count_of(ready), count_of(count));
                return Err(LoadError::Opening {
                    target: self.targets[0],
                    opened,
                    connections,
                    limit: PATIENCE,
                });
            }
            // If all of the first connections fail, 100,000 attempts would not tell more.
            if ready == 0 && failed >= OPENING.min(count) {
                break;
            }
        }
        match first_error {
            Some(Failure::Connecting(source)) if ready == 0 => {
                Err(LoadError::NoConnection { target: self.targets[0], source })
            }
            Some(Failure::Greeting(what)) if ready == 0 => {
                Err(LoadError::NotReady { target: self.targets[0], what })
            }
            _ => Ok(u32::try_from(failed).unwrap_or(u32::MAX)),
        }
    }

    fn begin(&mut self, index: usize, source: Option<IpAddr>) -> io::Result<()> {
        let target = self.targets[index % self.targets.len()];
        let connection = Connection::begin(target, source)?;
        self.reactor.add(connection.stream(), index, true)?;
        self.members[index].connection = Some(connection);
        Ok(())
    }

    pub(super) fn session(&mut self, index: usize) -> &mut S {
        &mut self.members[index].session
    }

    /// The number of unsent bytes; `None` if the connection is closed.
    pub(super) fn waiting(&self, index: usize) -> Option<usize> {
        self.members[index].connection.as_ref().map(Connection::waiting)
    }

    /// Sends, or keeps what cannot be sent now. The next [`poll`](Self::poll) reports a failure.
    pub(super) fn send(&mut self, index: usize, bytes: &[u8]) {
        let Some(connection) = &mut self.members[index].connection else { return };
        // A broken connection becomes readable, and reading returns the error.
        let _ = connection.send(bytes);
        watch(&self.reactor, index, connection);
    }

    /// Waits for events, at most until `until`, and handles those that came.
    pub(super) fn poll(
        &mut self,
        until: Instant,
        on: &mut dyn FnMut(usize, Happened),
    ) -> Result<(), LoadError> {
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.reactor.wait(until, &mut ready);
        for event in &ready {
            self.one(*event);
            let mut happened = std::mem::take(&mut self.happened);
            for what in happened.drain(..) {
                match what {
                    Happened::Reply(bytes) => {
                        if self.waiting(event.connection).is_some_and(|waiting| waiting > MOST_UNREAD) {
                            // Closing removes it from the epoll instance.
                            self.members[event.connection].connection = None;
                            on(event.connection, Happened::Gone("does not read the replies".to_owned()));
                        } else {
                            self.send(event.connection, &bytes);
                        }
                    }
                    other => on(event.connection, other),
                }
            }
            self.happened = happened;
        }
        self.ready = ready;
        waited
    }

    fn one(&mut self, event: Ready) {
        let index = event.connection;
        let Some(member) = self.members.get_mut(index) else { return };
        let Some(connection) = &mut member.connection else { return };
        if let Err(why) =
            drive(member.open, event, connection, &mut member.session, &mut self.scratch, &mut self.happened)
        {
            // Closing removes it from the epoll instance.
            member.connection = None;
            self.happened.push(Happened::Gone(why));
            return;
        }
        member.open = true;
        watch(&self.reactor, index, connection);
    }
}

enum Failure {
    Connecting(io::Error),
    Greeting(String),
}

fn drive<S: Session>(
    open: bool,
    event: Ready,
    connection: &mut Connection,
    session: &mut S,
    scratch: &mut [u8],
    happened: &mut Vec<Happened>,
) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    if !open {
        connection.error().map_err(|error| format!("refused: {error}"))?;
        let greeting = session.greeting();
        if greeting.is_empty() {
            happened.push(Happened::Ready);
        }
        return connection.send(&greeting).map_err(said);
    }
    if event.writable {
        connection.flush().map_err(said)?;
    }
    if event.readable {
        let more = connection.receive(scratch).map_err(said)?;
        let taken = session.take(&connection.incoming, happened)?;
        connection.consume(taken);
        if !more {
            return Err("the connection was closed".to_owned());
        }
    }
    Ok(())
}

fn watch(reactor: &Reactor, index: usize, connection: &mut Connection) {
    let wanted = connection.waiting() > 0;
    if wanted != connection.watched && reactor.modify(connection.stream(), index, wanted).is_ok() {
        connection.watched = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};

    /// Replies to whatever comes with more than the kernel keeps for a connection.
    struct Talkative;

    impl Session for Talkative {
        fn greeting(&mut self) -> Vec<u8> {
            Vec::new()
        }

        fn take(&mut self, incoming: &[u8], happened: &mut Vec<Happened>) -> Result<usize, String> {
            if !incoming.is_empty() {
                happened.push(Happened::Reply(vec![0; 32 << 20]));
            }
            Ok(incoming.len())
        }
    }

    /// Is ready when something comes.
    struct Greeted {
        ready: bool,
    }

    impl Session for Greeted {
        fn greeting(&mut self) -> Vec<u8> {
            b"x".to_vec()
        }

        fn take(&mut self, incoming: &[u8], happened: &mut Vec<Happened>) -> Result<usize, String> {
            if !incoming.is_empty() && !self.ready {
                self.ready = true;
                happened.push(Happened::Ready);
            }
            Ok(incoming.len())
        }
    }

    /// Opens four connections to a server that greets and closes three of them, waits until the client has seen that, and
    /// then greets or closes the last one. Returns the outcome and the number of sessions that were ready at some time.
    fn opened(greets_the_last: bool) -> (Result<u32, String>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut streams: Vec<TcpStream> = (0..4).map(|_| listener.accept().unwrap().0).collect();
            let mut last = streams.pop().unwrap();
            for stream in &mut streams {
                stream.write_all(b"r").unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            }
            // Ends when the client closes its side.
            streams.iter_mut().for_each(|stream| {
                let _ = stream.read_to_end(&mut Vec::new());
            });
            greets_the_last.then(|| {
                let _ = last.write_all(b"r");
                last
            })
        });
        let sessions = (0..4).map(|_| Greeted { ready: false });
        let mut crowd = Crowd::new(&[address], sessions).unwrap();
        let outcome = crowd.open(&[]).map_err(|error| error.to_string());
        let ready = (0..4).filter(|&index| crowd.session(index).ready).count();
        drop(crowd);
        drop(server.join().unwrap());
        (outcome, ready)
    }

    #[test]
    fn a_connection_that_was_ready_and_is_closed_counts_once() {
        assert_eq!(opened(true), (Ok(3), 4));
        let (outcome, _) = opened(false);
        assert!(outcome.as_ref().is_err_and(|error| error.contains("was reached but")), "{outcome:?}");
    }

    #[test]
    fn connections_that_cannot_begin_are_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // An address for documentation (RFC 5737), which no machine has.
        let sources: [IpAddr; 1] = [[192, 0, 2, 1].into()];
        let sessions = (0..4).map(|_| Talkative);
        let mut crowd = Crowd::new(&[listener.local_addr().unwrap()], sessions).unwrap();
        let refusal = crowd.open(&sources).unwrap_err();
        assert!(matches!(refusal, LoadError::NoConnection { .. }), "{refusal}");
    }

    #[test]
    fn a_server_that_does_not_read_loses_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut crowd = Crowd::new(&[listener.local_addr().unwrap()], [Talkative].into_iter()).unwrap();
        assert_eq!(crowd.open(&[]).unwrap(), 0);
        let (mut server, _) = listener.accept().unwrap();
        let mut gone = Vec::new();
        for _ in 0..6 {
            if gone.is_empty() {
                server.write_all(b"x").unwrap();
            }
            let until = Instant::now() + if gone.is_empty() { PATIENCE } else { Duration::ZERO };
            crowd
                .poll(until, &mut |_, what| {
                    if let Happened::Gone(why) = what {
                        gone.push(why);
                    }
                })
                .unwrap();
        }
        assert_eq!(gone, ["does not read the replies"]);
        assert_eq!(crowd.waiting(0), None);
    }
}
