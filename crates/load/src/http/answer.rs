//! The parser that finds the end of an HTTP answer.

use crate::crowd::{Happened, Session};

/// The most header fields of an answer that are parsed.
const MOST_FIELDS: usize = 64;
/// The longest head of an answer, in bytes.
const LONGEST_HEAD: usize = 32 * 1024;

/// The protocol state of one connection: the rest of the current answer's body.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    good: bool,
    head: u64,
    length: u64,
    left: u64,
}

impl Session for Asking {
    fn greeting(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn take(&mut self, incoming: &[u8], happened: &mut Vec<Happened>) -> Result<usize, String> {
        let mut taken = 0;
        loop {
            let rest = &incoming[taken..];
            let body = match &mut self.body {
                Some(body) => body,
                None => match head(rest)? {
                    Some((body, length)) => {
                        taken += length;
                        // An informational answer is followed by the final answer to the same request.
                        let Some(body) = body else { continue };
                        self.body.insert(body)
                    }
                    None => return Ok(taken),
                },
            };
            let here = body.left.min((incoming.len() - taken) as u64);
            body.left -= here;
            // `here` is at most the number of bytes received, so the cast is lossless.
            taken += here as usize;
            if body.left > 0 {
                return Ok(taken);
            }
            happened.push(Happened::Answer { good: body.good, bytes: body.head + body.length });
            self.body = None;
        }
    }
}

/// The head of an answer and its length in bytes; `None` while it is incomplete. Informational answers (RFC 9110, section
/// 15.2) have no body; 101 would be the last answer.
fn head(bytes: &[u8]) -> Result<Option<(Option<Body>, usize)>, String> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    let parsed = answer.parse(bytes).map_err(|error| format!("did not answer with HTTP: {error}"))?;
    let httparse::Status::Complete(length) = parsed else {
        return if bytes.len() < LONGEST_HEAD {
            Ok(None)
        } else {
            Err("answered with an endless head".to_owned())
        };
    };
    let status = answer.code.unwrap_or(0);
    if (100..200).contains(&status) && status != 101 {
        return Ok(Some((None, length)));
    }
    let content = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let body = match content {
        // 204 and 304 have no body (RFC 9112, section 6.3).
        _ if matches!(status, 101 | 204 | 304) => 0,
        Some(field) => std::str::from_utf8(field.value)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or("answered with a Content-Length that is not a number")?,
        None => {
            return Err("answered without Content-Length: only documents of a known length can be asked for"
                .to_owned());
        }
    };
    let good = (200..400).contains(&status);
    Ok(Some((Some(Body { good, head: length as u64, length: body, left: body }), length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(chunks: &[&[u8]]) -> Result<Vec<(bool, u64)>, String> {
        let (mut asking, mut kept, mut found) = (Asking::default(), Vec::new(), Vec::new());
        for chunk in chunks {
            kept.extend_from_slice(chunk);
            let taken = asking.take(&kept, &mut found)?;
            kept.drain(..taken);
        }
        let answer = |what| match what {
            Happened::Answer { good, bytes } => (good, bytes),
            other => panic!("{other:?}"),
        };
        Ok(found.into_iter().map(answer).collect())
    }

    const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    const BAD: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn answers_end_where_their_length_says() {
        assert_eq!(answers(&[GOOD, BAD]), Ok(vec![(true, 43), (false, 45)]));
        assert_eq!(answers(&[&[GOOD, GOOD].concat(), b"HTTP/1.1 204 No Content\r\n\r\n"]).unwrap().len(), 3);
        let hints = [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", GOOD].concat();
        assert_eq!(answers(&[&hints]), Ok(vec![(true, 43)]));
        assert!(answers(&[b"HTTP/1.1 200 OK\r\n\r\n"]).unwrap_err().contains("Content-Length"));
        assert!(answers(&[b"SSH-2.0-x\r\n"]).unwrap_err().contains("not answer with HTTP"));
        assert!(answers(&[b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"]).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(cuts in proptest::collection::vec(0..500usize, 0..8)) {
            let whole = [GOOD, BAD, GOOD].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &whole[ends[0]..ends[1]]).collect();
            prop_assert_eq!(answers(&pieces), answers(&[&whole]));
        }

        #[test]
        fn any_bytes_are_answers_or_an_error(bytes: Vec<u8>) {
            let _ = answers(&[&bytes]);
            let _ = answers(&[b"HTTP/1.1 200 OK\r\n", &bytes]);
        }
    }
}
