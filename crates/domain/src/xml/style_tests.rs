use super::*;

fn with(text: &str, edit: impl Fn(&Style, Node<'_>) -> Vec<Replacement>) -> String {
    let tree = Tree::read("a.xml", text.as_bytes()).unwrap();
    let style = Style::of(&tree);
    let mut changed = text.to_owned();
    let root = Node { tree: &tree, index: tree.roots[0] };
    let mut edits = edit(&style, root);
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.0.start));
    for (part, new) in edits {
        changed.replace_range(part, &new);
    }
    changed
}

fn inserted(text: &str) -> String {
    with(text, |style, root| {
        style.insert(root, &["x"], &New::named("n").with("a", "1").holding(New::named("m")))
    })
}

#[test]
fn a_new_element_stands_in_lines_as_its_neighbours_do() {
    assert_eq!(
        inserted("<r>\n  <x/>\n  <z/>\n</r>"),
        "<r>\n  <x/>\n  <n a='1'>\n    <m/>\n  </n>\n  <z/>\n</r>"
    );
    assert_eq!(
        inserted("<r>\r\n\t<x/>\r\n</r>"),
        "<r>\r\n\t<x/>\r\n\t<n a='1'>\r\n\t\t<m/>\r\n\t</n>\r\n</r>"
    );
    assert_eq!(inserted("<r b=\"2\"><x/><z/></r>"), "<r b=\"2\"><x/><n a=\"1\"><m/></n><z/></r>");
    assert_eq!(inserted("<r>\n <z/>\n</r>"), "<r>\n <n a='1'>\n  <m/>\n </n>\n <z/>\n</r>");
}

#[test]
fn an_empty_parent_is_opened() {
    assert_eq!(inserted("<r/>"), "<r>\n  <n a='1'>\n    <m/>\n  </n>\n</r>");
    assert_eq!(inserted("<r b='2' />"), "<r b='2'>\n  <n a='1'>\n    <m/>\n  </n>\n</r>");
    assert_eq!(inserted("<r></r>"), "<r>\n  <n a='1'>\n    <m/>\n  </n>\n</r>");
}

#[test]
fn a_comment_stays_with_the_line_it_is_about() {
    let text = "<r>\n  <x/> <!-- of x -->\n</r>";
    assert!(inserted(text).starts_with("<r>\n  <x/> <!-- of x -->\n  <n a="));
    let text = "<r>\n  <x/> <!-- of\n z --> <z/>\n</r>";
    assert!(inserted(text).starts_with("<r>\n  <x/>\n  <n a="));
}

#[test]
fn an_attribute_keeps_its_quotation_marks() {
    let set = |text: &str| with(text, |style, root| style.set_attribute(root, "a", "it's \"<1>\""));
    assert_eq!(set("<r a=\"0\" b=''/>"), "<r a=\"it's &quot;&lt;1&gt;&quot;\" b=''/>");
    assert_eq!(set("<r b='' />"), "<r b='' a='it&apos;s \"&lt;1&gt;\"' />");
}

#[test]
fn an_element_is_removed_with_its_line_alone() {
    let removed = |text: &str| with(text, |style, root| style.remove(root.child("x").unwrap()));
    assert_eq!(removed("<r>\n  <w/>\n  <x>\n  </x>\n  <z/>\n</r>"), "<r>\n  <w/>\n  <z/>\n</r>");
    assert_eq!(removed("<r><x/><z/></r>"), "<r><z/></r>");
    assert_eq!(removed("<r>\n\n  <x/>\n</r>"), "<r>\n\n</r>");
    assert_eq!(removed("<r>\r\n  <x/> <!-- of x -->\r\n</r>"), "<r>\r\n   <!-- of x -->\r\n</r>");
}
