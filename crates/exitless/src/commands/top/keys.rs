//! The keys and their actions.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use report::top::Action;

/// The action of a key; `None` for keys without one.
pub(super) fn action(key: &KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            // Some terminals send this for Backspace.
            KeyCode::Char('h') => Some(Action::Back),
            _ => None,
        };
    }
    let action = match key.code {
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Enter | KeyCode::Right => Action::Open,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => Action::Back,
        KeyCode::Char('v') => Action::Turn,
        KeyCode::Char('i') => Action::IoCores,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('S') => Action::Reverse,
        KeyCode::Char('p' | ' ') => Action::Pause,
        KeyCode::Char('t') => Action::Sum,
        KeyCode::Char('r') => Action::Reset,
        // Accept plus without the shift key too.
        KeyCode::Char('+' | '=') => Action::Longer,
        KeyCode::Char('-') => Action::Shorter,
        KeyCode::Char('?' | 'h') => Action::Help,
        KeyCode::Char('q') => Action::Quit,
        _ => return None,
    };
    Some(action)
}

/// Tests for Ctrl-Z, which a terminal in raw mode passes on as a key.
pub(super) fn is_stop(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: KeyCode) -> Option<Action> {
        action(&KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn each_key_does_what_the_help_says() {
        let keys = "jkvsSptr+-?hq gG=i".chars().map(|key| of(KeyCode::Char(key)).unwrap());
        use Action::*;
        let wanted = [
            Down, Up, Turn, Sort, Reverse, Pause, Sum, Reset, Longer, Shorter, Help, Help, Quit, Pause,
            First, Last, Longer, IoCores,
        ];
        assert_eq!(keys.collect::<Vec<_>>(), wanted);
        let others = [
            (KeyCode::Up, Up),
            (KeyCode::Down, Down),
            (KeyCode::PageUp, PageUp),
            (KeyCode::PageDown, PageDown),
            (KeyCode::Home, First),
            (KeyCode::End, Last),
            (KeyCode::Enter, Open),
            (KeyCode::Right, Open),
            (KeyCode::Esc, Back),
            (KeyCode::Backspace, Back),
            (KeyCode::Left, Back),
        ];
        assert!(others.into_iter().all(|(code, wanted)| of(code) == Some(wanted)));
        assert_eq!(of(KeyCode::Char('x')), None);
    }

    #[test]
    fn control_and_release_are_not_the_key_itself() {
        let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
        assert_eq!(
            ["c", "h", "s"].map(|key| action(&control(key.parse().unwrap()))),
            [Some(Action::Quit), Some(Action::Back), None]
        );
        assert!(is_stop(&control('z')) && !is_stop(&KeyEvent::from(KeyCode::Char('z'))));
        let mut released = KeyEvent::from(KeyCode::Char('q'));
        released.kind = KeyEventKind::Release;
        assert_eq!(action(&released), None);
    }
}
