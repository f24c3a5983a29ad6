//! The binary format: a header, descriptors with a name and an offset each, and a block of 64-bit values
//! (Documentation/virt/kvm/api.rst, "KVM_GET_STATS_FD"; include/uapi/linux/kvm.h).

use std::io;

pub(super) const HEADER_SIZE: usize = 24;
/// A descriptor without its name.
const DESCRIPTOR_SIZE: usize = 16;
// Limits of accepted values: current kernels have about 60 descriptors with 48 bytes of name, and the largest
// statistic, a histogram, has 32 values.
const MAX_NAME: u32 = 256;
const MAX_DESCRIPTORS: u32 = 4096;
const MAX_BLOCK: u64 = 1 << 20;

/// An error of the statistics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatisticsError {
    /// The kernel returned fewer bytes than the header states, or an error.
    #[error("Cannot read the {what} of KVM's statistics")]
    Read {
        /// The part of the file.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A size or an offset is larger than in any known kernel.
    #[error(
        "{field} of KVM's statistics is {found}, expected at most {most}; this kernel's format is not the documented one"
    )]
    Bound {
        /// The field of the header or of a descriptor.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The accepted maximum.
        most: u64,
    },
    /// There are too few bytes.
    #[error(
        "{what} of KVM's statistics has {found} bytes, expected {expected}; this kernel's format is not the documented one"
    )]
    Short {
        /// The part of the file.
        what: &'static str,
        /// The number of bytes.
        found: usize,
        /// The number that the header states.
        expected: usize,
    },
}

/// The type of a statistic (KVM_STATS_TYPE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only increases.
    Cumulative,
    /// It increases and decreases.
    Instant,
    /// The largest value so far.
    Peak,
    /// Several values, or an unknown type.
    Other,
}

/// One statistic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// The kernel's name.
    pub name: String,
    /// The type of its values.
    pub kind: Kind,
    /// The number of its 64-bit values.
    pub values: u16,
    /// Their offset in the data block, in bytes.
    pub offset: u32,
}

/// The offsets of the parts of the file (struct kvm_stats_header).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the name in each descriptor, in bytes.
    pub name_size: u32,
    /// Number of descriptors.
    pub descriptors: u32,
    /// Their offset in the file.
    pub descriptors_at: u32,
    /// The offset of the values in the file.
    pub data_at: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn bound(field: &'static str, found: u64, most: u64) -> Result<(), StatisticsError> {
    if found <= most { Ok(()) } else { Err(StatisticsError::Bound { field, found, most }) }
}

/// Parses the header.
pub fn parse_header(bytes: &[u8]) -> Result<Header, StatisticsError> {
    let short = || StatisticsError::Short { what: "the header", found: bytes.len(), expected: HEADER_SIZE };
    let field = |at| word(bytes, at).ok_or_else(short);
    // flags, name_size, num_desc, id_offset, desc_offset, data_offset
    let header = Header {
        name_size: field(4)?,
        descriptors: field(8)?,
        descriptors_at: field(16)?,
        data_at: field(20)?,
    };
    bound("name_size", header.name_size.into(), MAX_NAME.into())?;
    bound("num_desc", header.descriptors.into(), MAX_DESCRIPTORS.into())?;
    Ok(header)
}

impl Header {
    /// The length of one descriptor, in bytes.
    fn stride(&self) -> usize {
        DESCRIPTOR_SIZE + self.name_size as usize
    }

    /// The length of all descriptors, in bytes; [`parse_header`] has limited it.
    pub(super) fn descriptors_size(&self) -> usize {
        self.stride() * self.descriptors as usize
    }
}

/// Parses the descriptors; `bytes` is the part of the file with them.
pub fn parse_descriptors(header: &Header, bytes: &[u8]) -> Result<Vec<Descriptor>, StatisticsError> {
    bound("name_size", header.name_size.into(), MAX_NAME.into())?;
    bound("num_desc", header.descriptors.into(), MAX_DESCRIPTORS.into())?;
    let expected = header.descriptors_size();
    if bytes.len() < expected {
        return Err(StatisticsError::Short { what: "the descriptors", found: bytes.len(), expected });
    }
    bytes[..expected].chunks_exact(header.stride()).map(parse_descriptor).collect()
}

fn parse_descriptor(bytes: &[u8]) -> Result<Descriptor, StatisticsError> {
    let short =
        || StatisticsError::Short { what: "a descriptor", found: bytes.len(), expected: DESCRIPTOR_SIZE };
    // flags, exponent, size, offset, bucket_size, name
    let flags = word(bytes, 0).ok_or_else(short)?;
    let values = half(bytes, 6).ok_or_else(short)?;
    let offset = word(bytes, 8).ok_or_else(short)?;
    bound("a statistic's end", u64::from(offset) + 8 * u64::from(values), MAX_BLOCK)?;
    let name = bytes[DESCRIPTOR_SIZE..].split(|byte| *byte == 0).next().unwrap_or_default();
    let kind = match flags & 0xf {
        0 => Kind::Cumulative,
        1 => Kind::Instant,
        2 => Kind::Peak,
        _ => Kind::Other,
    };
    Ok(Descriptor { name: String::from_utf8_lossy(name).into_owned(), kind, values, offset })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::kvm_statistics) fn header(
        name_size: u32,
        descriptors: u32,
        descriptors_at: u32,
        data_at: u32,
    ) -> Vec<u8> {
        [0, name_size, descriptors, HEADER_SIZE as u32, descriptors_at, data_at]
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect()
    }

    pub(in crate::kvm_statistics) fn descriptor(name: &str, flags: u32, values: u16, offset: u32) -> Vec<u8> {
        let mut bytes = flags.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(values.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(name.as_bytes());
        bytes.resize(DESCRIPTOR_SIZE + 16, 0);
        bytes
    }

    #[test]
    fn sizes_beyond_reason_are_refused() {
        let huge = header(16, u32::MAX, 24, 200);
        assert!(matches!(parse_header(&huge), Err(StatisticsError::Bound { field: "num_desc", .. })));
        let huge = header(u32::MAX, 1, 24, 200);
        assert!(matches!(parse_header(&huge), Err(StatisticsError::Bound { field: "name_size", .. })));
        let header = parse_header(&header(16, 1, 24, 200)).unwrap();
        let far = descriptor("exits", 0, 1, u32::MAX);
        assert!(matches!(parse_descriptors(&header, &far), Err(StatisticsError::Bound { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(
            head in proptest::collection::vec(any::<u8>(), 0..40),
            body in proptest::collection::vec(any::<u8>(), 0..4096),
        ) {
            if let Ok(header) = parse_header(&head)
                && let Ok(all) = parse_descriptors(&header, &body)
            {
                prop_assert!(all.len() * header.stride() <= body.len());
            }
        }

        #[test]
        fn small_headers_with_any_descriptors(
            name_size in 0u32..64,
            count in 0u32..64,
            body in proptest::collection::vec(any::<u8>(), 0..8192),
        ) {
            let header = parse_header(&header(name_size, count, 24, 24)).unwrap();
            match parse_descriptors(&header, &body) {
                Ok(all) => prop_assert_eq!(all.len(), count as usize),
                Err(StatisticsError::Short { expected, found, .. }) => prop_assert!(found < expected),
                Err(StatisticsError::Bound { found, most, .. }) => prop_assert!(found > most),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
