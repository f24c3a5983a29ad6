//! The requests of a front-end.

use super::payload::{InflightDescription, PayloadReader, RingAddresses, RingState};
use crate::memory::RegionDescription;
use std::os::fd::OwnedFd;

/// The version of the protocol, in the lowest bits of the flags.
const VERSION: u32 = 1;
/// The message is a reply.
const REPLY: u32 = 1 << 2;
/// A reply is wanted.
const NEED_REPLY: u32 = 1 << 3;
/// `VHOST_USER_VRING_NOFD_MASK`: the message has no file descriptor for the vring.
const NO_FILE: u64 = 1 << 8;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The number of the request.
    pub code: u32,
    /// The version and the flags above.
    pub flags: u32,
    /// Bytes of the payload.
    pub size: u32,
}

impl Header {
    /// The size of a header, bytes.
    pub const SIZE: usize = 12;

    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            code: u32::from_ne_bytes([a, b, c, d]),
            flags: u32::from_ne_bytes([e, f, g, h]),
            size: u32::from_ne_bytes([i, j, k, l]),
        }
    }

    /// The header of a reply, or of a request of the back-end.
    pub(super) fn bytes(code: u32, is_reply: bool, size: usize) -> Vec<u8> {
        let flags = if is_reply { VERSION | REPLY } else { VERSION };
        [code, flags, size as u32].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Tests whether the front-end wants a reply, if `REPLY_ACK` was negotiated.
    #[must_use]
    pub(crate) const fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Tests whether the request has a reply of its own, besides the one of `REPLY_ACK`: those that get something, and
    /// `SET_LOG_BASE`.
    #[must_use]
    pub(crate) const fn has_reply(&self) -> bool {
        matches!(self.code, 1 | 6 | 11 | 15 | 17 | 24 | 31 | 36 | 40)
    }

    /// Tests for a request of this version of the protocol.
    #[must_use]
    pub(crate) const fn is_request(&self) -> bool {
        self.flags & 0b11 == VERSION && self.flags & REPLY == 0
    }
}

/// A request that fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is unknown.
    #[error("request {0} is unknown")]
    Unknown(u32),
    /// The payload has the wrong size.
    #[error("request {code} has a payload of {size} bytes, which is not valid for it")]
    Size {
        /// The number of the request.
        code: u32,
        /// Bytes of the payload.
        size: usize,
    },
    /// The number of file descriptors is wrong.
    #[error("request {code} comes with {files} files")]
    Files {
        /// The number of the request.
        code: u32,
        /// The number of files.
        files: usize,
    },
    /// A value of the request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The device cannot be used now: another program uses what is behind it, or the guest uses features that it lacks.
    #[error("{0}")]
    Unusable(String),
    /// The feature was not negotiated, or is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
}

/// A request of a front-end. The names are those of the protocol without `VHOST_USER_`.
#[derive(Debug)]
#[expect(missing_docs, reason = "the protocol describes them")]
#[non_exhaustive]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionDescription, OwnedFd)>),
    SetLogBase { size: u64, offset: u64, file: OwnedFd },
    SetLogFd(OwnedFd),
    SetVringNum(RingState),
    SetVringAddr(RingAddresses),
    SetVringBase(RingState),
    GetVringBase(u32),
    SetVringKick(u32, Option<OwnedFd>),
    SetVringCall(u32, Option<OwnedFd>),
    SetVringErr(u32, Option<OwnedFd>),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(RingState),
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd(OwnedFd),
    GetConfig { offset: u32, size: u32 },
    SetConfig { offset: u32, flags: u32, bytes: Vec<u8> },
    GetInflightFd(InflightDescription),
    SetInflightFd(InflightDescription, OwnedFd),
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(RegionDescription, OwnedFd),
    RemMemReg(RegionDescription),
    SetStatus(u64),
    GetStatus,
}

