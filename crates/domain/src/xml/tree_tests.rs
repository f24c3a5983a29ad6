use super::*;
use crate::xml::Node;
use proptest::prelude::*;

fn problem(text: &str) -> String {
    Tree::read("a.xml", text.as_bytes()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn places_are_bytes_of_the_whole_text_with_its_byte_order_mark() {
    let text = "\u{feff}<?xml version='1.0'?>\r\n<a>\r\n  <b c = \"1 &amp; 2\"/>\r\n</a>";
    let tree = Tree::read("a.xml", text.as_bytes()).unwrap();
    let b = Node { tree: &tree, index: tree.roots[0] }.child("b").unwrap();
    let value = b.attribute("c").unwrap();
    assert_eq!(value.text, "1 & 2");
    assert_eq!(&text[value.place.start..value.place.end], "1 &amp; 2");
    assert_eq!(value.place.line, 3);
    assert_eq!(&text[b.place().start..b.place().end], "<b c = \"1 &amp; 2\"/>");
}

#[test]
fn text_is_joined_from_its_parts() {
    let tree = Tree::read("a.xml", b"<a> x&lt;<!-- no --><![CDATA[&y;]]>&#x41;</a>").unwrap();
    assert_eq!(Node { tree: &tree, index: 0 }.text().text, "x<&y;A");
}

#[test]
fn what_is_malformed_is_named_with_line_and_column() {
    let told = problem("<a>\n  <b x='1' x='2'/>\n</a>");
    assert!(told.starts_with("a.xml, line 2: it is not well-formed XML (column 12, byte 15)"), "{told}");
    for (text, part) in [
        ("<a><b></a>", "expected </b>"),
        ("<a>", "<a> is not closed"),
        ("<a>&nbsp;</a>", "&nbsp; is not known"),
        ("<a>1 & 2</a>", "reference"),
        ("<a b=1/>", "not in quotation marks"),
        ("<a b='1'c='2'/>", "white space"),
        ("<a/>text", "outside of all elements"),
        ("<a/>\u{feff}", "outside of all elements"),
        ("\u{feff}\u{feff}<a>", "second byte order mark"),
        ("", "it has no element"),
        ("<a b='<'/>", "holds a <"),
        ("<a b='&#0;'/>", "&#0; is not known"),
    ] {
        assert!(problem(text).contains(part), "{text}: {}", problem(text));
    }
}

#[test]
fn entities_of_ones_own_are_not_read() {
    let laughs = "<?xml version='1.0'?>\n<!DOCTYPE a [<!ENTITY b 'ha'><!ENTITY c '&b;&b;&b;'>]>\n<a>&c;</a>";
    assert!(
        problem(laughs).contains("line 2: it has a document type definition")
            || problem(laughs).contains("DOCTYPE")
    );
}

#[test]
fn other_encodings_are_named_with_the_way_out() {
    let told = problem("<?xml version='1.0' encoding='ISO-8859-15'?><a/>");
    assert!(told.contains("iconv -f ISO-8859-15"), "{told}");
    let told = Tree::read("a.xml", b"\xff\xfe<\0a\0").unwrap_err().to_string();
    assert!(told.contains("UTF-16"), "{told}");
    let told = Tree::read("a.xml", b"<a>\n\xe4</a>").unwrap_err().to_string();
    assert!(told.contains("line 2: it is not UTF-8 at byte 4"), "{told}");
    assert!(Tree::read("a.xml", b"<?xml version='1.0' encoding=\"utf-8\"?><a/>").is_ok());
}

#[test]
fn depth_and_number_of_elements_have_limits() {
    let deep = format!("{}{}", "<a>".repeat(257), "</a>".repeat(257));
    assert!(problem(&deep).contains("more than 256 elements deep"));
    let fits = format!("{}{}", "<a>".repeat(256), "</a>".repeat(256));
    assert!(Tree::read("a.xml", fits.as_bytes()).is_ok());
    let many = format!("<a>{}</a>", "<b/>".repeat(200_000));
    assert!(problem(&many).contains("more than 200000 elements"));
    let wide: String = (0..300).map(|number| format!(" a{number}=''")).collect();
    assert!(problem(&format!("<a{wide}/>")).contains("more than 256 attributes"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Tree::read("a.xml", &bytes);
    }

    #[test]
    fn no_marks_make_it_stumble(text in "[<>/a!?='\" &;#\\[\\]x\\-\u{feff}é\n]{0,60}") {
        if let Ok(tree) = Tree::read("a.xml", text.as_bytes()) {
            for index in 0..tree.elements.len() {
                let place = Node { tree: &tree, index }.place();
                prop_assert!(text[place.start..place.end].starts_with('<'));
                prop_assert!(text[place.start..place.end].ends_with('>'));
            }
        }
    }
}
