//! The data set in an object store: a local server with the S3 API.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Said, fixture, program};

/// The server program: that of moto, which mocks AWS. Optional; `scripts/fleet-readers` installs it.
const SERVER: &str = "EXITLESS_FLEET_MOTO";

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Option<Self> {
        let moto = std::env::var_os(SERVER).unwrap_or_else(|| "moto_server".into());
        let mut child = Command::new(&moto)
            .args(["--host", "127.0.0.1", "--port", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let told = |line: String| {
            // Some versions say in the same line how to end it.
            Some(line.split_once("Running on http://")?.1.split_whitespace().next()?.to_owned())
        };
        let address = log.by_ref().lines().map_while(Result::ok).find_map(told);
        let address = address.expect("moto ended without an address");
        // Each request is logged.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let server = Self { child, url: format!("http://{address}") };
        // A plain PUT creates a bucket.
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "PUT /fleet HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\
                        Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(server)
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Said {
        program()
            .args([command, "--store", "s3://fleet/data"])
            .args(arguments)
            .env("AWS_ENDPOINT_URL", &self.url)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b")
            .env("AWS_REGION", "us-east-1")
            .output()
            .unwrap()
            .into()
    }

    fn rows(&self, sql: &str) -> Value {
        self.run("query", &["--json", sql]).well().json()["rows"].clone()
    }
}

#[test]
fn an_object_store_holds_the_same_as_a_folder() {
    let Some(server) = Server::start() else {
        return println!("not tested: there is no moto_server ({SERVER}); scripts/fleet-readers installs it");
    };
    let host = "../a=b <\u{e9}>";
    for hour in 10..13 {
        for name in ["stat.json", "verify.json"] {
            let (file, time) = (fixture(name).display().to_string(), format!("2026-03-01T{hour}:00:00Z"));
            let add = || server.run("add", &["--host", host, "--time", &time, &file]).well();
            add();
            // Written by a conditional PUT, so only once.
            assert!(add().out.contains("had been added before"));
        }
    }
    let sql = "SELECT host_name AS host, sum(exits) AS n FROM raw.exits GROUP BY host_name";
    assert_eq!(server.rows(sql), json!([{"host": host, "n": 3 * 729}]));
    assert_eq!(server.rows("SELECT vm FROM vms ORDER BY vm"), json!([{"vm": "pit"}, {"vm": "split"}]));
    let joined = server.run("compact", &["--until", "2026-03-01"]).well();
    assert!(joined.out.starts_with("Joined 5 days of hosts; deleted 15 files"), "{}", joined.out);
    assert_eq!(server.rows(sql), json!([{"host": host, "n": 3 * 729}]));
    server.run("retain", &["--days", "1", "--apply"]).well();
    assert_eq!(server.rows(sql), json!([]));
}

#[test]
fn a_store_without_an_answer_is_an_error() {
    // Nobody listens there; by default the client retries for a while.
    let said: Said = program()
        .args(["query", "--time", "5", "--store", "s3://fleet/data", "SELECT 1"])
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "a")
        .env("AWS_SECRET_ACCESS_KEY", "b")
        .output()
        .unwrap()
        .into();
    assert_eq!(said.status, 125);
    assert!(said.err.contains("in the store failed") || said.err.contains("took longer"), "{}", said.err);
}
