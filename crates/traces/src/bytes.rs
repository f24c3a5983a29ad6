//! Little-endian numbers in byte slices that may be too short.

/// The largest section that is read at once, in bytes: the descriptions of all events have a few megabytes.
pub(crate) const MOST_SECTION: usize = 64 << 20;

/// The longest name of an event, a system of events or an instance, in bytes: that of a directory in tracefs
/// (`NAME_MAX`). Clocks and versions are shorter.
pub(crate) const LONGEST_NAME: usize = 255;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The text before the first zero byte, or the whole text.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
