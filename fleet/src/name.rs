//! Encodes names as values of partitions, which are single segments of a path, and decodes them.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::document::digest;

/// Characters to encode as `%XX`, as in Hive; DuckDB, pyarrow and Spark decode that.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// The longest value of a partition, in bytes; a file name is limited to 255.
const LONGEST: usize = 180;

/// The value of a partition for a name. Different names have different values. The end of a value that would
/// be too long is replaced by a digest.
#[must_use]
pub fn encoded(name: &str) -> String {
    let mut value = utf8_percent_encode(name, ESCAPED).to_string();
    if value.len() > LONGEST {
        let mut end = LONGEST - 18;
        // Do not cut within an escape.
        while value.as_bytes()[end - 1] == b'%' || value.as_bytes()[end - 2] == b'%' {
            end -= 1;
        }
        value.truncate(end);
        // No other value contains a tilde.
        value.push('~');
        value.push_str(&digest(name.as_bytes()));
    }
    // Avoid the names `.` and `..`, and hidden files.
    match value.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => value,
    }
}

/// The name for a value; `None` if a digest replaces its end.
#[must_use]
pub fn decoded(value: &str) -> Option<Cow<'_, str>> {
    if value.contains('~') { None } else { percent_decode_str(value).decode_utf8().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_encoded_as_hive_does() {
        assert_eq!(encoded("web-1.example.org"), "web-1.example.org");
        assert_eq!(encoded("../../etc/passwd"), "%2E.%2F..%2Fetc%2Fpasswd");
        assert_eq!(encoded("a=b c%<b>\n\0é"), "a%3Db%20c%25%3Cb%3E%0A%00%C3%A9");
        assert_eq!((encoded("."), encoded("..")), ("%2E".to_owned(), "%2E.".to_owned()));
    }

    proptest! {
        #[test]
        fn any_name_is_one_harmless_segment_and_comes_back(name in any::<String>()) {
            let value = encoded(&name);
            prop_assert!(value.len() <= 200);
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.%~".contains(&byte)), "{value}");
            prop_assert!(!value.starts_with('.'));
            let path = format!("host={value}/x");
            prop_assert!(object_store::path::Path::parse(path).is_ok());
            if let Some(back) = decoded(&value) {
                prop_assert_eq!(back, name);
            }
        }

        #[test]
        fn different_names_stay_different(one in ".{0,90}", other in ".{0,90}") {
            prop_assert_eq!(one == other, encoded(&one) == encoded(&other));
        }

        #[test]
        fn long_names_differ_by_their_ends(stem in "[a-zé/]{200}", one in "[a-z]{1,5}", other in "[a-z]{1,5}") {
            let (one, other) = (format!("{stem}{one}"), format!("{stem}{other}"));
            prop_assert_eq!(one == other, encoded(&one) == encoded(&other));
        }
    }
}