impl Request {
    /// Parses a request from its number, its payload and its file descriptors.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn parse(code: u32, payload: &[u8], files: Vec<OwnedFd>) -> Result<Self, RequestError> {
        let count = files.len();
        let wrong_size = RequestError::Size { code, size: payload.len() };
        let wrong_files = RequestError::Files { code, files: count };
        let mut files = files.into_iter();
        let mut reader = PayloadReader(payload);
        let parsed = Self::of(code, &mut reader, &mut files)?.ok_or_else(|| {
            // The payload is too short, or a file descriptor is missing: that of SET_LOG_FD and SET_BACKEND_REQ_FD, which
            // have no payload, or one after the payload.
            let has_payload = !matches!(code, 7 | 21);
            let is_short = has_payload && (payload.is_empty() || !reader.0.is_empty());
            if is_short { wrong_size.clone() } else { wrong_files.clone() }
        })?;
        // Front-ends may pad the last structure of a message as C does.
        if reader.0.len() > 4 {
            return Err(wrong_size);
        }
        // A region is removed by its addresses, but old front-ends send its file all the same.
        if files.next().is_some() && !matches!(parsed, Self::RemMemReg(_)) {
            return Err(wrong_files);
        }
        Ok(parsed)
    }

    /// `Ok(None)` when the payload is too short, or a file is missing.
    fn of(
        code: u32,
        reader: &mut PayloadReader<'_>,
        files: &mut std::vec::IntoIter<OwnedFd>,
    ) -> Result<Option<Self>, RequestError> {
        let unsupported = |what| Err(RequestError::Unsupported(what));
        Ok(match code {
            1 => Some(Self::GetFeatures),
            2 => reader.quad().map(Self::SetFeatures),
            3 => Some(Self::SetOwner),
            4 => Some(Self::ResetOwner),
            5 => Self::memory_table(reader, files),
            6 => Self::log_base(reader, files),
            7 => files.next().map(Self::SetLogFd),
            8 => reader.state().map(Self::SetVringNum),
            9 => reader.addresses().map(Self::SetVringAddr),
            10 => reader.state().map(Self::SetVringBase),
            11 => reader.state().map(|state| Self::GetVringBase(state.ring)),
            12 => Self::ring_file(reader, files, Self::SetVringKick),
            13 => Self::ring_file(reader, files, Self::SetVringCall),
            14 => Self::ring_file(reader, files, Self::SetVringErr),
            15 => Some(Self::GetProtocolFeatures),
            16 => reader.quad().map(Self::SetProtocolFeatures),
            17 => Some(Self::GetQueueNum),
            18 => reader.state().map(Self::SetVringEnable),
            19 => reader.quad().map(|mac| {
                let [a, b, c, d, e, f, ..] = mac.to_ne_bytes();
                Self::SendRarp([a, b, c, d, e, f])
            }),
            20 => reader.quad().map(Self::NetSetMtu),
            21 => files.next().map(Self::SetBackendReqFd),
            22 => return unsupported("an IOMMU of the guest"),
            23 => return unsupported("another byte order"),
            24 => Self::config(reader, false),
            25 => Self::config(reader, true),
            26 | 27 => return unsupported("a crypto session"),
            28..=30 => return unsupported("postcopy migration"),
            31 => reader.inflight().map(Self::GetInflightFd),
            32 => reader
                .inflight()
                .zip(files.next())
                .map(|(description, file)| Self::SetInflightFd(description, file)),
            33 => return unsupported("a GPU"),
            34 => Some(Self::ResetDevice),
            35 => return unsupported("a kick by message"),
            36 => Some(Self::GetMaxMemSlots),
            37 => Self::one_region(reader)
                .zip(files.next())
                .map(|(description, file)| Self::AddMemReg(description, file)),
            38 => Self::one_region(reader).map(Self::RemMemReg),
            39 => reader.quad().map(Self::SetStatus),
            40 => Some(Self::GetStatus),
            41 => return unsupported("a shared object"),
            42 | 43 => return unsupported("the transfer of the device's state"),
            _ => return Err(RequestError::Unknown(code)),
        })
    }

    fn memory_table(reader: &mut PayloadReader<'_>, files: &mut std::vec::IntoIter<OwnedFd>) -> Option<Self> {
        let (count, _padding) = (reader.double()?, reader.double()?);
        if count as usize > super::MAX_FILES {
            return None;
        }
        let regions = (0..count).map(|_| reader.region().zip(files.next()));
        regions.collect::<Option<_>>().map(Self::SetMemTable)
    }

    fn one_region(reader: &mut PayloadReader<'_>) -> Option<RegionDescription> {
        let _padding = reader.quad()?;
        reader.region()
    }

    fn log_base(reader: &mut PayloadReader<'_>, files: &mut std::vec::IntoIter<OwnedFd>) -> Option<Self> {
        let (size, offset) = (reader.quad()?, reader.quad()?);
        Some(Self::SetLogBase { size, offset, file: files.next()? })
    }

    fn ring_file(
        reader: &mut PayloadReader<'_>,
        files: &mut std::vec::IntoIter<OwnedFd>,
        make: fn(u32, Option<OwnedFd>) -> Self,
    ) -> Option<Self> {
        let value = reader.quad()?;
        let ring = (value & 0xff) as u32;
        match value & NO_FILE {
            0 => Some(make(ring, Some(files.next()?))),
            _ => Some(make(ring, None)),
        }
    }

    fn config(reader: &mut PayloadReader<'_>, writes: bool) -> Option<Self> {
        let (offset, size, flags) = (reader.double()?, reader.double()?, reader.double()?);
        let bytes = reader.0.get(..size as usize)?.to_vec();
        reader.0 = &reader.0[size as usize..];
        Some(if writes { Self::SetConfig { offset, flags, bytes } } else { Self::GetConfig { offset, size } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_no_wrong_payload() {
        for (code, payload) in [(12, &[0_u8; 8][..]), (7, &[]), (21, &[])] {
            let error = Request::parse(code, payload, Vec::new()).unwrap_err();
            assert_eq!(error, RequestError::Files { code, files: 0 });
        }
        let error = Request::parse(12, &[], Vec::new()).unwrap_err();
        assert_eq!(error, RequestError::Size { code: 12, size: 0 });
    }
}
