//! The messages between the host and the agent in a guest, over a byte channel.
//!
//! A frame is `XGF1`, kind (1 byte), job (4 bytes), payload length (4 bytes), CRC-32 of kind, job and payload (4 bytes),
//! payload; numbers are little-endian. On a serial port, firmware and kernel may print before the agent starts, so the
//! reader skips bytes that are not part of a frame, up to the next mark.

const MARK: &[u8; 4] = b"XGF1";
const HEADER: usize = 17;
/// The largest payload that is accepted; a larger length is a false mark.
const LARGEST_PAYLOAD: usize = 1 << 20;
/// The largest payload of a message about a script that runs. The output of scripts is sent in such pieces.
pub const PIECE: usize = 32 << 10;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To the guest: start the script in the payload, which then waits for its release.
    Start,
    /// To the guest: release the job's script.
    Release,
    /// To the guest: send SIGTERM to the job.
    Terminate,
    /// To the guest: send SIGKILL to the job.
    Kill,
    /// To the guest: power off.
    PowerOff,
    /// From the guest: it is up; the payload is [`Hello`](crate::Hello).
    Hello,
    /// From the guest: the job printed this.
    Stdout,
    /// From the guest: the job printed this to standard error.
    Stderr,
    /// From the guest: the job ended; the payload is its exit status in decimal digits.
    Ended,
    /// From the guest: its setup failed; the payload is the reason.
    Failed,
}

const KINDS: [(Kind, u8); 10] = [
    (Kind::Start, b's'),
    (Kind::Release, b'r'),
    (Kind::Terminate, b't'),
    (Kind::Kill, b'k'),
    (Kind::PowerOff, b'p'),
    (Kind::Hello, b'h'),
    (Kind::Stdout, b'o'),
    (Kind::Stderr, b'e'),
    (Kind::Ended, b'z'),
    (Kind::Failed, b'x'),
];

impl Kind {
    /// The largest payload that is accepted. It is small for frequent kinds, because the decoder waits for as many bytes
    /// as a damaged length says.
    fn largest(self) -> usize {
        match self {
            Self::Start | Self::Hello | Self::Failed => LARGEST_PAYLOAD,
            _ => PIECE,
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// The number that the host gave the script; 0 for the guest as a whole.
    pub job: u32,
    /// Its content.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A message of a kind about a job.
    pub fn new(kind: Kind, job: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, job, payload: payload.into() }
    }

    /// Its bytes on the channel.
    pub fn encode(&self) -> Vec<u8> {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or(0, |&(_, byte)| byte);
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        bytes.extend_from_slice(MARK);
        bytes.push(kind);
        bytes.extend_from_slice(&self.job.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&checksum(kind, self.job, &self.payload).to_le_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

fn checksum(kind: u8, job: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(&job.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Finds frames in a stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
    /// The number of consumed bytes at the start of `received`, which [`Self::push`] removes.
    done: usize,
}

impl Decoder {
    /// Takes what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        // Compact only when that moves no more bytes than it frees.
        if self.done >= self.received.len() - self.done {
            self.received.drain(..self.done);
            self.done = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// The next whole frame, if one has arrived.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let pending = &self.received[self.done..];
            let Some(at) = pending.windows(MARK.len()).position(|window| window == MARK) else {
                self.done += pending.len().saturating_sub(MARK.len() - 1);
                return None;
            };
            self.done += at;
            let pending = &self.received[self.done..];
            let header: [u8; HEADER] = pending.get(..HEADER)?.try_into().ok()?;
            let number =
                |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (job, length, expected) = (number(5), number(9) as usize, number(13));
            let kind = KINDS.iter().find(|(_, byte)| *byte == header[4]).map(|&(kind, _)| kind);
            let Some(kind) = kind.filter(|kind| length <= kind.largest()) else {
                self.done += 1;
                continue;
            };
            let payload = pending.get(HEADER..HEADER + length)?;
            if checksum(header[4], job, payload) == expected {
                let frame = Frame::new(kind, job, payload);
                self.done += HEADER + length;
                return Some(frame);
            }
            self.done += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Frame> {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        std::iter::from_fn(|| decoder.next_frame()).collect()
    }

    #[test]
    fn words_of_the_firmware_and_a_damaged_frame_are_passed_over() {
        let mut stream = b"SeaBIOS (version 1.16)\r\nXGF".to_vec();
        let damaged = Frame::new(Kind::Stdout, 1, *b"lost").encode();
        stream.extend(&damaged[..damaged.len() - 1]);
        let kept = Frame::new(Kind::Ended, 7, *b"0");
        stream.extend(kept.encode());
        assert_eq!(all(&stream), [kept]);
    }

    #[test]
    fn a_length_beyond_the_limit_does_not_wait_for_it() {
        let longer = u32::try_from(PIECE).unwrap() + 1;
        for (kind, length) in [(b'o', u32::MAX), (b'o', longer), (b'z', longer), (b'?', 9)] {
            let mut stream = [&b"XGF1"[..], &[kind], &[0; 4], &length.to_le_bytes(), b"0000"].concat();
            let kept = Frame::new(Kind::Hello, 0, *b"{}");
            stream.extend(kept.encode());
            assert_eq!(all(&stream), [kept]);
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_splitting(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
            kind in 0..KINDS.len(), job: u32, piece in 1usize..40,
        ) {
            let sent: Vec<Frame> =
                payloads.into_iter().map(|payload| Frame::new(KINDS[kind].0, job, payload)).collect();
            let stream: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in stream.chunks(piece) {
                decoder.push(part);
                got.extend(std::iter::from_fn(|| decoder.next_frame()));
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = all(&bytes);
        }
    }
}
