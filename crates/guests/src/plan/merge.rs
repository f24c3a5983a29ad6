//! Merges one table of a plan over another.

use toml::{Table, Value};

/// The table `[guests]` with the `guests` tables of an arm's levels merged over it in order: tables are merged key by
/// key, other values are replaced. A table with another `kind` replaces the whole table.
pub fn merged<'a>(base: &Table, levels: impl IntoIterator<Item = &'a Table>) -> Table {
    levels.into_iter().fold(base.clone(), |mut whole, level| {
        if level.get("kind").is_some_and(|kind| whole.get("kind") != Some(kind)) {
            whole.clear();
        }
        lay_over(&mut whole, level);
        whole
    })
}

/// Merges recursively; the parser limits the depth of tables, and so of the recursion.
fn lay_over(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => lay_over(base, over),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn a_level_changes_what_it_names_and_nothing_else() {
        let base = table(
            "kind = \"qemu\"\ncounts = [1, 2]\nvcpus = 2\n[disk]\nbus = \"virtio-blk\"\naio = \"native\"",
        );
        let level = table("counts = [4]\ndisk = { bus = \"nvme\" }\nnet = { model = \"virtio-net\" }");
        let expected = table(
            "kind = \"qemu\"\ncounts = [4]\nvcpus = 2\n[disk]\nbus = \"nvme\"\naio = \"native\"\n[net]\nmodel = \"virtio-net\"",
        );
        assert_eq!(merged(&base, [&level]), expected);
    }

    #[test]
    fn the_last_of_several_levels_wins() {
        let levels = [table("irqchip = \"split\"\nvcpus = 1"), table("irqchip = \"on\"")];
        assert_eq!(merged(&table("vcpus = 2"), &levels), table("vcpus = 1\nirqchip = \"on\""));
    }

    #[test]
    fn another_kind_of_guests_inherits_nothing() {
        let base = table("kind = \"qemu\"\nvcpus = 2");
        assert_eq!(merged(&base, [&table("kind = \"host\"")]), table("kind = \"host\""));
        assert_eq!(merged(&base, [&table("kind = \"qemu\"")]), base);
    }
}
