//! The page in a browser: operated by clicks and keys, at every width, in light and dark mode.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use chrono::Utc;
use serde_json::json;

use super::browser::Browser;
use super::{DataSet, fixture, program};

/// A server that ends with the test.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(data: &DataSet, arguments: &[&str]) -> Self {
        let store = data.store();
        let base =
            ["serve", "--store", &store, "--listen", "127.0.0.1:0", "--refresh", "300ms", "--days", "3660"];
        let mut process = program()
            .args(base)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_end_matches('/').to_owned();
        assert!(address.starts_with("http://127.0.0.1:"), "{line}");
        Self { process, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The path of a screenshot for people to look at, in the build folder.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("page").join(name)
}

/// A data set whose last hours have exits, with a gap.
fn recent() -> DataSet {
    let data = DataSet::full();
    let line = std::fs::read_to_string(fixture("stat.json")).unwrap().lines().next().unwrap().to_owned();
    for minutes in (0..240).step_by(12).filter(|minutes| !(84..132).contains(minutes)) {
        let mut document: serde_json::Value = serde_json::from_str(&line).unwrap();
        for row in document["rows"].as_array_mut().unwrap() {
            row["exits"] = json!(row["exits"].as_i64().unwrap() * (3 + minutes % 5) / 3);
        }
        let file = data.file("stat.json", &document.to_string());
        let time = Utc::now() - chrono::TimeDelta::minutes(minutes);
        data.add("lab-1", &time.format("%Y-%m-%dT%H:%M:%SZ").to_string(), &file);
    }
    data
}

