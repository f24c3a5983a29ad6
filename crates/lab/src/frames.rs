//! Framed streams between this program and the agent in an emulated host.
//!
//! Both directions use a byte channel of their own (a virtio port, or the debug port 0xe9), not the kernel's
//! console. A frame is `XLF1`, kind (1 byte), payload length (4 bytes, little-endian), CRC-32 of kind and
//! payload (4 bytes, little-endian), payload. Emulators print a banner to the same channel, so on this
//! machine the reader treats bytes between frames as noise: it keeps them for error messages, and searches
//! for the next `XLF1`. The agent receives only frames, so it treats anything else as an error.
//!
//! The input of a shell and the size of the user's window travel over a serial line, also in frames. There
//! the agent skips noise, because a serial line can lose bytes.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::job::{Order, TerminalSize};

const MARK: &[u8; 4] = b"XLF1";
const HEADER: usize = 13;
/// The largest payload that is accepted; the agent sends much smaller ones.
pub(crate) const LARGEST_PAYLOAD: usize = 1 << 20;

/// A point of the run that the agent has reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The name of the point: `init`, `modules`, `waiting` (for an order), `order`, `root`, `terminal` (a
    /// shell accepts input from now on), `command`, `files`.
    pub reached: String,
    /// Seconds since the emulated kernel started, by its clock.
    pub uptime: f64,
}

/// The end of a command inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The command's exit status.
    Status(i32),
    /// The number of the signal that killed the command.
    Signal(i32),
}

impl Ending {
    /// The exit status by a shell's convention: 128 plus the number of the signal that killed the command.
    pub fn code(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A message from the agent or to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    /// To the agent: the order.
    Order(Box<Order>),
    /// To the agent: the next bytes of the files to write, in the order of [`Order::put`].
    Put(Vec<u8>),
    /// To the agent: the user's input.
    Typed(Vec<u8>),
    /// To the agent: the new size of the user's terminal.
    Resized(TerminalSize),
    Moment(Moment),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The next bytes of a tar stream with the requested files.
    Files(Vec<u8>),
    /// A problem that does not end the run.
    Warning(String),
    /// The agent failed.
    Failure(String),
    Ended(Ending),
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Order(_) => b'j',
            Self::Put(_) => b'p',
            Self::Typed(_) => b't',
            Self::Resized(_) => b's',
            Self::Moment(_) => b'm',
            Self::Stdout(_) => b'o',
            Self::Stderr(_) => b'e',
            Self::Files(_) => b'f',
            Self::Warning(_) => b'w',
            Self::Failure(_) => b'x',
            Self::Ended(_) => b'z',
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut out = Vec::with_capacity(HEADER + payload.len());
        out.extend_from_slice(MARK);
        out.push(self.kind());
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&checksum(self.kind(), &payload).to_le_bytes());
        out.extend_from_slice(&payload);
        out
    }

    /// The bytes after the header.
    pub(crate) fn payload(&self) -> Vec<u8> {
        match self {
            Self::Order(order) => serde_json::to_vec(order).unwrap_or_default(),
            Self::Resized(size) => serde_json::to_vec(size).unwrap_or_default(),
            Self::Moment(moment) => serde_json::to_vec(moment).unwrap_or_default(),
            Self::Ended(ending) => serde_json::to_vec(ending).unwrap_or_default(),
            Self::Put(bytes)
            | Self::Typed(bytes)
            | Self::Stdout(bytes)
            | Self::Stderr(bytes)
            | Self::Files(bytes) => bytes.clone(),
            Self::Warning(text) | Self::Failure(text) => text.clone().into_bytes(),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let text = || String::from_utf8_lossy(payload).into_owned();
        match kind {
            b'j' => serde_json::from_slice(payload).ok().map(Self::Order),
            b'p' => Some(Self::Put(payload.to_vec())),
            b't' => Some(Self::Typed(payload.to_vec())),
            b's' => serde_json::from_slice(payload).ok().map(Self::Resized),
            b'm' => serde_json::from_slice(payload).ok().map(Self::Moment),
            b'o' => Some(Self::Stdout(payload.to_vec())),
            b'e' => Some(Self::Stderr(payload.to_vec())),
            b'f' => Some(Self::Files(payload.to_vec())),
            b'w' => Some(Self::Warning(text())),
            b'x' => Some(Self::Failure(text())),
            b'z' => serde_json::from_slice(payload).ok().map(Self::Ended),
            _ => None,
        }
    }

    /// Reads the next frame of a stream that contains only frames.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let header = Header::parse(&header)
            .ok_or_else(|| io::Error::other(format!("expected a frame, found the bytes {header:02x?}")))?;
        let mut payload = vec![0; header.length];
        from.read_exact(&mut payload)?;
        header.frame(&payload).ok_or_else(|| io::Error::other("a frame arrived damaged"))
    }
}

/// The part of a frame before its payload.
struct Header {
    kind: u8,
    length: usize,
    checksum: u32,
}

impl Header {
    /// Parses a header; `None` without `XLF1`, or if the payload would be larger than [`LARGEST_PAYLOAD`].
    fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let [m0, m1, m2, m3, kind, l0, l1, l2, l3, c0, c1, c2, c3] = *bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let checksum = u32::from_le_bytes([c0, c1, c2, c3]);
        (&[m0, m1, m2, m3] == MARK && length <= LARGEST_PAYLOAD).then_some(Self { kind, length, checksum })
    }

    /// The frame; `None` if the checksum is wrong.
    fn frame(&self, payload: &[u8]) -> Option<Frame> {
        (checksum(self.kind, payload) == self.checksum).then(|| Frame::decode(self.kind, payload)).flatten()
    }
}

fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(payload);
    hasher.finalize()
}

/// Finds frames in a stream that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    received: Vec<u8>,
    /// The number of processed bytes in `received`. They are removed when the next piece arrives, not after
    /// each frame: moving the rest of a large piece for each frame would take quadratic time.
    done: usize,
    noise: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Remove processed bytes only if at most as many have to be moved.
        if self.done >= self.received.len() - self.done {
            self.received.drain(..self.done);
            self.done = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// The next complete frame, if one has arrived.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            let pending = &self.received[self.done..];
            let Some(at) = find_mark(pending) else {
                let keep = pending.len().min(MARK.len() - 1);
                self.discard(pending.len() - keep);
                return None;
            };
            self.discard(at);
            let pending = &self.received[self.done..];
            let Some(header) = Header::parse(pending.first_chunk()?) else {
                self.discard(1);
                continue;
            };
            let payload = pending.get(HEADER..HEADER + header.length)?;
            match header.frame(payload) {
                Some(frame) => {
                    self.done += HEADER + header.length;
                    return Some(frame);
                }
                None => self.discard(1),
            }
        }
    }

    /// The bytes between the frames so far.
    pub(crate) fn noise(&self) -> &[u8] {
        &self.noise
    }

    fn discard(&mut self, count: usize) {
        const KEPT_NOISE: usize = 64 << 10;
        let room = KEPT_NOISE.saturating_sub(self.noise.len());
        let kept = self.done + count.min(room);
        self.noise.extend_from_slice(&self.received[self.done..kept]);
        self.done += count;
    }
}

fn find_mark(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|window| window == MARK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Frame>, Vec<u8>) {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        let frames = std::iter::from_fn(|| decoder.next()).collect();
        (frames, decoder.noise)
    }

    #[test]
    fn a_banner_before_and_between_frames_is_noise() {
        let mut stream = b"Bochs x86 Emulator 3.0\nXLF".to_vec();
        stream.extend(Frame::Stdout(b"hello".to_vec()).encode());
        stream.extend(b"junk");
        stream.extend(Frame::Ended(Ending::Status(3)).encode());
        let (frames, noise) = all(&stream);
        assert_eq!(frames, [Frame::Stdout(b"hello".to_vec()), Frame::Ended(Ending::Status(3))]);
        assert_eq!(noise, b"Bochs x86 Emulator 3.0\nXLFjunk");
    }

    #[test]
    fn a_damaged_frame_is_passed_over_and_the_next_is_found() {
        let mut stream = Frame::Stderr(b"lost".to_vec()).encode();
        stream[HEADER] ^= 1;
        stream.extend(Frame::Stderr(b"kept".to_vec()).encode());
        assert_eq!(all(&stream).0, [Frame::Stderr(b"kept".to_vec())]);
    }

    #[test]
    fn what_is_typed_and_the_windows_size_come_through_a_line_that_loses_bytes() {
        let resized = Frame::Resized(TerminalSize { rows: 50, columns: 132 });
        let mut stream = Frame::Typed(b"l".to_vec()).encode()[3..].to_vec();
        stream.extend(resized.encode());
        stream.extend(Frame::Typed(b"s\r".to_vec()).encode());
        assert_eq!(all(&stream).0, [resized, Frame::Typed(b"s\r".to_vec())]);
    }

    #[test]
    fn a_length_beyond_the_limit_does_not_wait_for_it() {
        let mut stream = b"XLF1o\xff\xff\xff\xff0000".to_vec();
        stream.extend(Frame::Warning("kept".into()).encode());
        assert_eq!(all(&stream).0, [Frame::Warning("kept".into())]);
    }

    #[test]
    fn no_more_is_kept_than_has_yet_to_be_read() {
        let frame = Frame::Stdout(vec![0; 100]).encode();
        let mut decoder = Decoder::default();
        for _ in 0..1000 {
            decoder.push(&frame);
            assert!(decoder.next().is_some());
        }
        assert!(decoder.received.len() <= 2 * frame.len());
    }

    #[test]
    fn a_reader_of_frames_alone_refuses_anything_else() {
        let frame = Frame::Put(b"file".to_vec());
        let mut stream = frame.encode();
        assert_eq!(Frame::read(&mut stream.as_slice()).unwrap(), frame);
        stream[HEADER] ^= 1;
        assert!(Frame::read(&mut stream.as_slice()).unwrap_err().to_string().contains("damaged"));
        stream[0] ^= 1;
        assert!(Frame::read(&mut stream.as_slice()).unwrap_err().to_string().contains("expected a frame"));
        assert!(Frame::read(&mut &frame.encode()[..HEADER + 1]).is_err());
    }

    #[test]
    fn signals_become_the_shells_status() {
        assert_eq!((Ending::Status(7).code(), Ending::Signal(9).code()), (7, 137));
    }

    proptest! {
        #[test]
        fn frames_survive_any_splitting(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
                                        piece in 1usize..40) {
            let sent: Vec<Frame> = payloads.into_iter().map(Frame::Files).collect();
            let stream: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in stream.chunks(piece) {
                decoder.push(part);
                got.extend(std::iter::from_fn(|| decoder.next()));
            }
            prop_assert_eq!(got, sent);
            prop_assert!(decoder.noise().is_empty());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = all(&bytes);
        }
    }
}
