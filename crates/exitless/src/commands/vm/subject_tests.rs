use super::*;
use std::fs;

const XML: &str = "<domain type='kvm'><name>web</name></domain>";

fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["etc/libvirt/qemu", "run/libvirt/qemu", "proc/17"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    root
}

#[test]
fn a_domain_is_found_where_libvirt_keeps_it() {
    let root = root();
    fs::write(root.path().join("run/libvirt/qemu/web.xml"), format!("<domstatus>{XML}</domstatus>")).unwrap();
    let running = Subject::find(root.path(), "libvirt:web", Which::Next).unwrap();
    assert_eq!(running.form, Form::Libvirt);
    assert_eq!(running.definition().unwrap().name.unwrap().value, "web");
    fs::write(root.path().join("etc/libvirt/qemu/web.xml"), XML).unwrap();
    let defined = Subject::find(root.path(), "libvirt:web", Which::Next).unwrap();
    assert!(defined.text.name.ends_with("etc/libvirt/qemu/web.xml"), "{}", defined.text.name);
    assert_eq!(defined.source, Source::Libvirt("web".into()));
    let running = Subject::find(root.path(), "libvirt:web", Which::Running).unwrap();
    assert!(running.text.name.ends_with("run/libvirt/qemu/web.xml"), "{}", running.text.name);
    fs::remove_file(root.path().join("run/libvirt/qemu/web.xml")).unwrap();
    let stopped = Subject::find(root.path(), "libvirt:web", Which::Running).unwrap();
    assert_eq!(stopped.text.name, defined.text.name);
    let missing = Subject::find(root.path(), "libvirt:mail", Which::Next).unwrap_err();
    assert!(
        missing.is::<Usage>() && missing.to_string().contains("libvirt has no domain \"mail\""),
        "{missing}"
    );
    assert!(Subject::find(root.path(), "libvirt:../web", Which::Next).unwrap_err().is::<Usage>());
}

#[test]
fn what_virsh_said_is_not_lost_if_the_file_cannot_be_read() {
    let root = root();
    // As if this user might not look.
    fs::create_dir(root.path().join("etc/libvirt/qemu/wbe.xml")).unwrap();
    let failed = |said: Option<&str>| {
        file_of_libvirt(root.path(), "wbe", Which::Next, said.map(str::to_owned)).unwrap_err()
    };
    let unknown =
        "error: failed to get domain 'wbe'; error: Domain not found: no domain with matching name 'wbe'";
    let error = failed(Some(unknown));
    let text = error.to_string();
    assert!(
        error.is::<Usage>() && text.contains(unknown) && text.contains("wbe.xml cannot be read"),
        "{text}"
    );
    let down = "error: failed to connect to the hypervisor";
    let error = failed(Some(down));
    let text = format!("{error:#}");
    assert!(!error.is::<Usage>() && text.contains(down) && text.contains("wbe.xml failed"), "{text}");
    let text = failed(None).to_string();
    assert!(text.ends_with("wbe.xml failed"), "{text}");
}

#[test]
fn a_number_is_a_process() {
    let root = root();
    fs::write(root.path().join("proc/17/cmdline"), "qemu-system-x86_64\0-name\0web\0-m\x002G\0").unwrap();
    let found = Subject::find(root.path(), "17", Which::Next).unwrap();
    assert_eq!((found.form, found.source.clone()), (Form::Qemu, Source::Process(17)));
    assert_eq!(found.definition().unwrap().name.unwrap().value, "web");
    assert!(Subject::find(root.path(), "18", Which::Next).unwrap_err().to_string().contains("no process 18"));
    fs::write(root.path().join("proc/17/cmdline"), "").unwrap();
    let empty = Subject::find(root.path(), "17", Which::Next).unwrap_err();
    assert!(empty.to_string().contains("belongs to the kernel"), "{empty}");
}

#[test]
fn the_process_of_another_vmm_is_not_taken_for_qemu() {
    let root = root();
    for (line, name) in [
        ("/usr/bin/firecracker\0--id\0web\0", "firecracker"),
        ("cloud-hypervisor\0--cpus\0boot=2\0", "cloud-hypervisor"),
        ("crosvm\0run\0--name\0web\0", "crosvm"),
    ] {
        fs::write(root.path().join("proc/17/comm"), format!("{name}\n")).unwrap();
        fs::write(root.path().join("proc/17/cmdline"), line).unwrap();
        let error = Subject::find(root.path(), "17", Which::Next).unwrap_err();
        assert!(error.is::<Usage>(), "{error}");
        let next = format!("`exitless verify --vm 17` says what to change in {name}.");
        assert!(error.to_string().ends_with(&next), "{error}");
    }
}

#[test]
fn a_file_is_told_by_its_first_character() {
    let root = root();
    let path = root.path().join("a");
    for (text, form) in [
        ("\u{feff}\n <domain/>", Form::Libvirt),
        ("qemu-system-x86_64 -m 1G", Form::Qemu),
        ("# a\nname = 'web'\n", Form::Xl),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(Subject::find(root.path(), path.to_str().unwrap(), Which::Next).unwrap().form, form);
    }
    let missing = Subject::find(root.path(), "/nowhere/a.xml", Which::Next).unwrap_err();
    assert!(missing.is::<Usage>() && missing.to_string().contains("no file /nowhere/a.xml"), "{missing}");
    let nobody = Subject::find(root.path(), "nobody", Which::Next).unwrap_err();
    assert!(nobody.is::<Usage>() && nobody.to_string().contains("libvirt:nobody"), "{nobody}");
}
