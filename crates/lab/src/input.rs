//! The input of an emulated host: the order, and the files that it places.

use std::fs::File;
use std::io::{self, Read, Write};

use crate::error::Error;
use crate::frames::{Frame, LARGEST_PAYLOAD};
use crate::job::{Order, PlacedFile};

/// The number of a file's bytes in one frame.
const PIECE: usize = LARGEST_PAYLOAD / 4;

/// All that is sent to the agent. Its length is fixed in advance, because the emulator stops the clock until
/// all of it has arrived.
#[derive(Debug)]
pub(crate) struct Input {
    order: Vec<u8>,
    files: Vec<(PlacedFile, File)>,
}

impl Input {
    pub(crate) fn new(order: Order, files: Vec<(PlacedFile, File)>) -> Self {
        Self { order: Frame::Order(Box::new(order)).encode(), files }
    }

    /// The length in bytes.
    pub(crate) fn length(&self) -> u64 {
        let frame = Frame::Put(Vec::new()).encode().len() as u64;
        let framed = |bytes: u64| bytes + bytes.div_ceil(PIECE as u64) * frame;
        self.order.len() as u64 + self.files.iter().map(|(placed, _)| framed(placed.bytes)).sum::<u64>()
    }

    /// Sends the input. An error is `None` if the emulator accepts no more bytes; then its exit gives the
    /// reason. Otherwise it names the file that could not be read, for which the agent would wait forever.
    pub(crate) fn send(self, to: &mut impl Write) -> Result<(), Option<Error>> {
        to.write_all(&self.order).map_err(|_| None)?;
        for (placed, mut file) in self.files {
            let mut left = placed.bytes;
            while left > 0 {
                let mut piece = vec![0; left.min(PIECE as u64) as usize];
                left -= piece.len() as u64;
                file.read_exact(&mut piece).map_err(|error| cannot_send(&placed, error))?;
                to.write_all(&Frame::Put(piece).encode()).map_err(|_| None)?;
            }
        }
        to.flush().map_err(|_| None)
    }
}

fn cannot_send(placed: &PlacedFile, error: io::Error) -> Error {
    let error = match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("it had {} bytes at first, and ends before", placed.bytes),
        ),
        _ => error,
    };
    Error::file("Could not send the file to be put at", &placed.path)(error)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Seek;

    use super::*;

    /// An order with one file, announced with the size `told`.
    pub(crate) fn input_with(bytes: &[u8], told: u64) -> Input {
        let order = Order {
            command: Vec::new(),
            put: Vec::new(),
            get: Vec::new(),
            terminal: None,
            terminal_kind: String::new(),
            clock: 0,
            seed: 0,
            switch_cycles: 0,
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        Input::new(order, vec![(PlacedFile { path: "log".to_owned(), mode: 0o644, bytes: told }, file)])
    }

    #[test]
    fn its_length_is_known_beforehand() {
        for bytes in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let (mut sent, input) = (Vec::new(), input_with(&vec![7; bytes], bytes as u64));
            let length = input.length();
            input.send(&mut sent).unwrap();
            assert_eq!(sent.len() as u64, length, "{bytes}");
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_sent_is_told() {
        let failure = input_with(b"12345", 6).send(&mut Vec::new()).unwrap_err().unwrap();
        assert!(failure.to_string().ends_with("log"), "{failure}");
        for told in [5, 4] {
            input_with(b"12345", told).send(&mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn an_emulator_that_has_ended_is_no_failure_of_the_files() {
        let mut full: [u8; 0] = [];
        assert!(input_with(b"12345", 6).send(&mut full.as_mut_slice()).unwrap_err().is_none());
    }
}
