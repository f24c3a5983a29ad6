use super::*;

fn grub(files: &[(&str, &str)], changes: &[WordChange]) -> Result<Vec<(String, String)>, String> {
    let files: Vec<_> = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
    grub_files(&files, Whose::Linux, changes)
}

fn one(path: &str, text: &str) -> Vec<(String, String)> {
    vec![(path.to_owned(), text.to_owned())]
}

fn replaced(old: &str, new: Option<&str>) -> [WordChange; 1] {
    [WordChange { old: Some(old.to_owned()), new: new.map(str::to_owned) }]
}

#[test]
fn the_assignment_that_counts_is_in_the_last_file_that_makes_it() {
    let files = [
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n"),
        ("/etc/default/grub.d/50-cloudimg-settings.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0\"\n"),
        ("/etc/default/grub.d/60-other.cfg", "GRUB_TIMEOUT=0\n"),
    ];
    let new = grub(&files, &[WordChange::add("kvm_amd.avic=1")]).unwrap();
    let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0 kvm_amd.avic=1\"\n";
    assert_eq!(new, one("/etc/default/grub.d/50-cloudimg-settings.cfg", text));
}

#[test]
fn an_assignment_that_a_later_one_hides_does_not_count() {
    let files = [
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet a=0 b=0\"\n"),
        ("/etc/default/grub.d/50-cloudimg-settings.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"c a=0\"\n"),
    ];
    let new = grub(&files, &replaced("a=0", Some("a=1"))).unwrap();
    let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"c a=1\"\n";
    assert_eq!(new, one("/etc/default/grub.d/50-cloudimg-settings.cfg", text));
    assert_eq!(grub(&files, &replaced("b=0", None)), Ok(Vec::new()));
    let added = grub(&files, &[WordChange::add("b=0")]).unwrap();
    assert!(added[0].1.contains("c a=0 b=0"), "{added:?}");

    let own = |(path, text): (&str, &str)| (path.to_owned(), text.to_owned());
    let linux = ("/etc/default/grub.d/kdump-tools.cfg", "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX d\"\n");
    let files = files.into_iter().chain([linux]).map(own).collect();
    let mut boot = Boot::Grub { files, refresh: None };
    assert_eq!(boot.lines(Whose::Linux), [" d c a=0"]);
    let Boot::Grub { files, .. } = &mut boot else { unreachable!() };
    files[1].1 = "if false; then\n GRUB_CMDLINE_LINUX_DEFAULT=\"c\"\nfi\n".to_owned();
    assert!(matches!(boot.take(Whose::Linux, &replaced("a=0", Some("a=1"))), Taken::ByHand(..)));
    for unknown in ["$(x)", "$KVM_ARGS"] {
        let text = format!("GRUB_CMDLINE_LINUX_DEFAULT=\"{unknown}\"\n");
        let files = vec![("a".to_owned(), text)];
        assert_eq!(Boot::Grub { files, refresh: None }.lines(Whose::Linux), [""; 0], "{unknown}");
    }
}

#[test]
fn a_word_goes_wherever_it_stands_and_comes_once() {
    let text = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet a=0\"\nGRUB_CMDLINE_LINUX=\"a=0 b\"\n";
    let new = grub(&[("g", text)], &replaced("a=0", Some("a=1"))).unwrap();
    assert_eq!(new, one("g", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet a=1\"\nGRUB_CMDLINE_LINUX=\"b\"\n"));
    let new = grub(&[("g", text)], &replaced("a=0", None)).unwrap();
    assert_eq!(new, one("g", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"b\"\n"));
    assert_eq!(grub(&[("g", text)], &replaced("c", None)), Ok(Vec::new()));
    assert_eq!(grub(&[("g", text)], &[WordChange::add("b")]), Ok(Vec::new()));
}

#[test]
fn settings_without_an_assignment_get_one_and_a_shells_work_is_left_alone() {
    let new = grub(&[("g", "GRUB_TIMEOUT=5")], &[WordChange::add("a=1")]).unwrap();
    assert_eq!(new, one("g", "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"a=1\"\n"));
    let error = grub(&[("g", "GRUB_CMDLINE_LINUX=\"$(x)\"\n")], &[WordChange::add("a=1")]).unwrap_err();
    assert_eq!(error, "GRUB_CMDLINE_LINUX=\"$(x)\"");
}

