//! What the pages say of the control tree and the sockets of `iocm`.

use super::pages::{book, for_users};

fn is_attribute(name: &str) -> bool {
    iocm::control::attributes().any(|(_, attribute)| attribute.name == name)
}

#[test]
fn attributes_that_the_pages_name_exist() {
    let mut named = 0;
    for page in book().iter().filter(|page| page.name().contains("iocm")) {
        let words = page.text.replace('\n', " ");
        let called = words.split("attribute `").skip(1).filter_map(|rest| rest.split('`').next());
        // Both in commands and in sentences.
        let set = words
            .split("iocm set ")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.split_once('/'));
        for name in called.chain(set.map(|(_, name)| name)) {
            named += 1;
            assert!(is_attribute(name.trim_matches('`')), "{}: there is no attribute {name}", page.name());
        }
    }
    assert!(named >= 3, "{named}");
}

#[test]
fn no_example_gives_the_control_socket_to_a_vmm() {
    for page in for_users() {
        for block in page.blocks() {
            let has = |text: &str| block.lines.iter().any(|line| line.starts_with(text));
            let is_control =
                block.lines.iter().any(|line| line.starts_with("ListenStream=") && line.contains("control"));
            let is_of_vmm = ["SocketGroup=libvirt-qemu", "SocketGroup=kvm", "SocketGroup=qemu"]
                .iter()
                .any(|group| has(group));
            assert!(!(is_control && is_of_vmm), "{}: line {}", page.name(), block.line);
        }
    }
}
