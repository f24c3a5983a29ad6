//! The frame of pages: they open offline and load nothing from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all pages.
pub const STYLE: &str = include_str!("style.css");
/// The style of sortable tables and of charts over time.
pub const RECORDINGS: &str = include_str!("recordings.css");
/// The style of pages that compare the arms of a study.
pub const ARMS: &str = include_str!("study.css");
/// The script of sortable tables.
pub const SCRIPT: &str = include_str!("sort.js");

/// Loads nothing, and runs no script except [`SCRIPT`], identified by its SHA-256, even if some text gets into the
/// page as markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'sha256-jd0CIfk48R3ZSMZP3ja36yloDrch7SLZKgyuUJdIYoU='";

/// A page of `sections`.
pub fn document(title: &str, sections: &Markup) -> String {
    styled(title, &[], sections)
}

/// A page of `sections` with additional styles.
pub fn styled(title: &str, styles: &[&str], sections: &Markup) -> String {
    let body = html! {
        main { (sections) }
        footer { p { "Made by exitless " (env!("CARGO_PKG_VERSION")) ". Nothing on this page was loaded from anywhere." } }
        script { (PreEscaped(SCRIPT)) }
    };
    framed(title, POLICY, &[&[RECORDINGS], styles].concat(), &body)
}

/// A page that follows the reader's dark mode, fits a phone and loads what `policy` allows. Harmful characters of names and
/// messages are replaced, which escaping of markup leaves.
pub fn framed(title: &str, policy: &str, styles: &[&str], body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="color-scheme" content="light dark";
                title { (title) }
                @for style in [STYLE].iter().chain(styles) { style { (PreEscaped(style)) } }
            }
            body { (body) }
        }
    };
    page.into_string().replace(is_unfit, "\u{fffd}")
}

/// Tests whether a page must not contain a character; it has lines and tabs.
fn is_unfit(character: char) -> bool {
    exits::is_harmful(character) && !matches!(character, '\n' | '\r' | '\t')
}

/// A figure with its title and a note.
pub fn tile(title: &str, value: &str, note: &str) -> Markup {
    html! { div { dt { (title) } dd { (value) } dd.note { (note) } } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// Base64 (RFC 4648, section 4).
    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group = |chunk: &[u8]| {
            let bits = chunk.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte))
                << (8 * (3 - chunk.len()));
            (0..4)
                .map(move |at| (at <= chunk.len()).then(|| LETTERS[(bits >> (18 - 6 * at)) as usize & 63]))
                .map(|letter| char::from(letter.unwrap_or(b'=')))
                .collect::<String>()
        };
        bytes.chunks(3).map(group).collect()
    }

    #[test]
    fn the_policy_names_the_script() {
        assert_eq!(base64(b"any car"), "YW55IGNhcg==");
        let hash = format!("'sha256-{}'", base64(&Sha256::digest(SCRIPT)));
        assert!(POLICY.contains(&hash), "The script has changed; its hash is {hash}");
    }

    #[test]
    fn no_text_reverses_what_stands_beside_it() {
        let named = |name: &str| document(name, &html! { p title=(name) { (name) } });
        let page = named("a\u{202e}b\u{9b}2J\u{1b}c");
        assert_eq!(page, named("a\u{fffd}b\u{fffd}2J\u{fffd}c"));
        assert!(!page.contains(is_unfit));
    }

    #[test]
    fn the_style_and_the_script_are_not_changed() {
        for text in [STYLE, RECORDINGS, ARMS, SCRIPT, POLICY] {
            assert!(!text.contains(is_unfit), "{text}");
        }
    }

    #[test]
    fn the_script_cannot_end_its_element() {
        assert!(!SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
    }
}
