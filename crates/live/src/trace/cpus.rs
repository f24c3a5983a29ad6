//! The CPUs that are online.

use crate::Error;
use std::collections::BTreeSet;
use std::path::Path;

/// The online CPUs of the host below `root`.
///
/// # Errors
/// [`Error::Read`] if sysfs is missing or has an unexpected format.
pub(crate) fn online(root: &Path) -> Result<BTreeSet<u32>, Error> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path).and_then(|text| {
        let cpus = parse(text.trim()).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidData, format!("it says `{}`", text.trim()))
        })
    });
    text.map_err(|source| Error::Read { path, expected: "a list of CPUs such as 0-3,5", source })
}

/// An upper bound, above any machine's (`CONFIG_NR_CPUS` is at most 8192): a larger range in the file would only use
/// memory.
const MOST: u32 = 1 << 16;

fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let cpus = host::CpuSet::parse(text)?;
    (cpus.last()? < MOST).then(|| cpus.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_ones() {
        assert_eq!(parse("0-2,5").unwrap().into_iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
        for wrong in ["", "a", "0-", "0-4294967295"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = online(root.path()).unwrap_err();
        assert!(error.to_string().contains("cpu/online"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9,-]{0,20}") {
            let _ = parse(&text);
        }
    }
}
