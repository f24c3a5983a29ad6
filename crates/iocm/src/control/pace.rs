//! Words for how workers and queues wait, and lists of CPUs.

use super::refusal::Refusal;
use crate::config::PollingConfig;
use crate::worker::Polling;

/// The word for a way of waiting, as the configuration has it.
pub(super) const fn word(polling: Polling) -> &'static str {
    match polling {
        Polling::Adaptive { .. } => "adaptive",
        Polling::Always => "always",
        Polling::Never => "never",
    }
}

/// The way of waiting that a word is for.
pub(super) fn of_word(text: &str) -> Result<PollingConfig, Refusal> {
    match text {
        "adaptive" => Ok(PollingConfig::Adaptive),
        "always" => Ok(PollingConfig::Always),
        "never" => Ok(PollingConfig::Never),
        other => Err(Refusal::invalid(format!("`{other}` is none of adaptive, always, never"))),
    }
}

/// CPUs as a list: `0-3,6`.
pub(super) fn list(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let shown = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_words_are_read_back() {
        assert_eq!(list(&[0, 1, 2, 3, 6, 8, 9]), "0-3,6,8-9");
        assert_eq!(crate::config::cpu_list(&list(&[0, 1, 5])).unwrap(), [0, 1, 5]);
        for polling in [Polling::default(), Polling::Always, Polling::Never] {
            assert_eq!(of_word(word(polling)).unwrap().polling(60), polling);
        }
        assert!(of_word("sometimes").is_err());
    }
}
