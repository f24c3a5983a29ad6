//! Tests the routes without a socket, and the limits with one.

use std::io::{Read as _, Write as _};

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use chrono::Utc;
use clap::Parser;
use http_body_util::BodyExt;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tower::ServiceExt;

use super::*;
use crate::document::{self, Origin};

const HOSTILE: &str =
    "</code><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>/../%2e%2e?x=1#y\u{202e}\u{1b}[31m";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    settings: Settings,
}

fn settings(arguments: &[&str]) -> Settings {
    Line::parse_from([&["serve", "--listen", "127.0.0.1:0", "--refresh", "100ms"], arguments].concat())
        .settings
}

fn fixture(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

async fn add(store: &Store, host: &str, text: &str) {
    let origin = Origin { file: "a test's".to_owned(), host: Some(host.to_owned()), time: Utc::now() };
    let rows = document::rows(text.as_bytes(), &origin).unwrap();
    crate::write::rows(store, &rows).await.unwrap();
}

/// A store of outputs in which texts of external origin are hostile.
async fn hostile() -> Store {
    let store = Store::in_memory();
    let spoiled = |text: String, fields: &[&str]| {
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        spoil(&mut document, fields);
        document.to_string()
    };
    add(
        &store,
        HOSTILE,
        &spoiled(
            fixture("doctor.json"),
            &["found", "title", "why", "value", "place", "advice", "command", "sentence", "kernel"],
        ),
    )
    .await;
    add(&store, HOSTILE, &spoiled(fixture("verify.json"), &["name", "kernel"])).await;
    add(&store, "other", &fixture("doctor.json")).await;
    // Studies and proofs contain their own times, which are long ago.
    add(
        &store,
        HOSTILE,
        &spoiled(fixture("experiment.json"), &["workload", "name", "kernel", "emulator", "metric"]),
    )
    .await;
    add(&store, HOSTILE, &fixture("prove.json")).await;
    let hostile_reasons =
        fixture("stat.json").replace("\"vm\":", "\"unused\":").replace("interrupt", "\u{202e}<b>");
    add(&store, HOSTILE, &hostile_reasons).await;
    store
}

/// Replaces the texts of these fields.
fn spoil(value: &mut serde_json::Value, fields: &[&str]) {
    match value {
        serde_json::Value::Object(all) => {
            for (name, value) in all {
                match value {
                    serde_json::Value::String(text) if fields.contains(&name.as_str()) => {
                        HOSTILE.clone_into(text)
                    }
                    value => spoil(value, fields),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(|value| spoil(value, fields)),
        _ => {}
    }
}

async fn server(store: Store, arguments: &[&str]) -> Server {
    Server::bind(store, &settings(arguments)).await.unwrap()
}

async fn asked(
    server: &Server,
    request: hyper::http::request::Builder,
    body: &str,
) -> (StatusCode, HeaderMap, String) {
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let answer = server.router.clone().oneshot(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

fn request(path: &str) -> hyper::http::request::Builder {
    hyper::Request::get(path).header(HOST, "localhost:19171").header("accept", "text/html")
}

async fn page(server: &Server, path: &str) -> String {
    let (status, headers, text) = asked(server, request(path), "").await;
    assert_eq!(status, StatusCode::OK, "{path}: {text}");
    assert_eq!(headers[CONTENT_SECURITY_POLICY], POLICY);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn names_from_outside_stay_text_and_lead_to_their_pages() {
    let server = server(hostile().await, &["--days", "3660"]).await;
    let mut all = Vec::new();
    for path in ["/", "/findings", "/experiments", "/?with=other", &format!("/?with={}", "%3Cscript%3E")] {
        all.push(page(&server, path).await);
    }
    // Every link to a host or VM leads to its page.
    let mut links: Vec<String> = Vec::new();
    for page in &all {
        links.extend(
            page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")),
        );
    }
    links.sort();
    links.dedup();
    let hosts: Vec<_> =
        links.iter().filter(|link| link.starts_with("/host?") && !link.contains('#')).collect();
    assert_eq!(hosts.len(), 2, "{links:?}");
    for path in hosts {
        let host = page(&server, path).await;
        let vms = host
            .split("href=\"/vm?")
            .skip(1)
            .map(|rest| format!("/vm?{}", rest.split('"').next().unwrap().replace("&amp;", "&")));
        let vms: Vec<_> = vms.filter(|path| !path.contains("range")).collect();
        all.push(host);
        for path in vms {
            all.push(page(&server, &path).await);
        }
    }
    assert!(all.iter().filter(|page| page.contains("&lt;script&gt;")).count() >= 5);
    for page in all {
        // Each page has two scripts, both in files.
        assert_eq!(page.matches("<script").count(), 2, "{page}");
        assert!(!page.contains("<img") && !page.contains("\u{1b}") && !page.contains('\u{202e}'), "{page}");
        assert!(!page.contains("style=") && !page.contains("<style"), "{page:.3000}");
        for external in ["http:", "https:", "src=\"//", "href=\"//", "javascript:"] {
            assert!(!page.contains(&format!("\"{external}")), "{external}");
        }
        for nonsense in ["NaN", "inf%", "inf\"", "-nan", "18,446,744,073"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exits_that_may_be_sleep_have_no_cpu_time() {
    let store = Store::in_memory();
    add(&store, "one", &fixture("stat.json")).await;
    add(&store, "two", &fixture("stat.json").replace("\"reason\":", "\"unused\":")).await;
    let text = page(&server(store, &["--days", "3660"]).await, "/").await;
    let row = |host: &str| {
        let link = format!("name={host}\"");
        text.split("</tr>").find(|row| row.contains(&link)).unwrap_or_else(|| panic!("{host}: {text}"))
    };
    assert!(row("one").contains(" %") && !row("two").contains(" %"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_request_are_no_sql() {
    let server = server(hostile().await, &["--days", "3660"]).await;
    for name in ["x' OR '1'='1", "$1", "'; DROP TABLE raw.hosts; --", "", "%00"] {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, _, text) = asked(&server, request(&format!("/host?name={encoded}")), "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{name}: {text}");
        let (status, _, text) = asked(&server, request(&format!("/?with={encoded}")), "").await;
        assert_eq!(status, StatusCode::OK, "{name}: {text}");
    }
    let long = "x".repeat(data::LONGEST + 1);
    assert_eq!(asked(&server, request(&format!("/?with={long}")), "").await.0, StatusCode::NOT_FOUND);
    for path in ["/nothing", "/host", "/..%2f..%2fetc/passwd", "/style.css/x"] {
        let (status, headers, _) = asked(&server, request(path), "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(headers.contains_key(CONTENT_SECURITY_POLICY));
    }
    assert_eq!(
        asked(&server, hyper::Request::post("/").header(HOST, "localhost"), "").await.0,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_ours_gets_nothing() {
    let server = server(hostile().await, &["--name", "fleet.example"]).await;
    for path in ["/", "/style.css", "/login", "/events"] {
        let evil = hyper::Request::get(path).header(HOST, "evil.example");
        let (status, _, text) = asked(&server, evil, "").await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        assert!(text.contains("--name adds one"), "{text}");
    }
    let ours = hyper::Request::get("/findings").header(HOST, "fleet.example");
    assert_eq!(asked(&server, ours, "").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_there_is_the_form_alone() {
    const TOKEN: &str = "correct horse battery staple";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = server(hostile().await, &["--token-file", file.to_str().unwrap()]).await;
    for path in ["/", "/host?name=other", "/findings", "/experiments", "/sort.js", "/nothing"] {
        let (status, headers, text) = asked(&server, request(path), "").await;
        assert_eq!(
            (status, headers[LOCATION].to_str().unwrap(), text.as_str()),
            (StatusCode::SEE_OTHER, "/login", "")
        );
    }
    let (status, _, text) =
        asked(&server, hyper::Request::get("/events").header(HOST, "localhost"), "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(text.contains("Authorization: Bearer"), "{text}");
    // The answer to a wrong one takes as long as that of the form.
    let (asking, began) = (&server, std::time::Instant::now());
    let tried = ["/findings", "/login", "/events"].map(|path| async move {
        asked(asking, request(path).header(AUTHORIZATION, "Bearer wrong"), "").await;
        (path, began.elapsed())
    });
    for (path, took) in futures::future::join_all(tried).await {
        assert!(took >= WRONG, "{path}: {took:?}");
    }
    assert!(page(&server, "/login").await.contains("type=\"password\""));
    let post = || {
        hyper::Request::post("/login")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
    };
    let (status, headers, text) = asked(&server, post(), "token=wrong").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(!headers.contains_key(SET_COOKIE) && text.contains("This is not the token"), "{text}");
    // Larger than any allowed token.
    let large = format!("token={}", "x".repeat(BODY_BYTES));
    assert_eq!(asked(&server, post(), &large).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let (status, headers, _) = asked(&server, post(), "token=correct+horse+battery+staple").await;
    assert_eq!((status, headers[LOCATION].to_str().unwrap()), (StatusCode::SEE_OTHER, "/"));
    let cookie = headers[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(asked(&server, request("/findings").header(COOKIE, &cookie), "").await.0, StatusCode::OK);
    let bearer = request("/findings").header(AUTHORIZATION, format!("Bearer {TOKEN}"));
    assert_eq!(asked(&server, bearer, "").await.0, StatusCode::OK);
    // A token in the URL would end up in histories and logs, so it is not accepted.
    let (status, ..) = asked(&server, request("/findings?token=correct+horse+battery+staple"), "").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_form_that_does_not_come_is_not_waited_for() {
    let silent = Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, Infallible>>());
    let request = hyper::Request::post("/login").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let guard = Guard::new(None, &[], 7).unwrap();
    let refused = begin_session(&guard, request.body(silent).unwrap(), Duration::from_millis(1)).await;
    assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(refused.headers()["connection"], "close");
}

#[tokio::test]
async fn other_machines_are_served_with_a_token_only() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let error = Server::bind(Store::in_memory(), &settings_at(address)).await.unwrap_err();
        assert!(error.is::<Wrong>() && error.to_string().contains("--token-file"), "{error:#}");
    }
    assert!(Server::bind(Store::in_memory(), &settings_at("127.1.2.3:0")).await.is_ok());
}

fn settings_at(address: &str) -> Settings {
    Line::parse_from(["serve", "--listen", address]).settings
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_alone_is_the_first_page_and_a_data_set_without_hosts_says_so() {
    let store = Store::in_memory();
    let empty = server(store.clone(), &[]).await;
    assert!(page(&empty, "/").await.contains("no host in these days"));
    assert!(page(&empty, "/findings").await.contains("No check fails"));
    assert!(page(&empty, "/experiments").await.contains("no experiment in these days"));
    add(&store, "only one", &fixture("doctor.json")).await;
    let one = server(store, &[]).await;
    let (status, headers, _) = asked(&one, request("/"), "").await;
    assert_eq!(
        (status, headers[LOCATION].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/host?name=only%20one")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_take_too_long_are_given_up() {
    // No order of threads makes the page before its time is over.
    let hour = Duration::from_secs(3600);
    let slow = ThrottleConfig { wait_list_with_delimiter_per_call: hour, ..ThrottleConfig::default() };
    let store = Store::of(Arc::new(ThrottledStore::new(InMemory::new(), slow)));
    let server = Server::bind(store, &Settings { time: 0, ..settings(&[]) }).await.unwrap();
    let (status, headers, text) = asked(&server, request("/"), "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let says_what_to_do = |text: &str| text.contains("took too long") && text.contains("--days");
    assert!(headers.contains_key(RETRY_AFTER) && says_what_to_do(&text), "{text}");
    // The page before this one is not ready.
    let before = server.shared.data.lock().await;
    let (_, _, text) = asked(&server, request("/"), "").await;
    drop(before);
    assert!(says_what_to_do(&text), "{text}");
}

#[test]
fn a_connection_outlives_the_page_that_it_waits_for() {
    assert_eq!(longest(Duration::from_secs(30)), CONNECTION);
    assert_eq!(longest(Duration::from_secs(3600)), Duration::from_secs(2 * 3600) + TRANSFER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_is_told_as_soon_as_it_is_there_and_no_longer() {
    let store = hostile().await;
    let server = server(store.clone(), &[]).await;
    let is_told = async || {
        sleep(Duration::from_millis(150)).await;
        page(&server, "/findings").await.contains("1 file of the data set could not be read")
    };
    assert!(!is_told().await);
    let day = Utc::now().format("%Y-%m-%d");
    let path = object_store::path::Path::from(format!("exits/date={day}/host=web-1/torn.parquet"));
    store.objects().put(&path, "torn".into()).await.unwrap();
    assert!(is_told().await);
    store.objects().delete(&path).await.unwrap();
    assert!(!is_told().await);
}

/// The answer to raw bytes on a connection, until it is closed.
fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.write_all(request).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap_or_default();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_hears_of_changes_and_silent_or_large_requests_take_nothing_from_it() {
    let store = hostile().await;
    let server = server(store.clone(), &[]).await;
    let address = server.address().unwrap();
    let running = tokio::spawn(server.run());
    let work = tokio::task::spawn_blocking(move || {
        let get = |path: &str| {
            raw(
                address,
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
            )
        };
        assert!(get("/style.css").contains("200 OK"));
        let endless =
            [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(), vec![b'a'; HEAD_BYTES * 2]].concat();
        for request in [
            &b"\x16\x03\x01\x02\x00"[..],
            b"page, please\r\n\r\n",
            b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
            &endless,
        ] {
            assert!(!raw(address, request).contains("200 OK"));
        }
        // Open silent connections until only two more are possible.
        let silent: Vec<_> =
            (2..CONNECTIONS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let mut events = std::net::TcpStream::connect(address).unwrap();
        events.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        events.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let page = get("/findings");
        let digest = page.split("data-digest=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let mut heard = String::new();
        let mut until = |wanted: &dyn Fn(&str) -> bool| {
            let mut bytes = [0; 1024];
            while !wanted(&heard) {
                let count = events.read(&mut bytes).unwrap();
                assert!(count > 0, "{heard}");
                heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        until(&|heard| heard.contains(&format!("data: {digest}")));
        drop(silent);
        tokio::runtime::Handle::current().block_on(add(&store, "new", &fixture("doctor.json")));
        until(&|heard| heard.matches("event: digest").count() >= 2);
        assert!(get("/").contains(">new</a>"));
    });
    work.await.unwrap();
    running.abort();
}
