//! What was read, as lines that other programs take apart.

use serde_json::Value as Json;

/// All attributes of a value that was read at `path`, with their paths, in order.
#[must_use]
pub fn flat(path: &str, value: &Json) -> Vec<(String, Json)> {
    let Json::Object(fields) = value else { return vec![(path.to_owned(), value.clone())] };
    let below = fields.iter().flat_map(|(name, value)| match path.trim_matches('/') {
        "" => flat(name, value),
        path => flat(&format!("{path}/{name}"), value),
    });
    below.collect()
}

/// What an attribute says, as its file has it but without the last line's end.
#[must_use]
pub fn plain(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::Bool(switch) => if *switch { "yes" } else { "no" }.to_owned(),
        Json::String(text) => text.trim_end_matches('\n').to_owned(),
        Json::Array(lines) => {
            let of = |line: &Json| match line {
                Json::Array(words) => words.iter().map(plain).collect::<Vec<_>>().join(" "),
                other => plain(other),
            };
            lines.iter().map(of).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tree_is_lines() {
        let value = json!({ "w.0": { "cpu": "2", "pace": { "polling": "never" }, "load": 1.5 } });
        let lines: Vec<_> =
            flat("/workers/", &value).into_iter().map(|(path, value)| (path, plain(&value))).collect();
        let wanted =
            [("workers/w.0/cpu", "2"), ("workers/w.0/load", "1.5"), ("workers/w.0/pace/polling", "never")];
        assert_eq!(lines, wanted.map(|(path, value)| (path.to_owned(), value.to_owned())));
        assert_eq!(plain(&json!([[1, 2], [4, 5]])), "1 2\n4 5");
        assert_eq!(plain(&json!(["a", "b"])), "a\nb");
        assert_eq!(flat("", &json!(3)), [(String::new(), json!(3))]);
    }
}
