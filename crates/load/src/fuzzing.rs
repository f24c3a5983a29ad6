//! Entry points for fuzzing: parsing the answers of servers and brokers without a network.

use crate::crowd::{Happened, Session};
use crate::http::Asking;
use crate::mqtt::Client;

/// Parses the answers of a web server.
pub fn http_answers(bytes: &[u8], pieces: &[u8]) {
    both_ways(Asking::default, bytes, pieces);
}

/// Parses the packets of an MQTT broker.
pub fn mqtt_packets(bytes: &[u8], pieces: &[u8]) {
    both_ways(|| Client::for_fuzzing(0x0102_0304_0506_0708), bytes, pieces);
}

/// Asserts that the result does not depend on the sizes of the reads.
fn both_ways<S: Session>(session: impl Fn() -> S, bytes: &[u8], pieces: &[u8]) {
    let whole = fed(session(), [bytes]);
    let mut rest = bytes;
    let cut = pieces.iter().map(|&length| {
        let (piece, behind) = rest.split_at(usize::from(length).min(rest.len()));
        rest = behind;
        piece
    });
    let mut cut: Vec<&[u8]> = cut.collect();
    cut.push(rest);
    assert_eq!(fed(session(), cut), whole);
}

/// Feeds a session as a connection does: unconsumed bytes are passed again together with the next ones.
fn fed<'b>(
    mut session: impl Session,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<Happened>, Option<String>) {
    let (mut happened, mut incoming) = (Vec::new(), Vec::new());
    let _ = session.greeting();
    for piece in pieces {
        incoming.extend_from_slice(piece);
        match session.take(&incoming, &mut happened) {
            Ok(taken) => {
                assert!(taken <= incoming.len());
                incoming.drain(..taken);
            }
            Err(why) => return (happened, Some(why)),
        }
    }
    (happened, None)
}
