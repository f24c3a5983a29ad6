//! The first bytes of a file: trace-cmd.dat.v6(5) and v7(5), "INITIAL FORMAT".

use super::compression::Compression;
use super::file::{Flaw, Recorded};
use crate::Error;
use crate::tracing_data::MAGIC;

/// The first version that consists of sections.
const SECTIONS: u32 = 7;
const UPDATE: &str =
    "write it with `trace-cmd record --file-version 7`, or give the text that `trace-cmd report` makes";

/// The contents of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The page size of the recording machine in bytes.
    pub(super) page_size: u32,
    pub(super) compression: Compression,
    /// The offset of the first options (version 7).
    pub(super) options: u64,
    /// The end of the header.
    pub(super) end: u64,
}

impl Header {
    pub(super) fn read(recorded: &Recorded) -> Result<Self, Error> {
        let unsupported = |what| Error::Unsupported { name: recorded.name.clone(), what, next: UPDATE };
        let mut fields = recorded.fields(MAGIC.len() as u64);
        let mut read = || -> Result<Result<Self, Error>, Flaw> {
            let version = fields.text()?;
            let Some(version) = version.parse().ok().filter(|version| (6..=7).contains(version)) else {
                return Ok(Err(unsupported(format!("a trace.dat of version {version}"))));
            };
            if fields.u8()? != 0 {
                return Ok(Err(Error::ByteOrder { name: recorded.name.clone() }));
            }
            // The size of `long` in trace-cmd; the kernel's is in `header_page`.
            fields.u8()?;
            let page_size = fields.u32()?;
            let mut header =
                Self { version, page_size, compression: Compression::None, options: 0, end: fields.at };
            if header.has_sections() {
                let (name, _version) = (fields.text()?, fields.text()?);
                match Compression::named(&name) {
                    Some(compression) => header.compression = compression,
                    None => return Ok(Err(unsupported(format!("a trace.dat packed with {name}")))),
                }
                header.options = fields.u64()?;
            }
            header.end = fields.at;
            Ok(Ok(header))
        };
        read().unwrap_or_else(|flaw| Err(flaw.error(recorded)))
    }

    pub(super) fn has_sections(&self) -> bool {
        self.version >= SECTIONS
    }
}
