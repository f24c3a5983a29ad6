//! Recognises the format of a recording by its first bytes.

use crate::input::Input;
use crate::{Error, Format, exitless, text, trace_dat, xentrace};

/// `PERFILE2` in the byte order of the recording machine.
const PERF: &[u8] = b"PERFILE2";
const PERF_OTHER_ORDER: &[u8] = b"2ELIFREP";
/// The first bytes of Arrow's file format, also known as Feather.
const ARROW_FILE: &[u8] = b"ARROW1";
/// `size` in `struct perf_pipe_file_header`; the header of a file is longer.
const PIPE_HEADER: u64 = 16;

/// The format of an open recording.
pub(crate) fn format(input: &Input) -> Result<Format, Error> {
    let start = input.start();
    let name = || input.name.clone();
    if start.is_empty() {
        // A compressed file that is cut in its first block.
        if let Some(source) = input.failure().take() {
            return Err(Error::Read { name: name(), source });
        }
        return Err(Error::Empty { name: name() });
    }
    if start.starts_with(PERF_OTHER_ORDER) {
        return Err(Error::ByteOrder { name: name() });
    }
    if start.starts_with(PERF) {
        let size =
            start.get(8..16).and_then(|bytes| bytes.first_chunk()).map(|&bytes| u64::from_le_bytes(bytes));
        return Ok(if size == Some(PIPE_HEADER) { Format::PerfPipe } else { Format::PerfData });
    }
    if exitless::begins(start) {
        Ok(Format::Exits)
    } else if exitless::profile::begins(start) {
        Ok(Format::Profile)
    } else if start.starts_with(ARROW_FILE) {
        Err(Error::Unsupported {
            name: name(),
            what: "an Arrow file, which has its table of contents at its end".to_owned(),
            next: "write the table as an Arrow stream, with the metadata of its schema",
        })
    } else if trace_dat::begins(start) {
        Ok(Format::TraceDat)
    } else if xentrace::begins(start) {
        Ok(Format::Xentrace)
    } else if text::begins(start) {
        Ok(Format::TracefsText)
    } else {
        Err(unrecognised(input))
    }
}

/// The error for a recording whose format is not known.
pub(crate) fn unrecognised(input: &Input) -> Error {
    Error::Unrecognised { name: input.name.clone(), start: readable(input.start()) }
}

/// The first bytes for a message.
fn readable(start: &[u8]) -> String {
    let first = &start[..start.len().min(16)];
    if first.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        return format!("the text {:?}", String::from_utf8_lossy(first));
    }
    let bytes: Vec<_> = first.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("the bytes {}", bytes.join(" "))
}

#[cfg(test)]
mod tests {
    use crate::{Error, Options, Source, read};
    use std::io::Write;

    fn error(bytes: &[u8]) -> Error {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(&Source::from(file.path()), &Options::default(), &mut ()).unwrap_err()
    }

    #[test]
    fn what_is_no_recording_is_said_to_be_none() {
        assert!(matches!(error(b""), Error::Empty { .. }));
        assert!(matches!(error(b"2ELIFREP\0\0\0\0"), Error::ByteOrder { .. }));
        let text = error(b"<domain type='kvm'>\n").to_string();
        assert!(text.contains(r#"the text "<domain type='kv""#), "{text}");
        let binary = error(&[0x7f, b'E', b'L', b'F', 2, 1]).to_string();
        assert!(binary.contains("the bytes 7f 45 4c 46 02 01;"), "{binary}");
    }
}
