use super::*;
use proptest::prelude::*;
use std::fs;

fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn set(files: &[(&str, &str)], value: &str) -> Vec<(String, String)> {
    let root = host(files);
    let mut modprobe = Modprobe::read(&Root::directory(root.path()));
    modprobe.set("kvm_amd", "avic", value);
    assert_eq!(modprobe.setting("kvm_amd", "avic").unwrap().value, value);
    let text = |(path, content)| (path, String::from_utf8(content).unwrap());
    modprobe.changes().into_iter().map(text).collect()
}

#[test]
fn without_a_setting_our_own_file_is_written() {
    let changes = set(&[("/etc/modprobe.d/kvm.conf", "options kvm_amd nested=0\n")], "1");
    let expected = format!("{HEADING}options kvm_amd avic=1\n");
    assert_eq!(changes, [(OWN.to_owned(), expected)]);
}

#[test]
fn the_word_that_decides_is_changed_and_nothing_else() {
    let old = "# mine\n\noptions  kvm-amd\tnested=0 avic=0 \\\n  npt=1   # end";
    let files = [
        ("/etc/modprobe.d/kvm.conf", old),
        ("/etc/modprobe.d/a.conf", "options kvm_amd avic=1\n"),
        ("/usr/lib/modprobe.d/kvm.conf", "options kvm_amd avic=1\n"),
    ];
    let changes = set(&files, "1");
    let new = old.replace("avic=0", "avic=1");
    assert_eq!(changes, [("/etc/modprobe.d/kvm.conf".to_owned(), new)]);
}

#[test]
fn a_word_over_two_lines_and_one_without_a_value() {
    let (_, new) = set(&[("/etc/modprobe.d/kvm.conf", "options kvm_amd av\\\nic=0 npt=1\n")], "1").remove(0);
    assert_eq!(new, "options kvm_amd avic=1 npt=1\n");
    let (_, new) = set(&[("/etc/modprobe.d/kvm.conf", "options kvm_amd avic\n")], "0").remove(0);
    assert_eq!(new, "options kvm_amd avic=0\n");
}

#[test]
fn a_vendors_file_is_not_changed_but_overruled() {
    for (vendor, own) in [("/usr/lib/modprobe.d/amd.conf", OWN), ("/run/modprobe.d/kvm.conf", OWN_LAST)] {
        let changes = set(&[(vendor, "options kvm_amd avic=0\n")], "1");
        assert_eq!((changes.len(), changes[0].0.as_str()), (1, own));
    }
}

#[test]
fn a_file_of_any_encoding_is_changed_where_it_decides() {
    let root = host(&[]);
    let folder = root.path().join("etc/modprobe.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("kvm.conf"), b"# f\xfcr Tests\noptions kvm_amd avic=0\n").unwrap();
    let mut modprobe = Modprobe::read(&Root::directory(root.path()));
    modprobe.set("kvm_amd", "avic", "1");
    let new = b"# f\xfcr Tests\noptions kvm_amd avic=1\n".to_vec();
    assert_eq!(modprobe.changes(), [("/etc/modprobe.d/kvm.conf".to_owned(), new)]);
}

#[test]
fn lines_that_stand_in_the_way_are_named() {
    let text = "blacklist kvm-amd\n#blacklist kvm_amd\ninstall kvm_amd /bin/false\nblacklist nouveau\n";
    let root = host(&[("/etc/modprobe.d/x.conf", text)]);
    let found = Modprobe::read(&Root::directory(root.path())).obstacles("kvm_amd");
    let told: Vec<_> = found.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(told, ["blacklist kvm-amd", "install kvm_amd /bin/false"]);
}

proptest! {
    #[test]
    fn any_text_is_changed_only_where_it_must(
        text in "([a-z_= \\\\\n#é]|options kvm_amd |avic=|avic){0,40}",
    ) {
        let root = host(&[("/etc/modprobe.d/kvm.conf", &text)]);
        let mut modprobe = Modprobe::read(&Root::directory(root.path()));
        let was = modprobe.setting("kvm_amd", "avic");
        modprobe.set("kvm_amd", "avic", "7");
        prop_assert_eq!(modprobe.setting("kvm_amd", "avic").unwrap().value, "7");
        if let (Some(was), [(_, new)]) = (was, &modprobe.changes()[..]) {
            prop_assert!(new.starts_with(&text.as_bytes()[..was.word.start]));
            prop_assert!(new.ends_with(&text.as_bytes()[was.word.end..]));
        }
    }
}
