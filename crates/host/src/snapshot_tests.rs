use super::*;
use crate::fake;
use proptest::prelude::*;

const TOOL: &str = "exitless 0.0.0";

fn taken(text: &str) -> Snapshot {
    Snapshot::take(fake::root(text), TOOL).unwrap()
}

fn packed(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write(&mut bytes).unwrap();
    bytes
}

fn opened(bytes: &[u8]) -> Result<Opened, SnapshotError> {
    read(bytes, Path::new("x.tar.zst"))
}

#[test]
fn a_host_and_its_archive_are_judged_alike() {
    for (name, text) in fake::HOSTS {
        let snapshot = taken(text);
        assert!(snapshot.manifest().removed.is_empty(), "{name}: {:?}", snapshot.manifest().removed);
        let archive = opened(&packed(&snapshot)).unwrap();
        assert_eq!(archive.warnings, [""; 0], "{name}");
        let again = Inspection::read(&archive.root).unwrap();
        assert_eq!(&again, &Inspection::read(&fake::root(text)).unwrap(), "{name}");
        assert_eq!(&again, snapshot.inspection(), "{name}");
        // An archive of the archive is equal.
        let second = Snapshot::take(archive.root, TOOL).unwrap();
        assert_eq!(second.manifest().files, snapshot.manifest().files, "{name}");
        assert_eq!(second.tree, snapshot.tree, "{name}");
    }
}

#[test]
fn only_what_was_read_is_kept() {
    let text = format!(
        "{}\n== /etc/shadow\nroot:x\n== /proc/4000/environ\nTOKEN=hunter2\n== /proc/4000/fd/9 -> /var/lib/libvirt/images/web.qcow2\n\
         == /proc/77/comm\nbash\n== /proc/77/fd/0 -> /dev/pts/0\n== /proc/77/cmdline arguments\nbash\n== /exitless/odd\nx",
        fake::HOSTS.iter().find(|(name, _)| *name == "zen2").unwrap().1
    );
    let snapshot = taken(&text);
    let kept: Vec<&str> = snapshot.tree.nodes().map(|(path, _)| path).collect();
    let container = fake::HOSTS.iter().find(|(name, _)| *name == "container").unwrap().1;
    let denied = taken(container).tree;
    assert!(denied.node("/proc/1/fd").is_some() && denied.node("/proc/1/comm").is_none());
    for gone in
        ["/etc/shadow", "/proc/4000/environ", "/proc/4000/fd/9", "/proc/77", "/proc/77/comm", "/exitless/odd"]
    {
        assert!(!kept.contains(&gone), "{gone}");
    }
    for there in ["/proc/4000/fd/11", "/proc/4010/comm", "/etc/libvirt/qemu/web.xml", "/exitless/cpuid"] {
        assert!(kept.contains(&there), "{there}");
    }
}

#[test]
fn secrets_are_taken_out_and_listed() {
    let text = format!(
        "{}\n== /etc/libvirt/qemu/idle.xml\n<domain><graphics type='vnc' passwd='hunter2'/></domain>",
        fake::HOSTS.iter().find(|(name, _)| *name == "zen2").unwrap().1
    );
    let snapshot = taken(&text);
    let removed = &snapshot.manifest().removed;
    assert_eq!(
        (removed.len(), removed[0].path.as_str(), removed[0].what.as_str()),
        (1, "/etc/libvirt/qemu/idle.xml", "passwd")
    );
    let unpacked = zstd::decode_all(packed(&snapshot).as_slice()).unwrap();
    assert!(!unpacked.windows(7).any(|part| part == b"hunter2"));
}

#[test]
fn a_file_is_written_whole_and_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.tar.zst");
    fs::write(&path, "old").unwrap();
    let snapshot = taken(fake::HOSTS[0].1);
    snapshot.save(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    let archive = open(&path).unwrap();
    assert_eq!(archive.manifest.as_ref(), Some(snapshot.manifest()));
    assert!(snapshot.save(Path::new("/no/such/folder/x")).is_err());
}

#[test]
fn a_directory_is_a_host_by_its_proc_or_sys() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(error, SnapshotError::Root(crate::Error::NoHost { below: None, .. })), "{error}");
    let told = || open(folder.path()).unwrap_err().to_string();
    let host = |name: &str| {
        ["proc", "sys"].map(|part| fs::create_dir_all(folder.path().join(name).join(part)).unwrap())
    };
    host("sosreport-kvm3");
    let only = format!("give {}, which has both", folder.path().join("sosreport-kvm3").display());
    assert!(told().ends_with(&only), "{}", told());
    host("sosreport-kvm4");
    assert!(told().ends_with("give the directory that holds them"), "{}", told());
    fs::create_dir(folder.path().join("sys")).unwrap();
    assert!(open(folder.path()).unwrap().root.path().is_some());
}

