//! Numbers, texts and blocks of a file or of a part of one, one after the other.

use std::io::{self, Read};

use crate::bytes::{LONGEST_NAME, MOST_SECTION};

/// The reason why a part could not be read, and the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: String,
    /// The offset in the file.
    pub(crate) offset: u64,
}

impl Flaw {
    pub(crate) fn new(what: impl Into<String>, offset: u64) -> Self {
        Self { what: what.into(), offset }
    }
}

/// Reads little-endian numbers, texts and blocks one after the other.
pub(crate) struct Fields<R> {
    reader: R,
    /// The offset of the next one in the file, for messages.
    pub(crate) at: u64,
    /// The name of what they are in, for messages.
    whole: &'static str,
}

impl<R: Read> Fields<R> {
    pub(crate) fn new(reader: R, at: u64) -> Self {
        Self { reader, at, whole: "the file" }
    }

    /// The fields in a part with this name, which may end before the file does.
    pub(crate) fn within(whole: &'static str, reader: R, at: u64) -> Self {
        Self { reader, at, whole }
    }

    fn failed(&self, error: &io::Error) -> Flaw {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return self.ends(self.at);
        }
        Flaw::new(format!("reading failed ({error})"), self.at)
    }

    fn ends(&self, at: u64) -> Flaw {
        Flaw::new(format!("{} ends", self.whole), at)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| self.failed(&error))?;
        self.at += N as u64;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Flaw> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Flaw> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Flaw> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Flaw> {
        self.array().map(u64::from_le_bytes)
    }

    /// A zero-terminated text, all of which are names and versions.
    pub(crate) fn text(&mut self) -> Result<String, Flaw> {
        let start = self.at;
        let mut bytes = Vec::new();
        loop {
            match self.u8()? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                _ if bytes.len() == LONGEST_NAME => {
                    return Err(Flaw::new(format!("a text of more than {LONGEST_NAME} bytes"), start));
                }
                byte => bytes.push(byte),
            }
        }
    }

    /// A block of this length.
    pub(crate) fn block(&mut self, length: u64) -> Result<Vec<u8>, Flaw> {
        let bytes = self.up_to(length)?;
        if (bytes.len() as u64) < length {
            return Err(self.ends(self.at));
        }
        Ok(bytes)
    }

    /// A block of at most this length, limited by the end of the file; refuses more than any part has.
    pub(crate) fn up_to(&mut self, length: u64) -> Result<Vec<u8>, Flaw> {
        if length > MOST_SECTION as u64 {
            return Err(Flaw::new(format!("a part of {length} bytes"), self.at));
        }
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(length).read_to_end(&mut bytes);
        self.at += read.map_err(|error| self.failed(&error))? as u64;
        Ok(bytes)
    }

    /// Skips this number of bytes.
    pub(crate) fn skip(&mut self, length: u64) -> Result<(), Flaw> {
        let passed = io::copy(&mut self.reader.by_ref().take(length), &mut io::sink());
        let passed = passed.map_err(|error| self.failed(&error))?;
        if passed < length {
            return Err(self.ends(self.at + passed));
        }
        self.at += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_flaws_are_those_of_the_file() {
        let mut fields = Fields::new(&b"\x01\x02name\0abc"[..], 100);
        assert_eq!(fields.u16(), Ok(0x201));
        assert_eq!(fields.text().as_deref(), Ok("name"));
        assert_eq!(fields.block(9), Err(Flaw::new("the file ends", 110)));
        let mut fields = Fields::new(&b"abc"[..], 100);
        assert_eq!(fields.skip(2), Ok(()));
        assert_eq!(fields.skip(2), Err(Flaw::new("the file ends", 103)));
        assert_eq!(Fields::new(&b"abc"[..], 100).u32(), Err(Flaw::new("the file ends", 100)));
        let large = MOST_SECTION as u64 + 1;
        let refused = Flaw::new("a part of 67108865 bytes", 0);
        assert_eq!(Fields::new(std::io::repeat(0), 0).block(large), Err(refused));
        let endless = [b'a'; LONGEST_NAME + 1];
        let refused = Flaw::new("a text of more than 255 bytes", 0);
        assert_eq!(Fields::new(&endless[..], 0).text(), Err(refused));
        let mut option = Fields::within("the option", &b"abc"[..], 100);
        assert_eq!(option.u32(), Err(Flaw::new("the option ends", 100)));
    }
}