#[test]
fn this_host_alone_is_shown_without_a_data_set() {
    let data = DataSet::new();
    let exitless = super::agent::exitless(&data, super::agent::GOOD);
    let mut process = program()
        .args(["serve", "--live", "--listen", "127.0.0.1:0", "--exitless", &exitless])
        .args(["--interval", "300ms", "--watch", "100ms", "--refresh", "200ms"])
        // The store of the environment must be ignored.
        .env("EXITLESS_FLEET_STORE", "/nonexistent")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let server = Server { process, address };
    let get = |path: &str| {
        let mut connection = std::net::TcpStream::connect(&server.address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The files of the first examination come one by one, and the page may be of some of them.
    let is_whole = |page: &str| {
        ["Exits a second", "PIT_REINJ", "Findings of doctor", "kvm_amd"]
            .iter()
            .all(|shown| page.contains(shown))
    };
    loop {
        let first = get("/");
        let path = first.lines().find_map(|line| line.strip_prefix("location: "));
        let page = path.map(get).unwrap_or_default();
        if is_whole(&page) {
            break;
        }
        assert!(std::time::Instant::now() < end, "{first}\n{page}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(
        program()
            .args(["serve", "--live", "--interval", "1s", "--listen", "0.0.0.0:1"])
            .output()
            .unwrap()
            .status
            .code()
            == Some(2)
    );
    assert!(
        program().args(["serve", "--store", "x", "--interval", "1s"]).output().unwrap().status.code()
            == Some(2)
    );
}

const OUTSIDE: &str = "[...document.querySelectorAll('figure svg text, button, h1, h2, h3, pre')].filter(part => { \
     const box = part.getBoundingClientRect(); return box.width > 0 && !part.closest('.wide') && \
     (box.left < 0 || box.right > innerWidth + 1); }).map(part => part.textContent).join('|')";

#[test]
fn a_browser_shows_every_page_whole_at_every_width_in_light_and_dark() {
    let Some(mut browser) = Browser::start() else {
        println!("not tested: there is no Chromium on PATH; scripts/setup test installs one");
        return;
    };
    let data = recent();
    let server = Server::start(&data, &[]);
    let looks = [(1440, false), (1440, true), (768, false), (390, false), (390, true)];
    for (name, path) in [
        ("hosts", "/"),
        ("host", "/host?name=lab-1"),
        ("idle", "/host?name=zen2"),
        ("vm", "/vm?host=lab-1&name=pit"),
        ("findings", "/findings"),
        ("experiments", "/experiments"),
    ] {
        let mut backgrounds = Vec::new();
        for (width, is_dark) in looks {
            browser.look(width, is_dark);
            browser.go(&format!("{}{path}", server.address));
            let wide = browser.evaluate("document.documentElement.scrollWidth");
            assert!(
                wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                "{name}: {wide} of {width} pixels"
            );
            assert_eq!(browser.evaluate(OUTSIDE), "", "{name} at {width}");
            backgrounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
            let look = if is_dark { "dark" } else { "light" };
            browser.picture(&kept(&format!("{name}-{width}-{look}.png")));
        }
        assert_ne!(backgrounds[0], backgrounds[1]);
        assert_eq!(backgrounds[1], backgrounds[4]);
    }
    // Exits of four hours with a gap, in two charts.
    browser.go(&format!("{}/host?name=lab-1", server.address));
    let drawn = "[...document.querySelectorAll('#course path.layer')].filter(path => path.getBoundingClientRect().height > 2).length";
    assert!(browser.evaluate(drawn).as_u64().is_some_and(|drawn| drawn >= 3), "{}", browser.evaluate(drawn));
    assert!(
        browser
            .evaluate("document.querySelectorAll('#course rect.gap').length")
            .as_u64()
            .is_some_and(|gaps| gaps >= 2)
    );
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_browser_shows_what_is_new_and_keeps_what_the_reader_did() {
    let Some(mut browser) = Browser::start() else {
        println!("not tested: there is no Chromium on PATH; scripts/setup test installs one");
        return;
    };
    let data = recent();
    let server = Server::start(&data, &[]);
    browser.look(1280, false);
    browser.go(&format!("{}/", server.address));
    browser.until("document.getElementById('status').textContent !== ''");
    // A click on the column's head sorts the hosts, most failed checks first.
    let head =
        "[...document.querySelectorAll('#hosts thead th')].find(head => head.textContent === 'Failed')";
    browser.evaluate(&format!(
        "window.mark = 1; {head}.querySelector('button').focus(); {head}.querySelector('button').click()"
    ));
    assert_eq!(browser.evaluate(&format!("{head}.getAttribute('aria-sort')")), "descending");
    let file = fixture("doctor.json").display().to_string();
    data.add("zz-new", &Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string(), &file);
    browser.until(
        "[...document.querySelectorAll('#hosts tbody th')].some(cell => cell.textContent === 'zz-new')",
    );
    assert_eq!(browser.evaluate("window.mark"), 1, "the page was not loaded again");
    assert_eq!(browser.evaluate(&format!("{head}.getAttribute('aria-sort')")), "descending");
    assert_eq!(browser.evaluate("document.activeElement.textContent"), "Failed");
    // No update while paused.
    browser.evaluate("document.getElementById('pause').click()");
    data.add("zz-later", &Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string(), &file);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let later =
        "[...document.querySelectorAll('#hosts tbody th')].some(cell => cell.textContent === 'zz-later')";
    assert_eq!(browser.evaluate(later), false);
    browser.evaluate("document.getElementById('pause').click()");
    browser.until(later);

    // Clicks lead to a host, to its VM, and to another range.
    browser.evaluate(
        "[...document.querySelectorAll('#hosts a')].find(link => link.textContent === 'lab-1').click()",
    );
    browser
        .until("document.querySelector('h1')?.textContent === 'lab-1' && document.readyState === 'complete'");
    browser.evaluate("document.querySelector('#vms tbody a').click()");
    browser.until("location.pathname === '/vm' && document.readyState === 'complete'");
    browser.evaluate("[...document.querySelectorAll('nav.ranges a')].find(link => link.textContent === '24 hours').click()");
    browser.until("location.search.endsWith('range=24h') && document.readyState === 'complete'");
    browser.until("document.querySelector('nav.ranges a[aria-current]')?.textContent === '24 hours'");
    // The keyboard filters.
    browser.go(&format!("{}/", server.address));
    browser.evaluate("document.getElementById('filter').focus()");
    browser.write("ZEN");
    browser.press("Enter");
    browser.until("location.search === '?with=ZEN' && document.readyState === 'complete'");
    browser.until("document.querySelectorAll('#hosts tbody tr').length === 1");
    // A fix is copied; without a clipboard, it is selected.
    browser.evaluate("document.querySelector('#hosts a').click()");
    browser.until("document.querySelectorAll('button.copy:not([hidden])').length > 0");
    browser.evaluate("document.querySelector('button.copy').click()");
    browser.until("['Copied', 'Selected'].includes(document.querySelector('button.copy').textContent)");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_browser_shows_the_form_for_the_token_and_all_is_reached_by_keys() {
    let Some(mut browser) = Browser::start() else {
        println!("not tested: there is no Chromium on PATH; scripts/setup test installs one");
        return;
    };
    let data = DataSet::full();
    let token = data.file("token", "a token of a test\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&data, &["--token-file", &token]);
    browser.look(390, true);
    browser.go(&format!("{}/findings", server.address));
    assert_eq!(browser.evaluate("location.pathname"), "/login");
    browser.picture(&kept("login-390-dark.png"));
    // The field has the focus without a click.
    browser.write("a wrong token");
    browser.press("Enter");
    browser.until("document.body.textContent.includes('This is not the token')");
    browser.evaluate("document.getElementById('token').focus()");
    browser.write("a token of a test");
    browser.press("Enter");
    browser.until("location.pathname === '/' && document.readyState === 'complete'");
    assert_eq!(browser.evaluate("document.cookie"), "", "scripts do not see the session");
    browser.until("document.getElementById('pause') !== null");
    // The first Tab reaches the link that skips the navigation; further ones the navigation, the button, the
    // filter, the column heads and the hosts.
    let mut reached = Vec::new();
    for _ in 0..30 {
        browser.press("Tab");
        reached.push(
            browser
                .evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
                .as_str()
                .unwrap()
                .to_owned(),
        );
        assert_eq!(
            browser.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none' || document.activeElement.tagName === 'DIV' || document.activeElement.tagName === 'BODY'"),
            true,
            "the focus is seen: {reached:?}"
        );
    }
    assert_eq!(reached[..5], ["Skip to the content", "Hosts", "Findings", "Experiments", "Pause updates"]);
    for name in ["filter", "Show", "Inhibited", "lab-1"] {
        assert!(reached.iter().any(|one| one == name), "{name}: {reached:?}");
    }
    browser.evaluate(
        "[...document.querySelectorAll('#hosts a')].find(link => link.textContent === 'zen2').focus()",
    );
    browser.press("Enter");
    browser.until("document.querySelector('h1')?.textContent === 'zen2'");
    // Ignore the complaint about the wrong token's answer, and that the test has already moved the focus.
    browser
        .complaints
        .retain(|complaint| !complaint.contains("403") && !complaint.contains("Autofocus processing"));
    assert_eq!(browser.complaints, [""; 0]);
}
