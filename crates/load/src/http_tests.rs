use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

/// A server that takes `work` for each request, and refuses one request in `refuses`.
fn server(work: Duration, refuses: u64) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in socket.incoming() {
            let count = Arc::clone(&count);
            thread::spawn(move || serve(&stream.unwrap(), work, refuses, &count));
        }
    });
    address
}

fn serve(stream: &TcpStream, work: Duration, refuses: u64, count: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        assert_eq!(lines.next()?.ok()?, "GET /x?y=1 HTTP/1.1");
        while !lines.next()?.ok()?.is_empty() {}
        thread::sleep(work);
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let status = if refuses > 0 && number.is_multiple_of(refuses) { "503 Busy" } else { "200 OK" };
        (&mut &*stream)
            .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nabc").as_bytes())
            .ok()?;
    }
}

fn load(server: SocketAddr) -> HttpLoad {
    HttpLoad {
        server,
        host: server.to_string(),
        path: "/x?y=1".to_owned(),
        connections: 4,
        rate: 200.0,
        duration: Duration::from_millis(500),
        threads: 1,
        sources: Vec::new(),
    }
}

#[test]
fn requests_at_a_rate_that_is_attained() {
    for threads in [1, 2] {
        let outcome = HttpLoad { threads, ..load(server(Duration::ZERO, 0)) }.run().unwrap();
        // A busy machine may hold this process up at the end, and what was due then and not sent is lost.
        assert_eq!((outcome.due, outcome.failed_connections, outcome.refused), (100, 0, 0));
        assert_eq!((outcome.sent, outcome.lost), (outcome.answered, 100 - outcome.answered));
        assert!(outcome.answered > 0);
        assert_eq!(outcome.bytes, outcome.answered_in_time * 41);
        assert!(outcome.latency.unwrap().p50 > 0.0);
    }
}

#[test]
fn waiting_for_a_connection_is_latency() {
    // Four connections at 50 ms a request answer 80 in a second; 200 are due.
    let outcome = load(server(Duration::from_millis(50), 0)).run().unwrap();
    assert_eq!(outcome.due, 100);
    assert!(outcome.sent < 60 && outcome.lost > 40, "{outcome:?}");
    assert!(outcome.attained_percent() < 60.0, "{outcome:?}");
    // The last request that was sent had waited for more than half of that time.
    assert!(outcome.latency.unwrap().max > 0.2, "{outcome:?}");
}

#[test]
fn refusals_are_no_answers() {
    let outcome = load(server(Duration::ZERO, 5)).run().unwrap();
    assert!(outcome.refused > 0, "{outcome:?}");
    assert_eq!(outcome.refused, outcome.sent / 5);
    assert_eq!((outcome.answered, outcome.lost), (outcome.sent - outcome.refused, 100 - outcome.sent));
}

#[test]
fn a_server_that_goes_away_leaves_losses() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = thread::spawn(move || {
        let streams: Vec<TcpStream> = (0..4).map(|_| socket.accept().unwrap().0).collect();
        thread::sleep(Duration::from_millis(100));
        drop(streams);
    });
    let outcome = load(address).run().unwrap();
    server.join().unwrap();
    assert_eq!((outcome.answered, outcome.failed_connections), (0, 4));
    assert_eq!((outcome.due, outcome.lost, outcome.latency), (100, 100, None));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let good = load("127.0.0.1:1".parse().unwrap());
    for (load, expected) in [
        (HttpLoad { connections: 0, ..good.clone() }, "--connections"),
        (HttpLoad { threads: 5, ..good.clone() }, "--threads"),
        (HttpLoad { rate: 0.0, ..good.clone() }, "--rate"),
        (HttpLoad { path: "/a\r\nb: c".to_owned(), ..good.clone() }, "URL"),
        (good.clone(), "127.0.0.1:1 "),
    ] {
        let error = load.run().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
