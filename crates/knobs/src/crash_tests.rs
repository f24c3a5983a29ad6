//! Any sequence of changes that is cut short at any point is undone by a restore, even if a first restore was
//! cut short too.

use crate::fake::{MODULE, Machine, host, tree};
use crate::{Change, Changes, Lasting, Parameters, Restore, cut_short, restore};
use proptest::prelude::*;

fn command(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// One step of a user: usually one change; for a boot loader the three that always go together.
fn steps() -> impl Strategy<Value = Vec<Change>> {
    let paths =
        prop::sample::select(vec!["/etc/modules", "/etc/modprobe.d/exitless.conf", "/a/b/c/new", "/a/x"]);
    let content = prop::sample::select(vec!["", "one\n", "two\n", "no end"]);
    let file = (paths, content)
        .prop_map(|(path, content)| vec![Change::File { path: path.to_owned(), content: content.into() }]);
    let value = prop::sample::select(vec!["performance", "powersave", "schedutil"])
        .prop_map(|value| vec![Change::Value { path: "/sys/governor".to_owned(), value: value.to_owned() }]);
    let given =
        prop::sample::subsequence(vec![("avic", "1"), ("nested", "0"), ("npt", "0"), ("bad", "1")], 0..3);
    // The second one is not loaded at first.
    let modules = prop::sample::select(vec![MODULE, "kvm_intel"]);
    let load = (modules, given).prop_map(|(module, given)| {
        let parameters: Parameters =
            given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        vec![Change::Load { module: module.to_owned(), parameters }]
    });
    let grub = prop::sample::select(vec!["a\n", "b\n"]).prop_map(|content| {
        let copy = Some(command("copy /etc/default/grub /boot/grub.cfg"));
        vec![
            Change::Command { run: None, undo: copy.clone() },
            Change::File { path: "/etc/default/grub".to_owned(), content: content.into() },
            Change::Command { run: copy, undo: None },
        ]
    });
    let fails = Just(vec![Change::Command { run: Some(command("false")), undo: None }]);
    prop_oneof![4 => file, 2 => value, 3 => load, 2 => grub, 1 => fails]
}

/// Makes the changes until the process ends at cut number `places`. Returns whether it completed them.
fn make(root: &std::path::Path, sequence: &[(Vec<Change>, bool)], places: u64) -> bool {
    cut_short::after(Some(places));
    if let Ok(mut changes) = Changes::begin(root, Machine::new(root), command("exitless test")) {
        for (step, temporary) in sequence {
            let lasting = if *temporary { Lasting::WhileHeld } else { Lasting::UntilRestored };
            for change in step {
                // A change that fails leaves nothing behind, and the others follow.
                let _ = changes.make(change.clone(), lasting);
            }
        }
    }
    let whole = !cut_short::ended();
    cut_short::after(None);
    whole
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_at_every_place_is_fixed(
        sequence in prop::collection::vec((steps(), any::<bool>()), 1..5),
        second in 1_u64..12,
    ) {
        for places in 1.. {
            let root = host();
            let before = tree(root.path());
            let whole = make(root.path(), &sequence, places);
            // Cut the restore short too, then repeat it.
            cut_short::after(Some(second));
            let _ = restore(root.path(), &mut Machine::new(root.path()), Restore::default());
            cut_short::after(None);
            let how = Restore::default();
            let restored = restore(root.path(), &mut Machine::new(root.path()), how).unwrap();
            prop_assert!(!restored.incomplete(), "{places}: {restored:?}");
            prop_assert_eq!(tree(root.path()), before, "cut after {} places", places);
            let again = restore(root.path(), &mut Machine::new(root.path()), how).unwrap();
            prop_assert!(again.changes.is_empty());
            if whole {
                break;
            }
        }
    }
}