#[test]
fn an_archive_may_be_packed_by_gzip_or_not_at_all() {
    let snapshot = taken(fake::HOSTS[0].1);
    let tar = zstd::decode_all(packed(&snapshot).as_slice()).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &tar).unwrap();
    for bytes in [tar, gzip.finish().unwrap()] {
        let archive = opened(&bytes).unwrap();
        assert_eq!(archive.manifest.as_ref(), Some(snapshot.manifest()));
        assert_eq!(&Inspection::read(&archive.root).unwrap(), snapshot.inspection());
    }
}

#[test]
fn what_is_no_snapshot_is_named() {
    let no_archive = opened(b"hello").unwrap_err().to_string();
    assert!(no_archive.contains("x.tar.zst is not an archive"), "{no_archive}");
    assert!(
        no_archive.ends_with("unpack this one and give the directory that holds its proc and sys"),
        "{no_archive}"
    );
    assert!(opened(b"").is_err());
    let mut other = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    other.append_data(&mut header, "readme", &b"x"[..]).unwrap();
    let bytes = zstd::encode_all(other.into_inner().unwrap().as_slice(), 0).unwrap();
    assert!(opened(&bytes).unwrap_err().to_string().contains("MANIFEST.json"));
    let mut snapshot = taken(fake::HOSTS[0].1);
    snapshot.manifest.format = 9;
    let error = opened(&packed(&snapshot)).unwrap_err().to_string();
    assert!(error.contains("format 9") && error.contains(TOOL), "{error}");
    assert!(matches!(open(Path::new("/no/such")), Err(SnapshotError::Read { .. })));
}

/// An archive with these entries after a manifest.
fn hostile(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let manifest = br#"{"format":1,"tool":"t","created":0,"files":{},"errors":{"/../x":5,"relative":5}}"#;
    let all = [("MANIFEST.json", tar::EntryType::Regular, &manifest[..])];
    for (path, kind, bytes) in all.iter().chain(entries) {
        let mut header = tar::Header::new_gnu();
        // Write the path directly, because the library refuses it.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        if *kind == tar::EntryType::Symlink || *kind == tar::EntryType::Link {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        archive.append(&header, *bytes).unwrap();
    }
    zstd::encode_all(archive.into_inner().unwrap().as_slice(), 0).unwrap()
}

#[test]
fn paths_and_links_lead_nowhere() {
    use tar::EntryType::{Link, Regular, Symlink};
    let bytes = hostile(&[
        ("../../etc/x", Regular, b"x"),
        ("/proc/../../x", Regular, b"x"),
        ("proc/cpuinfo", Symlink, b""),
        ("proc/cmdline", Link, b""),
        ("proc/version", Regular, b"yes"),
    ]);
    let archive = opened(&bytes).unwrap();
    assert_eq!(archive.warnings.len(), 3, "{:?}", archive.warnings);
    assert!(archive.root.read("/proc/cpuinfo").is_err(), "a link is not followed");
    assert!(archive.root.read("/proc/cmdline").is_err());
    assert_eq!(archive.root.read("/proc/version").unwrap(), b"yes");
    assert_eq!(archive.root.into_tree_paths(), ["/proc", "/proc/cpuinfo", "/proc/version"]);
}

#[test]
fn paths_that_no_host_has_take_no_memory() {
    use tar::EntryType::{GNULongName, Regular};
    for long in ["a/".repeat(4_000), "a".repeat(4_000), "a/".repeat(40)] {
        let bytes = hostile(&[("././@LongLink", GNULongName, long.as_bytes()), ("x", Regular, b"x")]);
        let archive = opened(&bytes).unwrap();
        assert_eq!(archive.warnings.len(), 1, "{:?}", archive.warnings);
        assert_eq!(archive.root.into_tree_paths(), [""; 0]);
    }
    let long = format!("{}x", "a/".repeat(20));
    let bytes = hostile(&[("././@LongLink", GNULongName, long.as_bytes()), ("x", Regular, b"x")]);
    assert_eq!(opened(&bytes).unwrap().root.read(&format!("/{long}")).unwrap(), b"x");

    let many = [("../x", Regular, &b"x"[..]); 150];
    let warnings = opened(&hostile(&many)).unwrap().warnings;
    assert_eq!(warnings.len(), 101);
    assert_eq!(warnings[100], "entries left out besides: 50");
}

