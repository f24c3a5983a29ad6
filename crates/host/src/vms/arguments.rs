//! Parses command lines: options with values, and QEMU's lists of properties.

/// The values of every option in `names` (without dashes), given as `-name VALUE`, `--name VALUE` or
/// `--name=VALUE`, in order.
pub(super) fn values<'a>(arguments: &'a [String], names: &[&str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let Some(option) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            continue;
        };
        if names.contains(&option) {
            found.extend(rest.next().map(String::as_str));
        } else if let Some((name, value)) = option.split_once('=') {
            // Only long options have this form; QEMU's never do.
            if argument.starts_with("--") && names.contains(&name) {
                found.push(value);
            }
        }
    }
    found
}

/// The values of an option that takes several: all words up to the next option.
pub(super) fn all_values<'a>(arguments: &'a [String], name: &str) -> Vec<&'a str> {
    let mut found: Vec<&'a str> = Vec::new();
    let mut inside = false;
    for argument in arguments.iter().skip(1) {
        if argument.starts_with('-') {
            let option = argument.trim_start_matches('-');
            let (option, value) =
                option.split_once('=').map_or((option, None), |(option, value)| (option, Some(value)));
            inside = option == name;
            found.extend(value.filter(|_| inside));
        } else if inside {
            found.push(argument);
        }
    }
    found
}

/// Parses QEMU's `value,key=value,...`, in which a comma within a value is doubled.
///
/// If the first part has no key, its key is `implied`; later parts without `=` are switches with the value
/// `on`.
pub(super) fn properties(text: &str, implied: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (number, part) in parts(text).into_iter().enumerate() {
        let pair = match part.split_once('=') {
            Some((key, value)) if is_key(key) => (key.to_owned(), value.to_owned()),
            _ if number == 0 => (implied.to_owned(), part),
            _ => (part, "on".to_owned()),
        };
        found.push(pair);
    }
    found
}

/// The last value of `key`: later ones replace earlier ones, as in QEMU.
pub(super) fn property<'a>(properties: &'a [(String, String)], key: &str) -> Option<&'a str> {
    properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn parts(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ',' && characters.next_if_eq(&',').is_none() {
            found.push(String::new());
        } else if let Some(last) = found.last_mut() {
            last.push(character);
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_in_every_spelling() {
        let line = words("-name=first --name -name a --name=b --named=c name -name d");
        assert_eq!(values(&line, &["name"]), ["-name", "b", "d"], "the program's own name is no option");
        let line = words("program -name=x -name");
        assert!(
            values(&line, &["name"]).is_empty(),
            "one dash takes no equals sign, and the last has no value"
        );
    }

    #[test]
    fn an_option_with_several_values_ends_at_the_next_one() {
        let line = words("program --device a b -v c --device=d e --devices f");
        assert_eq!(all_values(&line, "device"), ["a", "b", "d", "e"]);
    }

    #[test]
    fn commas_inside_values_are_doubled() {
        let found = properties("guest=a,,b=c,debug-threads=on,server", "guest");
        let expected = [("guest", "a,b=c"), ("debug-threads", "on"), ("server", "on")];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(property(&properties("web,,1", "guest"), "guest"), Some("web,1"));
        assert_eq!(property(&properties("a b=c", "guest"), "guest"), Some("a b=c"));
        assert_eq!(property(&properties("x,id=1,id=2", "guest"), "id"), Some("2"));
        assert_eq!(property(&properties(",,,x", "guest"), "guest"), Some(","));
    }

    proptest! {
        #[test]
        fn doubled_commas_come_back_single(value in "[a-z,=]{0,20}") {
            let text = format!("name={},last=1", value.replace(',', ",,"));
            let found = properties(&text, "name");
            prop_assert_eq!(property(&found, "name"), Some(value.as_str()));
            prop_assert_eq!(property(&found, "last"), Some("1"));
        }
    }
}