#[test]
fn a_program_is_told_only_what_is_not_so_yet() {
    let boot = Boot::Grubby {
        options: vec!["root=x a=0 c".to_owned(), "root=y c".to_owned()],
        tuned: "e".to_owned(),
    };
    let changes =
        [replaced("a=0", Some("a=1"))[0].clone(), WordChange::add("c"), replaced("d", None)[0].clone()];
    let Taken::Changes(taken) = boot.take(Whose::Linux, &changes) else { panic!() };
    let command = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    let expected = [Change::Command {
        run: command(&["grubby", "--update-kernel=ALL", "--remove-args=a=0", "--args=a=1"]),
        undo: command(&["grubby", "--update-kernel=ALL", "--remove-args=a=1", "--args=a=0"]),
    }];
    assert_eq!(taken, expected);
    assert_eq!(boot.take(Whose::Linux, &[WordChange::add("c")]), Taken::Nothing);
    assert!(matches!(boot.take(Whose::Xen, &changes), Taken::ByHand(..)));
    // TuneD's profile would add it again.
    assert!(matches!(boot.take(Whose::Linux, &replaced("e", None)), Taken::ByHand(..)));
    // If the options are not known, the program gets all words.
    let unknown = Boot::Grubby { options: Vec::new(), tuned: String::new() };
    let Taken::Changes(taken) = unknown.take(Whose::Linux, &replaced("a=0", Some("a=1"))) else { panic!() };
    assert_eq!(taken, expected);
}

#[test]
fn entries_of_systemd_boot_keep_all_but_the_word() {
    let text = "title Arch\nlinux /vmlinuz\noptions root=x  a=0\noptions rw\n";
    assert_eq!(
        entries::changed(text, &[WordChange::add("b=1")]),
        "title Arch\nlinux /vmlinuz\noptions root=x  a=0\noptions rw b=1\n"
    );
    assert_eq!(
        entries::changed(text, &replaced("a=0", Some("a=1"))),
        "title Arch\nlinux /vmlinuz\noptions root=x  a=1\noptions rw\n"
    );
    for (old, new) in [
        ("title Arch\nlinux /vmlinuz", "title Arch\nlinux /vmlinuz\noptions b=1\n"),
        ("linux /vmlinuz\noptions \n", "linux /vmlinuz\noptions b=1\n"),
    ] {
        assert_eq!(entries::changed(old, &[WordChange::add("b=1")]), new);
        assert_eq!(entries::changed(old, &replaced("b=1", None)), old);
    }
    let windows = "title Windows\nefi /EFI/x.efi\noptions a=0\n";
    assert_eq!(entries::changed(windows, &replaced("a=0", Some("a=1"))), windows);
    assert_eq!(entries::options(text), "root=x  a=0 rw");
    let both = [("a".to_owned(), text.to_owned()), ("b".to_owned(), windows.to_owned())];
    assert_eq!(Boot::Entries(both.to_vec()).lines(Whose::Linux), ["root=x  a=0 rw"]);
}

#[test]
fn entries_with_variables_of_grub_have_their_values() {
    let text = "linux /vmlinuz\noptions $kernelopts $tuned_params b\n";
    let block = "# GRUB Environment Block\nsaved_entry=x\nkernelopts=root=x ro a=0\ntuned_params=c d\n####";
    assert_eq!(entries::expanded(text, block).as_deref(), Some("root=x ro a=0  b"));
    assert_eq!(entries::of_tuned(text, block), Some("c d"));
    assert_eq!(entries::of_tuned("options b\n", block), None);
    assert_eq!(entries::expanded(text, ""), None);
    assert_eq!(entries::expanded("options b $tuned_params\n", "").as_deref(), Some("b "));
}

#[test]
fn only_the_lines_that_the_program_reads_count() {
    let text = "root=x ro a=0\n# before: a=0 b\n";
    let (remove, add) = (replaced("a=0", None), [WordChange::add("b")]);
    for (counts, line, removed, added) in [
        (
            Counts::First,
            "root=x ro a=0",
            "root=x ro\n# before: a=0 b\n",
            "root=x ro a=0 b\n# before: a=0 b\n",
        ),
        (
            Counts::NoComments,
            "root=x ro a=0",
            "root=x ro\n# before: a=0 b\n",
            "root=x ro a=0 b\n# before: a=0 b\n",
        ),
        (Counts::All, "root=x ro a=0 # before: a=0 b", "root=x ro\n# before: b\n", text),
    ] {
        let boot = |text: &str| Boot::CommandLine {
            path: "p".to_owned(),
            text: text.to_owned(),
            counts,
            refresh: Vec::new(),
        };
        assert_eq!(boot(text).lines(Whose::Linux), [line]);
        assert_eq!(counts.changed(text, &remove), removed);
        assert_eq!(counts.changed(text, &add), added);
        assert_eq!(boot(added).take(Whose::Linux, &add), Taken::Nothing);
    }
    // The last line that has words, and before those for init.
    for (text, added) in [
        ("", "b\n"),
        ("root=x\n\n", "root=x b\n\n"),
        ("ro\nquiet\n", "ro\nquiet b\n"),
        ("ro -- single\nquiet", "ro b -- single\nquiet"),
    ] {
        assert_eq!(Counts::All.changed(text, &add), added);
    }
    assert_eq!(Counts::NoComments.changed("# none", &add), "# none\nb\n");
}
