//! Base64, in which the guest agent encodes output (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The decoded text; `None` if it is not valid base64.
pub(super) fn decode(coded: &str) -> Option<String> {
    let digits = coded.trim_end_matches('=').as_bytes();
    if digits.len() % 4 == 1 || coded.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut word = 0_u32;
        for &digit in group {
            let value = ALPHABET.iter().position(|&letter| letter == digit)?;
            word = word << 6 | u32::try_from(value).ok()?;
        }
        word <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let pairs = [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")];
        for (coded, text) in pairs {
            assert_eq!(decode(coded).as_deref(), Some(text));
        }
        for bad in ["Z", "Zm9v=====", "Zm 9", "Zg==Zg=="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = decode(&text);
        }
    }
}
