//! Tables in the documentation match the code, definitions in both forms have the same findings, and fixes work.

mod host_rules_in_docs;
mod managers;
mod pairs;
mod rules_in_docs;
mod serial_ports;

/// Compares a table with that between the marks in a page of `docs`; with WRITE_DOCS=1 writes it there instead.
fn check(page: &str, by: &str, what: &str, table: &str) {
    let (begin, end) = (format!("<!-- {what}: {by} -->\n"), format!("<!-- end of {what} -->\n"));
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&begin).expect("the page has the mark before the table");
    let (written, after) = rest.split_once(&end).expect("the page has the mark after the table");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "run the test again with WRITE_DOCS=1");
}
