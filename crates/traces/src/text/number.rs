//! Finds numbers and words in a line.

/// The number at the start of `text`, decimal, or hexadecimal with `0x`. The text after it is ignored.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    match text.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits),
        None => decimal(text),
    }
}

/// The decimal number at the start of `text`.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let mut value = u64::from(digit(*text.first()?)?);
    for &byte in &text[1..] {
        let Some(digit) = digit(byte) else { break };
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// The decimal number that is the whole text.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    text.iter().all(u8::is_ascii_digit).then(|| decimal(text))?
}

/// The hexadecimal number at the start of `text`, with or without `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let nibble = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    let mut value = nibble(text.first()?)?;
    for digit in text[1..].iter().map_while(nibble) {
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | digit;
    }
    Some(value)
}

fn digit(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

/// The text after the first `key` at the start of a word.
pub(super) fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut from = 0;
    loop {
        let at = from + find(&text[from..], key)?;
        if at == 0 || matches!(text[at - 1], b' ' | b',' | b':') {
            return Some(&text[at + key.len()..]);
        }
        from = at + 1;
    }
}

/// The first position of `what`.
pub(super) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        let at = from + text[from..].iter().position(|&byte| byte == first)?;
        if text[at..].starts_with(what) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_end_where_something_else_begins() {
        assert_eq!(number(b"12,"), Some(12));
        assert_eq!(number(b"0x1fg"), Some(0x1f));
        assert_eq!(number(b"x"), None);
        assert_eq!(number(b""), None);
        assert_eq!(hexadecimal(b"1b = 0x3"), Some(0x1b));
        assert_eq!(hexadecimal(b"0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(hexadecimal(b"10000000000000000"), None);
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(whole(b"12a"), None);
        assert_eq!(whole(b""), None);
    }

    #[test]
    fn keys_stand_at_the_start_of_a_word() {
        assert_eq!(after(b"grip 0x1 rip 0x2", b"rip "), Some(&b"0x2"[..]));
        assert_eq!(after(b"vcpu=1, id=3", b"id="), Some(&b"3"[..]));
        assert_eq!(after(b"vcpu_id=3", b"id="), None);
        assert_eq!(find(b"aab", b"ab"), Some(1));
        assert_eq!(find(b"aab", b""), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-fx ,=]{0,30}", key in "[a-f =]{0,3}") {
            let _ = (number(text.as_bytes()), hexadecimal(text.as_bytes()), after(text.as_bytes(), key.as_bytes()));
        }
    }
}
