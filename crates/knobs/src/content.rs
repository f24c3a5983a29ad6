//! The bytes of a file, which the journal keeps as text if they are text.

use serde::{Deserialize, Serialize};

/// The bytes of a file.
///
/// In the journal they are a string if they are UTF-8, otherwise `{"hex": "00ff"}`, so that people can read the
/// configuration that a journal keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Content(pub Vec<u8>);

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the content of a file, as text or as `hex`")]
enum Written {
    Text(String),
    Hex { hex: String },
}

impl From<Content> for Written {
    fn from(content: Content) -> Self {
        match String::from_utf8(content.0) {
            Ok(text) => Self::Text(text),
            Err(error) => {
                Self::Hex { hex: error.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect() }
            }
        }
    }
}

impl TryFrom<Written> for Content {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let hex = match written {
            Written::Text(text) => return Ok(Self(text.into_bytes())),
            Written::Hex { hex } => hex,
        };
        let digits: Option<Vec<u8>> =
            hex.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(Self(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
            }
            _ => Err("expected pairs of hexadecimal digits".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_readable_and_bytes_come_back() {
        let text = Content::from("options kvm_amd avic=1\n");
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""options kvm_amd avic=1\n""#);
        for bytes in [vec![], vec![0xff, 0, 0x7f], b"a\0b".to_vec()] {
            let content = Content(bytes);
            let written = serde_json::to_string(&content).unwrap();
            assert_eq!(serde_json::from_str::<Content>(&written).unwrap(), content);
        }
        assert!(serde_json::from_str::<Content>(r#"{"hex":"abc"}"#).is_err());
        assert!(serde_json::from_str::<Content>(r#"{"hex":"zz"}"#).is_err());
    }
}
