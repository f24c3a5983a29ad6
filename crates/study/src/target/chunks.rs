//! A stream of bytes that arrives in chunks from another thread.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The time after which a read without data returns.
const LOOK: Duration = Duration::from_millis(100);

/// The stream of a [`Connection`](super::Connection). A read without data soon returns `WouldBlock`, so that the reader
/// can check for signals.
#[derive(Debug)]
pub struct Chunks {
    receiver: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    taken: usize,
}

impl Chunks {
    /// Reads from `receiver`; the stream ends when the sender is dropped.
    pub fn new(receiver: Receiver<Vec<u8>>) -> Self {
        Self { receiver, chunk: Vec::new(), taken: 0 }
    }

    /// Discards the next chunk, if one arrives soon, so that the sender does not block.
    pub fn discard(&mut self) {
        let _ = self.receiver.recv_timeout(LOOK);
    }
}

impl Read for Chunks {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() {
            match self.receiver.recv_timeout(LOOK) {
                Ok(chunk) => (self.chunk, self.taken) = (chunk, 0),
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let rest = self.chunk.get(self.taken..).unwrap_or_default();
        let most = rest.len().min(bytes.len());
        bytes[..most].copy_from_slice(&rest[..most]);
        self.taken += most;
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn chunks_are_one_stream_that_wakes_up_and_ends() {
        let (sender, receiver) = mpsc::channel();
        let mut chunks = Chunks::new(receiver);
        assert_eq!(chunks.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for chunk in ["ab", "cde"] {
            sender.send(chunk.as_bytes().to_vec()).unwrap();
        }
        drop(sender);
        let mut all = String::new();
        chunks.read_to_string(&mut all).unwrap();
        assert_eq!(all, "abcde");
    }
}
