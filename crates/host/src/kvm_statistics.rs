//! KVM's binary statistics: KVM's own counters of a vCPU or a VM, as a file.
//!
//! Supported since Linux 5.14 (Documentation/virt/kvm/api.rst, "KVM_GET_STATS_FD"). KVM gives the file to the
//! VM's creator; other processes can read it if they get a copy of the descriptor.

mod format;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use format::HEADER_SIZE;
pub use format::{Descriptor, Header, Kind, StatisticsError, parse_descriptors, parse_header};

/// The open statistics of one vCPU (or of a VM).
#[derive(Debug)]
pub struct StatisticsFile {
    file: File,
    data_at: u64,
    block_size: usize,
    /// Statistics with a single value.
    scalars: Vec<Descriptor>,
}

impl StatisticsFile {
    /// Reads header and descriptors of a file in the documented format.
    ///
    /// # Errors
    /// [`StatisticsError`] if the file is shorter than its header states, or has values that no kernel uses.
    pub fn new(file: File) -> Result<Self, StatisticsError> {
        let read = |bytes: &mut [u8], at: u64, what| {
            file.read_exact_at(bytes, at).map_err(|source| StatisticsError::Read { what, source })
        };
        let mut bytes = [0; HEADER_SIZE];
        read(&mut bytes, 0, "header")?;
        let header = parse_header(&bytes)?;
        let mut bytes = vec![0; header.descriptors_size()];
        read(&mut bytes, header.descriptors_at.into(), "descriptors")?;
        let mut scalars = parse_descriptors(&header, &bytes)?;
        scalars.retain(|descriptor| descriptor.values == 1 && descriptor.kind != Kind::Other);
        let block_size = scalars.iter().map(|one| one.offset as usize + 8).max().unwrap_or(0);
        Ok(Self { file, data_at: header.data_at.into(), block_size, scalars })
    }

    /// The values of all statistics with a single value, by the kernel's names.
    ///
    /// # Errors
    /// [`StatisticsError::Read`] if the kernel no longer provides values.
    pub fn read(&self) -> Result<BTreeMap<String, u64>, StatisticsError> {
        self.read_kinds(|_| true)
    }

    /// The values of cumulative statistics, whose differences are meaningful.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_cumulative(&self) -> Result<BTreeMap<String, u64>, StatisticsError> {
        self.read_kinds(|kind| kind == Kind::Cumulative)
    }

    fn read_kinds(&self, wanted: impl Fn(Kind) -> bool) -> Result<BTreeMap<String, u64>, StatisticsError> {
        let mut block = vec![0; self.block_size];
        self.file
            .read_exact_at(&mut block, self.data_at)
            .map_err(|source| StatisticsError::Read { what: "values", source })?;
        let value = |one: &Descriptor| {
            let at = one.offset as usize;
            let bytes = block[at..at + 8].try_into().expect("eight bytes");
            (one.name.clone(), u64::from_le_bytes(bytes))
        };
        Ok(self.scalars.iter().filter(|one| wanted(one.kind)).map(value).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::format::tests::{descriptor, header};
    use super::*;

    fn file_of(parts: &[Vec<u8>]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&parts.concat()).unwrap();
        file
    }

    #[test]
    fn a_file_as_the_kernel_writes_it() {
        let id = b"kvm-7/vcpu-0\0\0\0\0".to_vec();
        let at = HEADER_SIZE as u32 + 16;
        let file = file_of(&[
            header(16, 4, at, at + 4 * 32),
            id,
            descriptor("exits", 0, 1, 0),
            descriptor("guest_mode", 1, 1, 8),
            descriptor("halt_wait_hist", 4, 2, 16),
            descriptor("irq_exits", 0, 1, 32),
            [7u64, 1, 90, 91, 9].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ]);
        let statistics = StatisticsFile::new(file).unwrap();
        let all = statistics.read().unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["exits", "guest_mode", "irq_exits"]);
        assert_eq!((all["exits"], all["guest_mode"], all["irq_exits"]), (7, 1, 9));
        let cumulative = statistics.read_cumulative().unwrap();
        assert_eq!(cumulative.keys().collect::<Vec<_>>(), ["exits", "irq_exits"]);
    }

    #[test]
    fn a_file_that_ends_early_is_an_error() {
        let file = file_of(&[header(16, 4, 24, 200), descriptor("exits", 0, 1, 0)]);
        assert!(matches!(StatisticsFile::new(file), Err(StatisticsError::Read { what: "descriptors", .. })));
    }
}
