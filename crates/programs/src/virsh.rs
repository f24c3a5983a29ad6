//! The names of domains for virsh.

/// The argument of virsh's `--domain` for the domain of this name. virsh takes a number for the ID of a running domain
/// first, which may be that of another one (`virshLookupDomainInternal`, tools/virsh-util.c), so a domain whose name is
/// a number is named by its UUID. `list` runs virsh with the words that it is given, and returns its output. `None` if
/// no domain has the name.
///
/// # Errors
/// Those of `list`.
pub fn domain<E>(name: &str, list: impl FnOnce(&[&str]) -> Result<String, E>) -> Result<Option<String>, E> {
    // virsh reads numbers with strtol(3): spaces and a sign may precede the digits.
    if name.trim_start().parse::<i32>().is_err() {
        return Ok(Some(name.to_owned()));
    }
    let listed = list(&["list", "--all", "--uuid", "--name"])?;
    // Before libvirt 7.0, virsh filled names up with spaces. Names may begin and end with spaces of their own.
    let filled_up = format!("{name:<30}");
    let mut rows = listed.lines().filter_map(|line| line.split_once(' '));
    let row = rows.find(|(_, found)| *found == name || *found == filled_up);
    Ok(row.map(|(uuid, _)| uuid.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`domain`] with this list of domains.
    fn found(name: &str, listed: &str) -> Result<Option<String>, ()> {
        domain(name, |words| {
            assert_eq!(words, ["list", "--all", "--uuid", "--name"]);
            Ok(listed.to_owned())
        })
    }

    #[test]
    fn a_domain_whose_name_is_a_number_is_named_by_its_uuid() {
        let web = "6695eb01-f6a4-8304-79aa-97f2502e193f";
        let two = "b47e2bb3-2f2f-4fd1-a4a2-09f7a1f7c0d5";
        let lists =
            [format!("{web} 2 \n{web}  2\n{two} 2\n\n"), format!("{web} {:<30}\n{two} {:<30}\n", " 2", "2")];
        for listed in lists {
            assert_eq!(found("2", &listed), Ok(Some(two.to_owned())), "{listed}");
            assert_eq!(found(" 2", &listed), Ok(Some(web.to_owned())), "{listed}");
            for name in ["1", "02", "+2"] {
                assert_eq!(found(name, &listed), Ok(None), "{name}: {listed}");
            }
        }
        assert_eq!(domain("2", |_| Err("no connection")), Err("no connection"));
    }

    #[test]
    fn other_names_are_left_as_they_are() {
        for name in ["web", "2nd", "2 ", "web 2", "99999999999", "b47e2bb3-2f2f-4fd1-a4a2-09f7a1f7c0d5"] {
            assert_eq!(domain(name, |_| Err(())), Ok(Some(name.to_owned())));
        }
    }
}
