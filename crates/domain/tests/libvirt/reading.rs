use domain::{Definition, NoFiles, Text};
use std::path::{Path, PathBuf};

/// A folder of fixtures.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The names of all fixtures in a folder, in order.
pub(crate) fn fixtures(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder(name)).expect("the folder is there");
    let names =
        entries.map(|entry| entry.expect("it can be listed").file_name().into_string().expect("it is UTF-8"));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A fixture's text.
pub(crate) fn text(name: &str) -> Text {
    Text::new(name, std::fs::read(folder("libvirt").join(name)).expect("the fixture is there"))
}

fn definition(name: &str) -> Definition {
    domain::libvirt::read(&text(name), &NoFiles).expect("the fixture is libvirt's XML")
}

/// The summary of a definition: each value with its line in the text.
fn summary(vm: &Definition) -> String {
    let mut lines = Vec::new();
    fn walk(value: &serde_json::Value, path: &str, lines: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields)
                if fields.contains_key("place") && fields.contains_key("value") =>
            {
                let place = &fields["place"];
                lines.push(format!("{path} = {}  <- {}: {}", fields["value"], place["line"], place["text"]));
            }
            serde_json::Value::Object(fields) => {
                for (name, field) in
                    fields.iter().filter(|(name, _)| !["properties", "place"].contains(&name.as_str()))
                {
                    walk(field, &format!("{path}.{name}"), lines);
                }
            }
            serde_json::Value::Array(list) => {
                for (number, one) in list.iter().enumerate() {
                    walk(one, &format!("{path}[{number}]"), lines);
                }
            }
            serde_json::Value::Null => {}
            other => lines.push(format!("{path} = {other}")),
        }
    }
    walk(&serde_json::to_value(vm).expect("it is data"), "vm", &mut lines);
    // Keep only the first of 380 pins.
    lines.retain(|line| !line.starts_with("vm.vcpu_pins[") || line.starts_with("vm.vcpu_pins[0]"));
    lines.join("\n")
}

#[test]
fn every_fixture_is_read_as_before() {
    for name in fixtures("libvirt") {
        let vm = definition(&name);
        insta::assert_snapshot!(format!("reading-{}", name.trim_end_matches(".xml")), summary(&vm));
    }
}

#[test]
fn what_real_tools_write_leaves_no_doubts() {
    for name in fixtures("libvirt") {
        assert_eq!(definition(&name).doubts, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_place_is_in_the_text() {
    for name in fixtures("libvirt") {
        let (vm, text) = (definition(&name), text(&name));
        let whole = String::from_utf8(text.bytes).expect("it is UTF-8");
        for device in &vm.devices {
            let part = &whole[device.place.start..device.place.end];
            let line = whole[..device.place.start].matches('\n').count() + 1;
            assert!(part.starts_with('<') || part.starts_with('-'), "{name}: {part}");
            assert_eq!(line, device.place.line, "{name}: {part}");
        }
    }
}
