//! The stream by which results leave an emulated host.
//!
//! The agent inside writes frames to a byte channel of its own (a virtio port, or the debug port 0xe9), apart from the
//! kernel's console. Each frame is `XLF1`, kind (1 byte), payload length (4 bytes, little-endian), CRC-32 of kind and
//! payload (4 bytes, little-endian), payload. Emulators print a banner on the same channel, so the reader takes what
//! stands between frames as noise, keeps it for error messages, and finds the next frame by its mark.

use serde::{Deserialize, Serialize};

const MARK: &[u8; 4] = b"XLF1";
const HEADER: usize = 13;
/// The largest payload that a reader accepts; the agent writes far less.
pub(crate) const LARGEST_PAYLOAD: usize = 1 << 20;

/// A moment that the agent reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// What has just been reached: `init`, `modules`, `disk`, `command`, `files`.
    pub reached: String,
    /// Seconds since the kernel inside started, by its own clock.
    pub uptime: f64,
}

/// How a command inside ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It returned this status.
    Status(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Ending {
    /// The exit status as a shell gives it: 128 and the signal's number for a signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// One message from the agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Moment(Moment),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The next bytes of a tar stream with the files that were asked for.
    Files(Vec<u8>),
    /// Something that went wrong without ending the run.
    Warning(String),
    /// The agent gives up.
    Failure(String),
    Ended(Ending),
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
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
        let payload = match self {
            Self::Moment(moment) => serde_json::to_vec(moment).unwrap_or_default(),
            Self::Ended(ending) => serde_json::to_vec(ending).unwrap_or_default(),
            Self::Stdout(bytes) | Self::Stderr(bytes) | Self::Files(bytes) => bytes.clone(),
            Self::Warning(text) | Self::Failure(text) => text.clone().into_bytes(),
        };
        let mut out = Vec::with_capacity(HEADER + payload.len());
        out.extend_from_slice(MARK);
        out.push(self.kind());
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&checksum(self.kind(), &payload).to_le_bytes());
        out.extend_from_slice(&payload);
        out
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let text = || String::from_utf8_lossy(payload).into_owned();
        match kind {
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
    /// How much of `received` has been dealt with. It goes when the next piece comes, not with every frame: moving
    /// the rest of a large piece forward each time would take time by the square of its length.
    done: usize,
    noise: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // No more bytes are moved than are dropped.
        if self.done >= self.received.len() - self.done {
            self.received.drain(..self.done);
            self.done = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// The next whole frame, if one has arrived.
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
            let header: [u8; HEADER] = pending.get(..HEADER)?.try_into().ok()?;
            let kind = header[4];
            let length = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
            let expected = u32::from_le_bytes([header[9], header[10], header[11], header[12]]);
            if length > LARGEST_PAYLOAD {
                self.discard(1);
                continue;
            }
            let payload = pending.get(HEADER..HEADER + length)?;
            let frame = (checksum(kind, payload) == expected).then(|| Frame::decode(kind, payload)).flatten();
            match frame {
                Some(frame) => {
                    self.done += HEADER + length;
                    return Some(frame);
                }
                None => self.discard(1),
            }
        }
    }

    /// What stood between the frames so far.
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