#[test]
fn a_bomb_is_left_unpacked() {
    let zeros = vec![0u8; 65 << 20];
    let archive = opened(&hostile(&[("big", tar::EntryType::Regular, &zeros)])).unwrap();
    assert!(archive.warnings[0].contains("/big"), "{:?}", archive.warnings);
}

#[test]
fn a_cut_archive_gives_what_was_whole() {
    let snapshot = taken(fake::HOSTS.iter().find(|(name, _)| *name == "zen2").unwrap().1);
    let unpacked = zstd::decode_all(packed(&snapshot).as_slice()).unwrap();
    let whole = snapshot.manifest().files.len();
    let mut last = 0;
    for tenth in 4..10 {
        let part = zstd::encode_all(&unpacked[..unpacked.len() * tenth / 10], 0).unwrap();
        let archive = opened(&part).unwrap();
        assert!(!archive.warnings.is_empty(), "{tenth}");
        let lacking = archive.warnings.last().unwrap();
        assert!(lacking.contains(&format!("of its {whole} files")), "{lacking}");
        let there = archive.root.into_tree_paths().len();
        assert!(there >= last, "{there} {last}");
        last = there;
    }
    assert!(last > 50);
    // Cut the compressed bytes, too.
    let bytes = packed(&snapshot);
    match opened(&bytes[..bytes.len() - 7]) {
        Ok(archive) => assert!(!archive.warnings.is_empty()),
        Err(error) => assert!(matches!(error, SnapshotError::Damaged { .. })),
    }
    // Nothing of its first block: a damaged archive, not a file of another kind.
    let error = opened(&bytes[..60]).unwrap_err();
    assert!(matches!(error, SnapshotError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("copy it again"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0usize..4000, change in any::<u8>()) {
        let _ = opened(&bytes);
        let _ = opened(&zstd::encode_all(bytes.as_slice(), 0).unwrap());
        let mut unpacked = zstd::decode_all(hostile(&[("proc/x", tar::EntryType::Regular, b"x")]).as_slice()).unwrap();
        let at = at % unpacked.len();
        unpacked[at] ^= change;
        let _ = opened(&zstd::encode_all(unpacked.as_slice(), 0).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn odd_files_are_survived_and_kept_alike(
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n\t\u{0}é]{0,40}|[0-9a-f:,x-]{1,20}"), 1..4),
        host in 0..fake::HOSTS.len(),
    ) {
        let text = fake::HOSTS[host].1;
        let paths: Vec<String> = taken(text).manifest.files.into_keys().collect();
        let changed = changes.iter().fold(text.to_owned(), |text, (index, content)| {
            format!("{text}\n== {}\n{}", index.get(&paths), content.replace("== ", ""))
        });
        let first = Inspection::read(&fake::root(&changed)).unwrap();
        let snapshot = taken(&changed);
        prop_assert_eq!(snapshot.inspection(), &first);
        let again = Inspection::read(&opened(&packed(&snapshot)).unwrap().root).unwrap();
        if snapshot.manifest().removed.is_empty() {
            prop_assert_eq!(again, first);
        }
    }
}

#[test]
fn this_machine_and_its_archive_tell_the_same() {
    let snapshot = Snapshot::take(Root::live(), TOOL).unwrap();
    let archive = opened(&packed(&snapshot)).unwrap();
    assert_eq!(archive.warnings, [""; 0]);
    let again = Inspection::read(&archive.root).unwrap();
    assert!(snapshot.inspection().live && !again.live);
    // The kernel's command line may contain a secret.
    if snapshot.manifest().removed.is_empty() {
        assert_eq!(again, Inspection { live: false, ..snapshot.inspection().clone() });
    } else {
        assert_eq!(again.processor, snapshot.inspection().processor);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_changed_archive_gives_a_host_that_can_be_kept_again(
        host in 0..fake::HOSTS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut unpacked = zstd::decode_all(packed(&taken(fake::HOSTS[host].1)).as_slice()).unwrap();
        for (index, byte) in changes {
            let at = index.index(unpacked.len());
            unpacked[at] = byte;
        }
        if let Ok(archive) = opened(&zstd::encode_all(unpacked.as_slice(), 1).unwrap()) {
            let first = Inspection::read(&archive.root).unwrap();
            let second = Snapshot::take(archive.root, TOOL).unwrap();
            prop_assert_eq!(second.inspection(), &first);
            let again = opened(&packed(&second)).unwrap();
            prop_assert_eq!(again.warnings, [""; 0]);
            if second.manifest().removed.is_empty() {
                prop_assert_eq!(Inspection::read(&again.root).unwrap(), first);
            }
        }
    }
}
