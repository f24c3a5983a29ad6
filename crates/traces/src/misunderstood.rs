//! The events of a recording whose descriptions cannot be parsed.

use tracepoints::EventFormat;

use crate::bytes::LONGEST_NAME;

/// The most events that a message names.
const FEW: usize = 5;
/// The most characters of an event's name in a message, and of the reason.
const LONGEST_TOLD: usize = 200;

/// The first few of these events, and their number: a corrupt recording may have millions.
#[derive(Debug, Default)]
pub(crate) struct Misunderstood {
    first: Vec<String>,
    number: u64,
}

impl Misunderstood {
    /// Parses the description of an event of `system`; notes the event if that fails.
    pub(crate) fn parse(&mut self, system: &str, description: &str) -> Option<EventFormat> {
        let error = match EventFormat::parse(description) {
            Ok(format) if format.name.len() <= LONGEST_NAME => return Some(format),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        self.number += 1;
        if self.first.len() < FEW {
            let why = match error {
                Some(error) => error.to_string(),
                None => format!("its name has more than {LONGEST_NAME} bytes"),
            };
            let event = match description.lines().find_map(|line| line.strip_prefix("name:")) {
                Some(name) => format!("{system}:{}", name.trim()),
                None => format!("an event of {system}"),
            };
            self.first.push(format!("{} ({})", beginning(&event), beginning(&why)));
        }
        None
    }

    /// A text with the events; `None` if there are none.
    pub(crate) fn told(&self) -> Option<String> {
        let more = match self.number - self.first.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed = self.first.join(", ");
        (self.number > 0)
            .then(|| format!("events whose descriptions are not understood were not read: {listed}{more}"))
    }

    /// Adds these events to a text with the events that were found: the missing one may be among them.
    pub(crate) fn beside(&self, found: String) -> String {
        match self.told() {
            Some(told) => format!("{found}; {told}"),
            None => found,
        }
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(LONGEST_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_named_with_the_reason() {
        let mut misunderstood = Misunderstood::default();
        assert_eq!(misunderstood.told(), None);
        assert_eq!(misunderstood.beside("it has none".to_owned()), "it has none");
        assert!(misunderstood.parse("kvm", "name: kvm_entry\nID: 7\n").is_some());
        assert_eq!(misunderstood.parse("kvm", "name: kvm_msr\nID: x\n"), None);
        let told = misunderstood.beside("it has none".to_owned());
        assert!(told.starts_with("it has none; events whose descriptions"), "{told}");
        assert!(told.contains("read: kvm:kvm_msr (`x` is no event ID"), "{told}");
    }

    #[test]
    fn any_number_of_them_takes_little_memory() {
        let mut misunderstood = Misunderstood::default();
        let long = format!("name: {}\nID: 1\nfield:{0}\n", "x".repeat(100_000));
        let name = format!("name: {}\nID: 1\n", "x".repeat(LONGEST_NAME + 1));
        assert_eq!((misunderstood.parse("kvm", &long), misunderstood.parse("kvm", &name)), (None, None));
        (0..100_000).for_each(|_| drop(misunderstood.parse("kvm", "")));
        assert_eq!((misunderstood.first.len(), misunderstood.number), (FEW, 100_002));
        assert!(misunderstood.first.iter().all(|told| told.len() <= 2 * LONGEST_TOLD + 3));
        assert!(misunderstood.told().unwrap().ends_with(" and 99997 more"));
    }
}
