use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::testing::patience;

/// The UUID of the domain with the name 2 of the mock virsh.
const UUID: &str = "b47e2bb3-2f2f-4fd1-a4a2-09f7a1f7c0d5";

/// A mock virsh that knows one domain, keeps its state in a file and logs its calls. It has to be asked in English.
const FAKE: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
shift 3
echo "$*" >> asked
[ "$LC_ALL" = C ] || { echo "Fehler: LC_ALL=$LC_ALL" >&2; exit 1; }
case "$1" in
list) echo "b47e2bb3-2f2f-4fd1-a4a2-09f7a1f7c0d5 2" ;;
domstate) [ ! -e away ] || { rm away; echo "error: no connection" >&2; exit 1; }; cat state ;;
start) echo running > state ;;
shutdown) [ ! -e stubborn ] || { echo "error: no agent" >&2; exit 1; }; echo "shut off" > state ;;
destroy) echo "shut off" > state ;;
vcpucount) echo 3 ;;
qemu-agent-command)
    case "$7" in
    *guest-ping*) echo '{"return":{}}' ;;
    *guest-get-vcpus*) echo '{"return":[{"online":true}]}' ;;
    *) echo "error: internal error: unable to execute QEMU agent command" >&2; exit 1 ;;
    esac ;;
*) echo "error: unknown command: '$1'" >&2; exit 1 ;;
esac
"#;

fn with_fake(state: &str) -> (tempfile::TempDir, Result<LibvirtGuest, GuestError>) {
    of_name("vm1", state)
}

fn of_name(name: &str, state: &str) -> (tempfile::TempDir, Result<LibvirtGuest, GuestError>) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("virsh");
    fs::write(&program, FAKE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("state"), format!("{state}\n")).unwrap();
    let plan: LibvirtPlan = toml::from_str(&format!("domains = [{name:?}]")).unwrap();
    let guest = LibvirtGuest::start_by(&plan, 0, program, patience(Duration::from_secs(1)));
    (folder, guest)
}

fn asked(folder: &Path) -> String {
    fs::read_to_string(folder.join("asked")).unwrap()
}

#[test]
fn a_domain_that_was_off_is_started_and_shut_down() {
    let (folder, guest) = with_fake("shut off");
    let mut guest = guest.unwrap();
    assert_eq!((guest.name(), guest.vcpus()), ("vm1", 3));
    assert!(asked(folder.path()).contains("start --domain vm1"));
    guest.stop().unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("state")).unwrap(), "shut off\n");
}

#[test]
fn a_domain_whose_name_is_a_number_is_not_taken_for_an_id() {
    let (folder, guest) = of_name("2", "shut off");
    let mut guest = guest.unwrap();
    assert_eq!(guest.name(), "2");
    guest.run("true", Duration::from_secs(1)).unwrap_err();
    guest.stop().unwrap();
    let asked = asked(folder.path());
    assert!(asked.contains(&format!("start --domain {UUID}")), "{asked}");
    assert!(asked.contains(&format!("shutdown --domain {UUID}")), "{asked}");
    assert!(!asked.contains("--domain 2"), "{asked}");
    let (folder, guest) = of_name("7", "running");
    let Err(refused) = guest else { panic!("there is no domain 7") };
    let refused = refused.to_string();
    assert!(refused.contains('7') && refused.contains("list --all"), "{refused}");
    assert_eq!(self::asked(folder.path()), "list --all --uuid --name\n");
}

#[test]
fn a_domain_that_was_started_is_not_left_behind() {
    let state = |folder: &Path| fs::read_to_string(folder.join("state")).unwrap();
    let (folder, guest) = with_fake("shut off");
    drop(guest.unwrap());
    assert_eq!(state(folder.path()), "shut off\n");
    assert!(!asked(folder.path()).contains("destroy"));
    let (folder, guest) = with_fake("shut off");
    fs::write(folder.path().join("stubborn"), "").unwrap();
    guest.unwrap().stop().unwrap();
    assert_eq!(state(folder.path()), "shut off\n");
    assert_eq!(asked(folder.path()).matches("destroy").count(), 1, "{}", asked(folder.path()));
}

#[test]
fn a_libvirtd_that_is_away_while_a_domain_shuts_down_is_asked_again() {
    let (folder, guest) = with_fake("shut off");
    fs::write(folder.path().join("away"), "").unwrap();
    guest.unwrap().stop().unwrap();
    assert!(!asked(folder.path()).contains("destroy"));
}

#[test]
fn a_domain_that_ran_already_is_left_running() {
    let (folder, guest) = with_fake("running");
    guest.unwrap().stop().unwrap();
    let asked = asked(folder.path());
    assert!(!asked.contains("start ") && !asked.contains("shutdown"), "{asked}");
}

#[test]
fn the_words_of_virsh_are_kept() {
    let (_folder, guest) = with_fake("running");
    let refusal = guest.unwrap().run("true", Duration::from_secs(1)).unwrap_err().to_string();
    assert!(refusal.contains("unable to execute QEMU agent command"), "{refusal}");
}

#[test]
fn an_address_is_found_in_virshs_table() {
    let shown = " Name       MAC address          Protocol     Address\n\
                 -------------------------------------------------------------------------------\n\
                 vnet0      52:54:00:c4:2c:4a    ipv4         192.168.122.189/24";
    assert_eq!(address_in(shown), Some([192, 168, 122, 189].into()));
    assert_eq!(address_in(""), None);
}

#[test]
fn a_process_is_looked_for_only_where_the_connection_leads() {
    let file = |connect| pid_file(connect, "vm1", Path::new("/root"), Some(Path::new("/run/user/1000")));
    let system = Ok(PathBuf::from("/root/run/libvirt/qemu/vm1.pid"));
    assert_eq!(file("qemu:///system"), system);
    assert_eq!(file("qemu+unix:///system?mode=legacy"), system);
    let session = Ok(PathBuf::from("/run/user/1000/libvirt/qemu/run/vm1.pid"));
    assert_eq!(file("qemu:///session"), session);
    for elsewhere in ["qemu+ssh://hv2/system", "qemu://hv2/system", "xen:///system", "test:///default"] {
        assert_eq!(file(elsewhere), Err("is not libvirt's QEMU on this host"), "{elsewhere}");
    }
    let without = pid_file("qemu:///session", "vm1", Path::new("/root"), None);
    assert_eq!(without, Err("needs XDG_RUNTIME_DIR, which is not set"));
}
