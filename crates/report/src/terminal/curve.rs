//! Curves drawn with block characters, or in ASCII.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];

/// Eight characters of increasing height.
pub(crate) const fn levels(ascii: bool) -> [char; 8] {
    if ascii { ASCII } else { BLOCKS }
}

/// Values as characters of eight heights, the highest for `peak`. A value above zero is always visible.
pub(crate) fn curve(values: &[f64], peak: f64, levels: [char; 8]) -> String {
    let level = |value: f64| {
        if value <= 0.0 || peak <= 0.0 {
            return ' ';
        }
        let height = (value / peak * levels.len() as f64).ceil() as usize;
        levels[height.clamp(1, levels.len()) - 1]
    };
    values.iter().map(|&value| level(value)).collect()
}

/// The text with our own symbols in ASCII, character by character. Letters of names stay, because names are copied.
#[must_use]
pub fn with_ascii_symbols(text: &str) -> String {
    let replaced = |c: char| match c {
        '─' | '–' => '-',
        '…' => '~',
        'µ' => 'u',
        '·' => '.',
        '→' | '≥' => '>',
        c => c,
    };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbols_of_our_own_tables_are_in_ascii_and_letters_stay() {
        assert_eq!(with_ascii_symbols("≥ 50 µs ── 1–2 · na… 3 → 4 日é"), "> 50 us -- 1-2 . na~ 3 > 4 日é");
    }
}
