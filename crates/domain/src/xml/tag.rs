//! The attributes of a start tag, with their places.

use std::borrow::Cow;
use std::ops::Range;

/// The largest number of attributes, which no element of libvirt reaches. It bounds the search for
/// duplicates, which is quadratic.
const MOST: usize = 256;

/// An attribute.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    /// Its name, with the prefix of its namespace.
    pub(crate) name: Range<usize>,
    /// Its value as written, without the quotation marks.
    pub(crate) value: Range<usize>,
    /// The value without references, if it has any.
    pub(crate) decoded: Option<Box<str>>,
}

/// The attributes in `text[inside]`, the text between an element's name and `>` or `/>`.
///
/// # Errors
///
/// The byte of the error, and the error.
pub(crate) fn attributes(text: &str, inside: Range<usize>) -> Result<Vec<Attribute>, (usize, String)> {
    let bytes = text.as_bytes();
    let mut found: Vec<Attribute> = Vec::new();
    let mut at = inside.start;
    loop {
        let gap = skip(bytes, at, inside.end, |byte| byte.is_ascii_whitespace());
        if gap == inside.end {
            return Ok(found);
        }
        if gap == at {
            return Err((at, "white space is missing before an attribute".into()));
        }
        let name_end =
            skip(bytes, gap, inside.end, |byte| !byte.is_ascii_whitespace() && !b"='\"<>/&".contains(&byte));
        let equals = skip(bytes, name_end, inside.end, |byte| byte.is_ascii_whitespace());
        let name = &text[gap..name_end];
        if name.is_empty() {
            return Err((gap, "an attribute's name was expected".into()));
        }
        if bytes.get(equals) != Some(&b'=') || equals >= inside.end {
            return Err((gap, format!("the attribute {name} has no value")));
        }
        let quote_at = skip(bytes, equals + 1, inside.end, |byte| byte.is_ascii_whitespace());
        let quote = match bytes.get(quote_at) {
            Some(&quote @ (b'"' | b'\'')) if quote_at < inside.end => quote,
            _ => return Err((gap, format!("the value of the attribute {name} is not in quotation marks"))),
        };
        let value_end = skip(bytes, quote_at + 1, inside.end, |byte| byte != quote);
        if value_end == inside.end {
            return Err((gap, format!("the value of the attribute {name} does not end")));
        }
        let value = quote_at + 1..value_end;
        if let Some(less) = text[value.clone()].find('<') {
            return Err((value.start + less, format!("the value of the attribute {name} holds a <")));
        }
        if found.iter().any(|other| text[other.name.clone()] == *name) {
            return Err((gap, format!("the attribute {name} is given twice")));
        }
        if found.len() == MOST {
            return Err((gap, format!("the element has more than {MOST} attributes")));
        }
        let decoded = match decode(&text[value.clone()]) {
            Ok(Cow::Borrowed(_)) => None,
            Ok(Cow::Owned(decoded)) => Some(decoded.into_boxed_str()),
            Err((offset, problem)) => return Err((value.start + offset, problem)),
        };
        found.push(Attribute { name: gap..name_end, value, decoded });
        at = value_end + 1;
    }
}

/// The text with its references replaced.
///
/// # Errors
///
/// The byte of an invalid reference, and the error.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, (usize, String)> {
    if !text.contains('&') {
        return Ok(Cow::Borrowed(text));
    }
    let mut whole = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(offset) = text[at..].find('&') {
        let start = at + offset;
        whole.push_str(&text[at..start]);
        let end = text[start..].find(';').map(|length| start + length);
        let Some(end) = end.filter(|end| end - start <= 32) else {
            return Err((start, "a & is not written as &amp;".into()));
        };
        whole.push(character(&text[start + 1..end]).ok_or_else(|| {
            (start, format!("the reference {} is not known; XML has five and numbers", &text[start..=end]))
        })?);
        at = end + 1;
    }
    whole.push_str(&text[at..]);
    Ok(Cow::Owned(whole))
}

fn character(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "apos" => '\'',
        "quot" => '"',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            // XML has no NUL.
            char::from_u32(code).filter(|character| *character != '\0')?
        }
    })
}

fn skip(bytes: &[u8], from: usize, end: usize, wanted: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..end).unwrap_or_default();
    from + rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len())
}
