//! Facts of a host as labels of a node: the local feature file of Kubernetes' Node Feature Discovery.

use super::subject::Subject;
use host::Inspection;

/// The features, one per line as `NAME=VALUE`; unknown ones are omitted. NFD turns them into labels such as
/// `feature.node.kubernetes.io/exitless-interrupt-virtualization.enabled=true` (Node Feature Discovery, "Local feature
/// source").
#[must_use]
pub fn node_features(host: &Inspection) -> String {
    let subject = Subject::new(host);
    let known = |name: &str, value: Option<bool>| {
        value.map(|value| format!("exitless-interrupt-virtualization.{name}={value}\n"))
    };
    // In a container too, modules are those of the host, unless `/sys/module` is hidden.
    let hides =
        |place: &str| host.container.iter().flat_map(|one| &one.empty).any(|(hidden, _)| *hidden == place);
    let sees_modules = !hides("/sys/module");
    let capable = if subject.is_xen() { None } else { subject.cpu_has() };
    let enabled = if subject.is_xen() || !sees_modules { None } else { subject.is_enabled() };
    let mechanism = (capable == Some(true) || enabled == Some(true))
        .then(|| format!("exitless-interrupt-virtualization.mechanism={}\n", subject.technology()));
    [mechanism, known("capable", capable), known("enabled", enabled)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::node_features;
    use crate::examination::cases::{Made, on, with};

    fn features(made: Made) -> String {
        node_features(&made.inspect())
    }

    #[test]
    fn a_node_is_labelled_with_what_is_known_of_it() {
        let with_prefix = |lines: &[&str]| {
            lines.iter().map(|line| format!("exitless-interrupt-virtualization.{line}\n")).collect::<String>()
        };
        assert_eq!(features(on("zen4")), with_prefix(&["mechanism=AVIC", "capable=true", "enabled=true"]));
        assert_eq!(features(on("zen2")), with_prefix(&["mechanism=AVIC", "capable=true", "enabled=false"]));
        assert!(features(on("sapphire-rapids")).contains("mechanism=APICv\n"));
        // Nothing is reported on Xen, whose guests do not run on KVM.
        assert_eq!(features(on("xen-dom0")), "");
        // The features are the same in a container.
        let pod = with("zen4", "== /dev/termination-log\n");
        assert_eq!(features(pod), features(on("zen4")));
    }

    #[test]
    fn names_and_values_are_those_of_labels() {
        for (name, _) in host::fake::HOSTS {
            for line in features(on(name)).lines() {
                let (key, value) = line.split_once('=').unwrap();
                for text in [key, value] {
                    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
                    assert!((1..=63).contains(&text.len()) && text.chars().all(plain), "{name}: {line}");
                }
            }
        }
    }
}
