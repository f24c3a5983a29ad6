//! Removes the signature from a kernel module.
//!
//! The laboratories' kernels load no certificates, so they cannot verify a signature. But they hash the whole
//! module before they notice, which took half of the time to load `kvm.ko` in Bochs (6.6 of 13.4 s by the
//! emulated clock). An unsigned module is loaded without hashing. Its code is unchanged.
//!
//! Source: kernel/module_signature.c and scripts/sign-file.c in Linux.

/// The magic string at the end of a signed module (`MODULE_SIG_STRING`).
const MARK: &[u8] = b"~Module signature appended~\n";
/// The size of `struct module_signature` before that string; its last four bytes are the signature's length.
const DESCRIPTION: usize = 12;

/// The module without its signature. Unchanged if it has none, or one longer than the file.
pub(crate) fn without_signature(mut module: Vec<u8>) -> Vec<u8> {
    module.truncate(unsigned_length(&module).unwrap_or(module.len()));
    module
}

fn unsigned_length(module: &[u8]) -> Option<usize> {
    let described = module.strip_suffix(MARK)?;
    let (signed, description) = described.split_at_checked(described.len().checked_sub(DESCRIPTION)?)?;
    let length = u32::from_be_bytes(description[DESCRIPTION - 4..].try_into().ok()?);
    signed.len().checked_sub(usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signed(contents: &[u8], claimed: u32) -> Vec<u8> {
        let description = [0, 0, 2, 0, 0, 0, 0, 0].into_iter().chain(claimed.to_be_bytes());
        let signature = [0x30; 100].into_iter().chain(description).chain(MARK.iter().copied());
        contents.iter().copied().chain(signature).collect()
    }

    #[test]
    fn a_signature_goes_with_its_description_and_its_mark() {
        assert_eq!(without_signature(signed(b"module", 100)), b"module");
    }

    #[test]
    fn what_is_not_signed_stays_as_it_is() {
        assert_eq!(without_signature(b"module".to_vec()), b"module");
        let impossible = signed(b"module", 107);
        assert_eq!(without_signature(impossible.clone()), impossible);
        assert_eq!(without_signature(MARK.to_vec()), MARK);
    }

    proptest! {
        #[test]
        fn whatever_is_signed_comes_back(contents in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(without_signature(signed(&contents, 100)), contents);
        }
    }
}
