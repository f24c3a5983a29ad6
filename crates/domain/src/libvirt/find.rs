//! Finds the domain in a text.

use crate::Error;
use crate::xml::{Node, Tree};

/// The only domain of a text: the root, or within one of libvirt's wrapper elements.
pub(crate) fn domain<'t>(name: &str, tree: &'t Tree<'t>) -> Result<Node<'t>, Error> {
    let mut domains = tree.roots.iter().filter_map(|&index| within(Node { tree, index }));
    let Some(domain) = domains.next() else {
        let root = Node { tree, index: tree.roots.first().copied().unwrap_or_default() };
        let problem = format!("its root is <{}>; a <domain> was expected", root.full_name());
        return Err(Error::new(name, problem, advice(root)).at_line(root.element().line));
    };
    match tree.roots.get(1) {
        Some(&second) => {
            let second = Node { tree, index: second };
            let problem = format!("a second document begins with <{}>", second.full_name());
            let advice =
                "Give each definition a file of its own; `virt-install --print-xml 2` prints one alone";
            Err(Error::new(name, problem, advice).at_line(second.element().line))
        }
        None => Ok(domain),
    }
}

fn within(root: Node<'_>) -> Option<Node<'_>> {
    match root.full_name() {
        "domain" => Some(root),
        // A running domain below /run/libvirt/qemu, a snapshot, a checkpoint, a managed save.
        "domstatus" | "domainsnapshot" | "domainbackup" | "domaincheckpoint" => root.child("domain"),
        _ => None,
    }
}

fn advice(root: Node<'_>) -> String {
    match root.name() {
        "network" | "pool" | "volume" | "interface" | "nwfilter" | "secret" | "device" | "capabilities"
        | "domainCapabilities" | "cpu" => {
            format!("This is libvirt's XML of a {}; `virsh dumpxml NAME` prints a domain's", root.name())
        }
        _ => "Give libvirt's XML of a domain, as `virsh dumpxml NAME` prints it".into(),
    }
}
