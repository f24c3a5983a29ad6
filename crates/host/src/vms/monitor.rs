//! QEMU's machine monitors (QMP), from its command line.

use super::arguments::{properties, property, values};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A monitor. QEMU accepts one connection at a time on each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitor {
    /// The path of the socket in QEMU's own file system; `None` if QEMU inherited an open descriptor.
    pub path: Option<String>,
    /// Its use.
    pub used: MonitorUse,
}

/// The use of a monitor, from the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MonitorUse {
    /// Open for connections.
    Open,
    /// libvirt created it, and stays connected while it runs.
    Libvirt,
    /// QEMU connects as a client to a listening program.
    Client,
    /// QEMU inherited the descriptor from the program that started it, which uses the other end.
    Inherited,
}

/// The limit of a VM's monitors: each is asked until one answers.
const MOST: usize = 8;

/// The first monitors on UNIX sockets, in the order of the command line, without those on TCP, pipes and terminals.
/// Equal ones count once.
pub(super) fn of(arguments: &[String]) -> Vec<Monitor> {
    let devices: BTreeMap<String, Vec<(String, String)>> = values(arguments, &["chardev"])
        .into_iter()
        .map(|text| properties(text, "backend"))
        .filter(|device| property(device, "backend") == Some("socket"))
        .filter_map(|device| Some((property(&device, "id")?.to_owned(), device)))
        .collect();
    let mut found: Vec<Monitor> = Vec::new();
    let mut add = |one: Option<Monitor>| {
        if let Some(one) = one.filter(|one| found.len() < MOST && !found.contains(one)) {
            found.push(one);
        }
    };
    for text in values(arguments, &["qmp", "qmp-pretty"]) {
        match text.split_once(':') {
            Some(("unix", address)) => add(monitor("", &properties(address, "path"))),
            Some(("chardev", id)) => add(devices.get(id).and_then(|device| monitor(id, device))),
            _ => {}
        }
    }
    for text in values(arguments, &["mon"]) {
        let one = properties(text, "chardev");
        if property(&one, "mode") == Some("control") {
            let id = property(&one, "chardev").unwrap_or_default();
            add(devices.get(id).and_then(|device| monitor(id, device)));
        }
    }
    found
}

fn monitor(id: &str, device: &[(String, String)]) -> Option<Monitor> {
    let path = property(device, "path").filter(|path| !path.is_empty()).map(str::to_owned);
    let inherited = property(device, "fd").is_some();
    if path.is_none() && !inherited {
        return None;
    }
    let by_libvirt =
        id == "charmonitor" || path.as_deref().is_some_and(|path| path.contains("/libvirt/qemu/"));
    let used = match property(device, "server") {
        _ if by_libvirt => MonitorUse::Libvirt,
        _ if inherited => MonitorUse::Inherited,
        Some("on" | "yes" | "true" | "y") => MonitorUse::Open,
        _ => MonitorUse::Client,
    };
    Some(Monitor { path, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<(Option<String>, MonitorUse)> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of(&arguments).into_iter().map(|one| (one.path, one.used)).collect()
    }

    #[test]
    fn monitors_of_every_spelling() {
        let path = || Some("/run/q".to_owned());
        let table = [
            ("q -qmp unix:/run/q,server=on,wait=off", vec![(path(), MonitorUse::Open)]),
            ("q -qmp unix:/run/q,server,nowait", vec![(path(), MonitorUse::Open)]),
            ("q -qmp-pretty unix:/run/q", vec![(path(), MonitorUse::Client)]),
            ("q -qmp unix:path=/run/q,server=off", vec![(path(), MonitorUse::Client)]),
            ("q -qmp tcp:localhost:4444,server=on -qmp stdio -qmp unix:", vec![]),
            (
                "q -chardev socket,id=m,path=/run/q,server=on -mon chardev=m,mode=control",
                vec![(path(), MonitorUse::Open)],
            ),
            ("q -chardev socket,id=m,path=/run/q,server=on -qmp chardev:m", vec![(path(), MonitorUse::Open)]),
            (
                "q -mon m,mode=control -chardev socket,id=m,fd=3,server=on",
                vec![(None, MonitorUse::Inherited)],
            ),
            (
                "q -chardev socket,id=charmonitor,fd=22,server=on,wait=off -mon chardev=charmonitor,id=monitor,mode=control",
                vec![(None, MonitorUse::Libvirt)],
            ),
            ("q -chardev socket,id=m,path=/run/q,server=on -mon chardev=m", vec![]),
            ("q -chardev pty,id=m -mon chardev=m,mode=control", vec![]),
            ("q -mon chardev=none,mode=control", vec![]),
        ];
        for (line, expected) in table {
            assert_eq!(found(line), expected, "{line}");
        }
        let repeated = format!("q{}", " -qmp unix:/run/q,server=on".repeat(45_000));
        assert_eq!(found(&repeated), [(path(), MonitorUse::Open)]);
        let many: String = (0..1000).map(|number| format!(" -qmp unix:/run/{number},server=on")).collect();
        assert_eq!(found(&format!("q{many}")).len(), MOST);
        let libvirt = "q -qmp unix:/var/lib/libvirt/qemu/domain-1-web/monitor.sock,server=on";
        assert_eq!(found(libvirt)[0].1, MonitorUse::Libvirt);
    }
}
