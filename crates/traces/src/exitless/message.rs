//! Reads the messages of an Arrow stream (Arrow columnar format, "IPC Streaming Format").

use std::io::{self, Read};

use arrow_ipc::{Message, root_as_message};

use crate::Damage;

/// The first bytes of every message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The largest metadata that is read: longer than any schema or summary, where a thousand VMs have 40 KiB of names.
pub(super) const MOST_METADATA: u64 = 16 << 20;
/// The largest body that is read.
const MOST_BODY: u64 = 256 << 20;

/// Tests whether the first bytes are an Arrow stream: a message with a plausible length.
pub(super) fn begins(start: &[u8]) -> bool {
    let length =
        start.get(4..8).and_then(|bytes| bytes.first_chunk()).map(|&bytes| u32::from_le_bytes(bytes));
    start.starts_with(&CONTINUATION)
        && length.is_some_and(|length| length > 0 && length % 8 == 0 && u64::from(length) <= MOST_METADATA)
}

/// The next item of a stream.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// A message: see [`Messages::message`] and [`Messages::body`].
    Message,
    /// The end-of-stream marker.
    End,
}

/// Reads messages. Memory grows with the bytes that were read, not with the lengths in the file.
pub(super) struct Messages<R> {
    from: R,
    /// The number of bytes read so far.
    position: u64,
    /// The offset of the last message.
    start: u64,
    metadata: Vec<u8>,
    body: Vec<u8>,
}

impl<R: Read> Messages<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, position: 0, start: 0, metadata: Vec::new(), body: Vec::new() }
    }

    /// The number of bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Damage in the last message.
    pub(super) fn damage(&self, what: impl Into<String>) -> Damage {
        Damage { offset: self.start, what: what.into() }
    }

    /// Reads the next message. After an error, no further message can be found.
    pub(super) fn next(&mut self) -> Result<Next, Damage> {
        self.start = self.position;
        let mut prefix = Vec::new();
        self.fill(&mut prefix, 8)?;
        match prefix.len() {
            0 => {
                return Err(
                    self.damage("the recording stops without its end, as when the recorder was killed")
                );
            }
            8 => {}
            _ => return Err(self.cut()),
        }
        let length = prefix[4..].first_chunk().map_or(0, |&bytes| u64::from(u32::from_le_bytes(bytes)));
        if !prefix.starts_with(&CONTINUATION) || length > MOST_METADATA || length % 8 != 0 {
            return Err(self.damage("no message of Arrow's stream format begins here"));
        }
        if length == 0 {
            return Ok(Next::End);
        }
        let mut metadata = std::mem::take(&mut self.metadata);
        self.fill(&mut metadata, length)?;
        self.metadata = metadata;
        if self.metadata.len() as u64 != length {
            return Err(self.cut());
        }
        let length = self.message()?.bodyLength();
        let Some(length) = u64::try_from(length).ok().filter(|&length| length <= MOST_BODY) else {
            return Err(self.damage(format!("a message claims to have {length} bytes")));
        };
        let mut body = std::mem::take(&mut self.body);
        self.fill(&mut body, length)?;
        self.body = body;
        if self.body.len() as u64 != length {
            return Err(self.cut());
        }
        Ok(Next::Message)
    }

    /// The last message.
    pub(super) fn message(&self) -> Result<Message<'_>, Damage> {
        root_as_message(&self.metadata).map_err(|error| self.damage(format!("a message is broken: {error}")))
    }

    /// The buffers of the last message.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Tests whether the stream has ended.
    pub(super) fn is_at_the_end(&mut self) -> Result<bool, Damage> {
        let mut one = Vec::new();
        self.start = self.position;
        self.fill(&mut one, 1)?;
        Ok(one.is_empty())
    }

    fn fill(&mut self, into: &mut Vec<u8>, length: u64) -> Result<(), Damage> {
        into.clear();
        let result = (&mut self.from).take(length).read_to_end(into);
        self.position += into.len() as u64;
        result.map(drop).map_err(|error: io::Error| self.damage(error.to_string()))
    }

    fn cut(&self) -> Damage {
        self.damage(
            "the recording ends inside of a batch, as when the disk was full or the recorder was killed",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(bytes: &[u8]) -> Damage {
        Messages::new(bytes).next().unwrap_err()
    }

    #[test]
    fn a_length_alone_allocates_nothing() {
        let mut bytes = CONTINUATION.to_vec();
        bytes.extend_from_slice(&(MOST_METADATA as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 100]);
        let mut messages = Messages::new(&bytes[..]);
        assert!(messages.next().unwrap_err().what.contains("ends inside of a batch"));
        assert!(messages.metadata.capacity() < 4096);
    }

    #[test]
    fn what_is_no_message_is_damage() {
        for bytes in [&[0xff; 8][..], &[0; 8], &[0xff, 0xff, 0xff, 0xff, 4, 0, 0, 0], b"PARQUET1"] {
            assert_eq!(damaged(bytes).what, "no message of Arrow's stream format begins here");
        }
        let wrong = [&CONTINUATION[..], &8u32.to_le_bytes(), &[0x7f; 8]].concat();
        assert!(damaged(&wrong).what.starts_with("a message is broken"), "{}", damaged(&wrong));
        assert!(damaged(&[]).what.contains("without its end"));
        let end = [&CONTINUATION[..], &[0; 4]].concat();
        assert_eq!(Messages::new(&end[..]).next(), Ok(Next::End));
    }
}
