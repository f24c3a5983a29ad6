use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use super::*;

/// A minimal broker with one thread for each client (MQTT 3.1.1, sections 3.1, 3.3, 3.8).
struct Broker {
    listeners: Mutex<Vec<(String, TcpStream)>>,
    /// Every n-th message is dropped; 0: none.
    forgets: u64,
    seen: Mutex<u64>,
    refuses: bool,
}

/// Starts a broker on a port of its own.
fn broker(forgets: u64, refuses: bool) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let broker = Arc::new(Broker { listeners: Mutex::default(), forgets, seen: Mutex::default(), refuses });
    thread::spawn(move || {
        for stream in socket.incoming() {
            let broker = Arc::clone(&broker);
            thread::spawn(move || broker.serve(stream.unwrap()));
        }
    });
    address
}

impl Broker {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        loop {
            let mut first = [0; 1];
            stream.read_exact(&mut first).ok()?;
            let (mut length, mut shift) = (0, 0);
            loop {
                let mut digit = [0; 1];
                stream.read_exact(&mut digit).ok()?;
                length |= usize::from(digit[0] & 0x7f) << shift;
                shift += 7;
                if digit[0] & 0x80 == 0 {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).ok()?;
            let text = |from: usize| {
                let length = usize::from(u16::from_be_bytes([body[from], body[from + 1]]));
                (String::from_utf8(body[from + 2..from + 2 + length].to_vec()).unwrap(), from + 2 + length)
            };
            match first[0] {
                0x10 => {
                    assert_eq!(text(0).0, "MQTT");
                    stream.write_all(&[0x20, 2, 0, if self.refuses { 5 } else { 0 }]).ok()?;
                }
                0x82 => {
                    let (topic, end) = text(2);
                    stream.write_all(&[0x90, 3, body[0], body[1], body[end]]).ok()?;
                    self.listeners.lock().unwrap().push((topic, stream.try_clone().unwrap()));
                }
                0x30 | 0x32 => self.publish(first[0], &body, &text(0), &mut stream)?,
                0x40 => {}
                other => panic!("a client sent a packet of type {other:x}"),
            }
        }
    }

    fn publish(&self, first: u8, body: &[u8], topic: &(String, usize), from: &mut TcpStream) -> Option<()> {
        if first == 0x32 {
            from.write_all(&[0x40, 2, body[topic.1], body[topic.1 + 1]]).ok()?;
        }
        let mut seen = self.seen.lock().unwrap();
        *seen += 1;
        if self.forgets > 0 && seen.is_multiple_of(self.forgets) {
            return Some(());
        }
        let listeners = self.listeners.lock().unwrap();
        let (_, to) = listeners.iter().find(|(name, _)| *name == topic.0)?;
        let mut whole = vec![first];
        let mut rest = body.len();
        while rest > 127 {
            whole.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        whole.push(rest as u8);
        whole.extend_from_slice(body);
        (&mut &*to).write_all(&whole).ok()
    }
}

fn load(broker: SocketAddr) -> MqttLoad {
    MqttLoad {
        brokers: vec![broker],
        connections: 20,
        subscribers: 3,
        rate: 500.0,
        duration: Duration::from_millis(400),
        message_size: 64,
        acknowledged: false,
        threads: 1,
        sources: Vec::new(),
    }
}

#[test]
fn every_message_is_delivered_and_timed() {
    for (acknowledged, threads, message_size) in [(false, 1, 64), (true, 2, 16), (true, 1, 300)] {
        let load = MqttLoad { acknowledged, threads, message_size, ..load(broker(0, false)) };
        let outcome = load.run().unwrap();
        assert_eq!((outcome.connections, outcome.failed_connections), (23, 0));
        assert!((199..=201).contains(&outcome.due), "{outcome:?}");
        assert_eq!((outcome.sent, outcome.answered, outcome.lost), (outcome.due, outcome.due, 0));
        assert_eq!(outcome.bytes, outcome.answered_in_time * u64::from(message_size));
        let latency = outcome.latency.unwrap();
        assert!(latency.p50 > 0.0 && latency.p50 <= latency.max, "{latency:?}");
    }
}

#[test]
fn messages_that_never_come_are_lost() {
    let outcome = load(broker(10, false)).run().unwrap();
    assert_eq!((outcome.sent, outcome.answered, outcome.lost), (200, 180, 20));
}

#[test]
fn a_broker_that_delivers_now_and_then_does_not_hold_the_load() {
    let end = Instant::now();
    assert_eq!(patience(end, end - Duration::from_secs(9)), end + SILENCE);
    let mut last = end;
    // A message arrives just before the wait ends, again and again.
    for _ in 0..1000 {
        last = patience(end, last) - Duration::from_millis(1);
    }
    assert!(patience(end, last) <= end + LATE);
}

#[test]
fn a_broker_that_refuses_is_told_so() {
    let error = load(broker(0, true)).run().unwrap_err().to_string();
    assert!(error.contains("was reached but refused the client with code 5"), "{error}");
    // Nobody listens on it, and nobody else gets it.
    let closed = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&closed, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address: SocketAddr = getsockname(&closed).unwrap().try_into().unwrap();
    let error = load(address).run().unwrap_err().to_string();
    assert!(error.contains("refused") || error.contains("takes no connections"), "{error}");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let good = load("127.0.0.1:1".parse().unwrap());
    for (load, expected) in [
        (MqttLoad { connections: 0, ..good.clone() }, "--connections"),
        (MqttLoad { threads: 4, ..good.clone() }, "--threads"),
        (MqttLoad { rate: f64::NAN, ..good.clone() }, "--rate"),
        (MqttLoad { rate: 1e12, ..good.clone() }, "too many messages"),
        (MqttLoad { message_size: 15, ..good.clone() }, "--message-size"),
        (MqttLoad { duration: Duration::ZERO, ..good.clone() }, "--duration"),
    ] {
        let error = load.run().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_message_counts_once() {
    let mut seen = Seen::new(65);
    assert_eq!(
        [seen.first(64), seen.first(64), seen.first(0), seen.first(1 << 40)],
        [true, false, true, false]
    );
}
