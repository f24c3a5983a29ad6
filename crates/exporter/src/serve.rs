//! The server: HTTP/1.1, one page.
//!
//! Clients are not trusted: they may send anything, slowly, or nothing. So connections are limited in number, duration and
//! size, and the metrics are collected at most once per [`FRESH`].

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE as CONTENT_TYPE_HEADER, HeaderMap, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::metrics;

/// The media type of OpenMetrics' text format (OpenMetrics 1.0, "Overall Structure").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' text format.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The time for which an answer is reused: several servers may scrape at the same time, typically every 15 s.
const FRESH: Duration = Duration::from_secs(1);
/// The maximum interval between collections if nobody scrapes. The buckets of handling times in the kernel have 32 bits,
/// and the map entries of ended VMs are only freed when their exits are read.
const UNASKED: Duration = Duration::from_secs(60);
/// The maximum number of connections at the same time; others wait to be accepted.
const CONNECTIONS: usize = 32;
/// The maximum time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// The maximum duration of a connection. It ends clients that do not read the answer.
const CONNECTION: Duration = Duration::from_secs(60);
/// The maximum size of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// The interval at which the flag to stop is polled.
const LOOK: Duration = Duration::from_millis(200);

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A UNIX socket.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// A [`Listener`] registered with the tokio runtime.
enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Self::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Connection> {
        Ok(match self {
            Self::Tcp(listener) => Box::pin(listener.accept().await?.0),
            Self::Unix(listener) => Box::pin(listener.accept().await?.0),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite {}
impl<S: AsyncRead + AsyncWrite> Stream for S {}
type Connection = Pin<Box<dyn Stream>>;

/// An error of the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket or the runtime failed.
    #[error("could not serve metrics")]
    Serve(#[source] io::Error),
}

/// Answers `GET /metrics` on `listener` with the text from `collect`, until `stop` is set. If nobody scrapes, it collects
/// once a minute.
///
/// # Errors
/// If the listener cannot be used.
pub fn serve(
    listener: Listener,
    collect: impl FnMut() -> String + 'static,
    stop: &AtomicBool,
) -> Result<(), Error> {
    serve_at_ages(listener, collect, stop, FRESH, UNASKED)
}

/// [`serve`] with the time for which an answer is reused, and the interval at which to collect if nobody scrapes.
fn serve_at_ages(
    listener: Listener,
    collect: impl FnMut() -> String + 'static,
    stop: &AtomicBool,
    fresh: Duration,
    unasked: Duration,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Serve)?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = Accepting::new(listener).map_err(Error::Serve)?;
        let page = Rc::new(Page {
            began: Instant::now(),
            fresh,
            collect: RefCell::new(Box::new(collect)),
            last: RefCell::new(None),
        });
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let accepting = async {
            loop {
                // The semaphore is never closed.
                let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
                let connection = match listener.accept().await {
                    Ok(connection) => connection,
                    // The connection was aborted, or there are no free file descriptors. Both are temporary.
                    Err(_) => {
                        sleep(LOOK).await;
                        continue;
                    }
                };
                let page = Rc::clone(&page);
                tokio::task::spawn_local(async move {
                    let answer = service_fn(move |request| {
                        let response = page.answer(&request);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD)
                        .max_buf_size(HEAD_BYTES)
                        .serve_connection(TokioIo::new(connection), answer);
                    // Errors are the client's: it did not send HTTP, or disconnected.
                    let _ended = timeout(CONNECTION, connection).await;
                    drop(place);
                });
            }
        };
        let stopped = async {
            while !stop.load(Ordering::Relaxed) {
                if page.age() >= unasked {
                    page.text();
                }
                sleep(LOOK).await;
            }
        };
        tokio::pin!(accepting, stopped);
        std::future::poll_fn(|context| {
            let _pending = accepting.as_mut().poll(context);
            stopped.as_mut().poll(context)
        })
        .await;
        Ok(())
    })
}

struct Page {
    began: Instant,
    fresh: Duration,
    collect: RefCell<Box<dyn FnMut() -> String>>,
    last: RefCell<Option<(Instant, Bytes)>>,
}

impl Page {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        if request.uri().path() != "/metrics" {
            return plain(StatusCode::NOT_FOUND, "exitless: the metrics are at /metrics\n");
        }
        let openmetrics = self.text();
        let (text, kind) = match prefers_plain(request.headers()) {
            true => (Bytes::from(metrics::plain(&String::from_utf8_lossy(&openmetrics))), PLAIN),
            false => (openmetrics, CONTENT_TYPE),
        };
        let mut response = Response::new(Full::new(text));
        response.headers_mut().insert(CONTENT_TYPE_HEADER, HeaderValue::from_static(kind));
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    /// The time since the last collection, or since the start of the server.
    fn age(&self) -> Duration {
        self.last.borrow().as_ref().map_or(self.began, |(made, _)| *made).elapsed()
    }

    fn text(&self) -> Bytes {
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((made, text)) if made.elapsed() < self.fresh => text.clone(),
            _ => {
                let text = Bytes::from((self.collect.borrow_mut())());
                *last = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// Tests whether the client would rather have text/plain than OpenMetrics (RFC 9110, section 12.5.1). Versions do not
/// count: Prometheus 2.33 asks for version 0.0.1 of OpenMetrics, and reads 1.0.0.
fn prefers_plain(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(&str, f32)> = values.flat_map(|value| value.split(',')).map(range).collect();
    // The most specific range counts.
    let weight = |names: [&str; 3]| {
        let of = |name: &str| {
            let same = ranges.iter().filter(|(range, _)| range.eq_ignore_ascii_case(name));
            same.map(|(_, weight)| *weight).reduce(f32::max)
        };
        names.into_iter().find_map(of).unwrap_or_default()
    };
    let openmetrics = weight(["application/openmetrics-text", "application/*", "*/*"]);
    weight(["text/plain", "text/*", "*/*"]) > openmetrics
}

/// A media range of `Accept`, and its weight.
fn range(text: &str) -> (&str, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicU32;

    /// Stops the server at the end, also if an assertion fails: the scope waits for the server's thread.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Runs `ask` while a server runs. Its answers contain the number of collections, and are reused all the time.
    fn beside(ask: impl FnOnce(SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut made = 0;
                let collect = move || {
                    made += 1;
                    format!("made {made}\n# EOF\n")
                };
                let long = Duration::from_secs(3600);
                serve_at_ages(listener.into(), collect, &stop, long, long).unwrap();
            });
            let _stop = Stop(&stop);
            ask(address);
        });
    }

    fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap_or_default();
        answer
    }

    fn get(address: SocketAddr, path: &str) -> String {
        asked(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    #[test]
    fn the_metrics_are_at_one_path_and_made_once_for_all_who_ask_at_a_time() {
        beside(|address| {
            let first = get(address, "/metrics");
            assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
            assert!(first.to_lowercase().contains(&format!("content-type: {}", CONTENT_TYPE.to_lowercase())));
            assert!(first.ends_with("made 1\n# EOF\n"), "{first}");
            assert!(get(address, "/metrics?x=y").ends_with("made 1\n# EOF\n"));
            assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
            let post = asked(
                address,
                b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD"), "{post}");
        });
    }

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                        encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        beside(|address| {
            for (accept, plain) in [
                (prometheus, false),
                (
                    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                    false,
                ),
                (
                    "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.4",
                    true,
                ),
                ("text/plain;version=0.0.4;q=1,*/*;q=0.1", true),
                (protobuf, true),
                ("text/plain", true),
                ("Text/*; Q=0.2", true),
                ("application/openmetrics-text;q=0, */*", true),
                ("application/openmetrics-text, text/plain", false),
                (browser, false),
                ("*/*", false),
                ("text/html", false),
                ("", false),
            ] {
                let request = format!(
                    "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
                );
                let answer = asked(address, request.as_bytes());
                let (kind, text) =
                    if plain { (PLAIN, "\r\n\r\nmade 1\n") } else { (CONTENT_TYPE, "made 1\n# EOF\n") };
                assert!(answer.contains(&format!("content-type: {kind}\r\n")), "{accept}: {answer}");
                assert!(answer.contains("vary: Accept\r\n"), "{accept}: {answer}");
                assert!(answer.ends_with(text), "{accept}: {answer}");
            }
        });
    }

    #[test]
    fn what_nobody_asks_for_is_collected_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stop = AtomicBool::new(false);
        let made = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let made = Arc::clone(&made);
                let collect = move || {
                    made.fetch_add(1, Ordering::Relaxed);
                    "# EOF\n".to_owned()
                };
                serve_at_ages(listener.into(), collect, &stop, FRESH, FRESH).unwrap();
            });
            let latest = Instant::now() + Duration::from_secs(30);
            while made.load(Ordering::Relaxed) < 2 && Instant::now() < latest {
                std::thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(made.load(Ordering::Relaxed) >= 2);
    }

    #[test]
    fn a_unix_socket_answers_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener.into(), || "# EOF\n".to_owned(), &stop).unwrap());
            let _stop = Stop(&stop);
            let mut connection = UnixStream::connect(&path).unwrap();
            connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("200 OK") && answer.ends_with("# EOF\n"), "{answer}");
        });
    }

    #[test]
    fn what_is_no_request_or_has_no_end_takes_nothing_from_others() {
        beside(|address| {
            let endless = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; HEAD_BYTES * 2]].concat();
            for request in [&b"\x16\x03\x01\x02\x00"[..], b"metrics, please\r\n\r\n", &endless] {
                assert!(!asked(address, request).contains("200 OK"));
            }
            // Silent connections, one fewer than the limit.
            let silent: Vec<_> = (1..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            assert!(get(address, "/metrics").contains("# EOF"));
            drop(silent);
        });
    }
}
