//! Frames: a letter, a length of four bytes (little endian), and that many bytes.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The marker line before the first frame.
const BEGIN: &[u8] = b"exitless-study-stream 1\n";
/// The most bytes before the marker, such as greetings of a login shell.
const LONGEST_GREETING: usize = 64 << 10;
/// The largest message. The largest ones are records of runs, some 100 KiB for hundreds of guests.
const LARGEST_MESSAGE: u32 = 64 << 20;
/// The largest chunk of a file.
pub const LARGEST_CHUNK: u32 = 1 << 20;

const MESSAGE: u8 = b'M';
const CHUNK: u8 = b'C';

/// The reason why a stream ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream broke off.
    #[error("The connection was lost{}", after(said))]
    Broken {
        /// The text before the first frame, if no frame arrived.
        said: String,
    },
    /// The stream could not be read or written.
    #[error("The connection failed")]
    Failed(#[source] io::Error),
    /// The stream contains an invalid frame.
    #[error("Invalid frame at byte {offset} of the connection: {what}")]
    Damaged {
        /// Bytes since the start of the stream.
        offset: u64,
        /// The invalid content.
        what: String,
    },
    /// A received run could not be stored here.
    #[error("Could not store the received data")]
    Kept(#[from] crate::store::StoreError),
}

fn after(said: &str) -> String {
    if said.trim().is_empty() { String::new() } else { format!(", and the other side said: {}", said.trim()) }
}

/// The sending end.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
}

impl<W: Write> Writer<W> {
    /// Starts a stream.
    ///
    /// # Errors
    /// [`StreamError::Failed`].
    pub fn begin(mut inner: W) -> Result<Self, StreamError> {
        inner.write_all(BEGIN).and_then(|()| inner.flush()).map_err(StreamError::Failed)?;
        Ok(Self { inner })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`StreamError::Failed`].
    pub fn message<T: Serialize>(&mut self, message: &T) -> Result<(), StreamError> {
        let text = serde_json::to_vec(message).map_err(|error| StreamError::Failed(error.into()))?;
        self.frame(MESSAGE, &text).and_then(|()| self.inner.flush()).map_err(StreamError::Failed)
    }

    /// Sends a chunk of a file, of at most [`LARGEST_CHUNK`] bytes.
    ///
    /// # Errors
    /// [`StreamError::Failed`].
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.frame(CHUNK, bytes).map_err(StreamError::Failed)
    }

    /// Flushes all frames.
    ///
    /// # Errors
    /// [`StreamError::Failed`].
    pub fn flush(&mut self) -> Result<(), StreamError> {
        self.inner.flush().map_err(StreamError::Failed)
    }

    fn frame(&mut self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.inner.write_all(&[kind])?;
        self.inner.write_all(&length.to_le_bytes())?;
        self.inner.write_all(bytes)
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Reader<R> {
    inner: R,
    offset: u64,
}

impl<R: Read> Reader<R> {
    /// Waits for the start of a stream.
    ///
    /// # Errors
    /// [`StreamError::Broken`] with the text that came instead.
    pub fn begin(mut inner: R) -> Result<Self, StreamError> {
        let mut said = Vec::new();
        let mut byte = [0];
        while !said.ends_with(BEGIN) {
            let read = read_some(&mut inner, &mut byte).map_err(StreamError::Failed)?;
            if read == 0 || said.len() > LONGEST_GREETING {
                return Err(StreamError::Broken { said: String::from_utf8_lossy(&said).into_owned() });
            }
            said.push(byte[0]);
        }
        Ok(Self { inner, offset: said.len() as u64 })
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// [`StreamError`]; an unknown message counts as damage.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<T, StreamError> {
        let begin = self.offset;
        let bytes = self.frame(MESSAGE, LARGEST_MESSAGE)?;
        let damaged =
            |error: serde_json::Error| StreamError::Damaged { offset: begin, what: error.to_string() };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Reads the next chunk of a file.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn chunk(&mut self) -> Result<Vec<u8>, StreamError> {
        self.frame(CHUNK, LARGEST_CHUNK)
    }

    /// The underlying reader.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Bytes read since the start of the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn frame(&mut self, expected: u8, most: u32) -> Result<Vec<u8>, StreamError> {
        let begin = self.offset;
        let damaged = |what: String| StreamError::Damaged { offset: begin, what };
        let mut head = [0; 5];
        self.exactly(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        if kind != expected || length > most {
            let what = format!(
                "expected {:?} with {most} bytes at most, found {:?} with {length}",
                char::from(expected),
                char::from(kind)
            );
            return Err(damaged(what));
        }
        // Let the buffer grow as bytes arrive, so that a false length does not allocate memory.
        let mut bytes = Vec::new();
        let read = Read::by_ref(&mut self.inner).take(u64::from(length)).read_to_end(&mut bytes);
        read.map_err(StreamError::Failed)?;
        if bytes.len() as u64 != u64::from(length) {
            return Err(StreamError::Broken { said: String::new() });
        }
        self.offset += u64::from(length);
        Ok(bytes)
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), StreamError> {
        match self.inner.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(StreamError::Broken { said: String::new() })
            }
            Err(error) => Err(StreamError::Failed(error)),
        }
    }
}

fn read_some(inner: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match inner.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
