use super::*;
use crate::cache::Cache;
use crate::guest_image::Guest;
use crate::recorded::{FileRecord, PackageRecord};
use crate::tree::write;

fn image_with(bytes: u64) -> (tempfile::TempDir, Cache) {
    let root = tempfile::tempdir().unwrap();
    let cache = Cache::at(root.path());
    let folder = XenImage::place(&cache);
    write(&folder.join(DISK), b"disk").unwrap();
    let record = FileRecord { path: DISK.into(), bytes, sha256: "00".into() };
    let package =
        PackageRecord { name: "linux-image-amd64".into(), version: "7".into(), sha256: String::new() };
    let manifest = Manifest {
        key: xen_recipe::content_key(),
        kernel_release: "6.12".into(),
        of_kind: XenHost { modules: XenModules { always: vec!["ext4.ko".into()], ..XenModules::default() } },
        files: vec![record],
        packages: vec![package],
    };
    recorded::write_manifest(&folder, &manifest).unwrap();
    (root, cache)
}

#[test]
fn a_file_of_another_size_is_damage_that_says_what_to_do() {
    let (_root, cache) = image_with(5);
    let message = XenImage::find(&cache).unwrap_err().to_string();
    assert!(message.contains("expected 5 bytes") && message.contains("lab clean"), "{message}");
}

#[test]
fn another_content_and_other_versions_are_found() {
    let (_root, cache) = image_with(4);
    let image = XenImage::find(&cache).unwrap().unwrap();
    assert!(matches!(image.verify(&mut |_| ()), Err(Error::Damaged { .. })));
    assert_eq!(image.drift(), [("linux-image-amd64", "7", "6.12.117-1")]);
    assert_eq!(image.hypervisor_version(), None);
}

#[test]
fn images_of_other_recipes_are_removed_and_guests_are_not() {
    let (root, cache) = image_with(4);
    let [other, guest] =
        [XenHost::PREFIX, Guest::PREFIX].map(|prefix| cache.root().join(format!("{prefix}other")));
    write(&other.join(DISK), b"").unwrap();
    write(&guest.join(DISK), b"").unwrap();
    cache.remove_others(XenHost::PREFIX, &XenImage::place(&cache));
    assert!(!other.exists() && guest.exists() && XenImage::find(&cache).unwrap().is_some());
    drop(root);
}

#[test]
fn the_facts_of_a_kind_stand_among_the_others() {
    let (_root, cache) = image_with(4);
    let text = std::fs::read_to_string(XenImage::place(&cache).join(recorded::MANIFEST)).unwrap();
    let names = ["key", "kernel_release", "modules", "files", "packages"];
    let at: Vec<_> = names.map(|name| text.find(&format!("\n  \"{name}\": ")).unwrap()).into();
    assert!(at.is_sorted(), "{text}");
}
