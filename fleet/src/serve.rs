//! The web page of a data set, or of this host: tables, exits over time, findings and experiments.
//!
//! Anyone who can connect may send anything. So a request must address this server by one of its names, must
//! have the token if there is one, and is limited in size, number and time. Queries are this program's own;
//! names from requests are only parameters of them.

mod course;
mod data;
mod guard;
mod render;
mod rows;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, FromRequest, Query, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, RETRY_AFTER, SET_COOKIE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use futures::Stream;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use self::course::Range;
use self::data::{Answer, Data, Page};
use self::guard::{Guard, Token, bearer};
use crate::engine::{Bounds, Error};
use crate::store::{Days, Store};

/// The most connections at a time; others wait to be accepted.
const CONNECTIONS: usize = 64;
/// The most of these that wait for changes.
const WATCHING: usize = 40;
/// The time limit for the head of a request, and for the body.
const HEAD: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The largest body of a request, in bytes: a form with a token.
const BODY_BYTES: usize = 4 << 10;
/// The time limit of a connection, against clients that do not read the answer, if pages do not need more.
const CONNECTION: Duration = Duration::from_secs(120);
/// The time for a request and for the transfer of its answer.
const TRANSFER: Duration = Duration::from_secs(30);
/// The time after which the stream of changes ends and the browser reconnects.
const WATCH: Duration = Duration::from_secs(50);
/// The delay of the answer to a wrong token.
const WRONG: Duration = Duration::from_secs(1);
/// The most rows of a table.
const ROWS: usize = 5_000;

/// The content security policy: browsers load only files from this server, so a name that gets into a page as
/// markup has no effect.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'";

const LIVE: &str = include_str!("serve/live.js");
const STYLES: [&str; 4] = [
    pages::document::STYLE,
    pages::document::RECORDINGS,
    pages::document::ARMS,
    include_str!("serve/serve.css"),
];

/// The settings of the server.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The address and port of the page; any but this machine's own needs --token-file.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:19171")]
    pub listen: SocketAddr,
    /// A file with the token that a browser has to give once, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A name of this server, besides its addresses and localhost; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Show this many days, today (UTC) included.
    #[arg(long, value_name = "COUNT", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3660))]
    pub days: u32,
    /// Look for new files so often: 15s, 5min.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = crate::agent::duration)]
    pub refresh: Duration,
    /// Give up a query of a page after so many seconds, and the page after twice as many.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub time: u64,
    /// Memory for the queries of a page in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub memory: u32,
}

impl Settings {
    /// The token. Required unless the address is a loopback address.
    ///
    /// # Errors
    /// The token is missing but required, or cannot be used.
    fn token(&self) -> anyhow::Result<Option<Token>> {
        match &self.token_file {
            Some(file) => Token::read(file).map(Some),
            None if self.listen.ip().to_canonical().is_loopback() => Ok(None),
            None => anyhow::bail!(
                "--listen {} can be reached from other machines; give --token-file too: (umask 077; openssl rand -hex 32 > token)",
                self.listen
            ),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            memory: (self.memory as usize) << 20,
            time: Duration::from_secs(self.time),
            rows: ROWS,
            days: Days::default(),
            strict: false,
        }
    }
}

/// The settings are wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct Wrong(anyhow::Error);

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    router: Router,
    shared: Arc<Shared>,
}

struct Shared {
    guard: Guard,
    data: Mutex<Data>,
    /// The digest of the data set when it was last examined; 0 before that.
    seen: watch::Sender<u64>,
    /// The number of connections that wait for changes.
    watching: AtomicUsize,
    room: Arc<Semaphore>,
    refresh: Duration,
    time: Duration,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the server's address.
    ///
    /// # Errors
    /// The settings are [`Wrong`], or the address cannot be bound.
    pub async fn bind(store: Store, settings: &Settings) -> anyhow::Result<Self> {
        let token = settings.token().map_err(Wrong)?;
        let listener = TcpListener::bind(settings.listen).await;
        let listener = listener.with_context(|| format!("Listening at {} failed", settings.listen))?;
        let guard = Guard::new(token, &settings.name, listener.local_addr()?.port())?;
        let shared = Arc::new(Shared {
            guard,
            data: Mutex::new(Data::new(store, settings.bounds(), settings.days, settings.refresh)),
            seen: watch::Sender::new(0),
            watching: AtomicUsize::new(0),
            room: Arc::new(Semaphore::new(WATCHING)),
            refresh: settings.refresh,
            time: Duration::from_secs(settings.time),
        });
        Ok(Self { listener, router: router(&shared), shared })
    }

    /// The address on which the server listens.
    ///
    /// # Errors
    /// The socket's address cannot be read.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        let Self { listener, router, shared } = self;
        tokio::join!(accept(listener, router, longest(shared.time)), look(shared));
    }
}

/// The time limit of a connection, where a page may take this long.
fn longest(page: Duration) -> Duration {
    CONNECTION.max(patience(page) + TRANSFER)
}

/// The time limit of an answer, where a page may take this long: another page may be made first.
fn patience(page: Duration) -> Duration {
    page * 2
}

async fn accept(listener: TcpListener, router: Router, longest: Duration) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            // The client is gone already, or the process has no free file descriptors; wait for some.
            Err(_) => {
                sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(connection), service);
            // Ignore clients that sent no HTTP, or went away.
            let _ended = timeout(longest, connection).await;
            drop(place);
        });
    }
}

/// Looks for new files while any browser waits for changes.
async fn look(shared: Arc<Shared>) {
    loop {
        sleep(shared.refresh).await;
        if shared.watching.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // The next page will report an error.
        if let Ok(digest) = shared.data.lock().await.look().await {
            shared.seen.send_if_modified(|seen| std::mem::replace(seen, digest) != digest);
        }
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    let file =
        |kind: &'static str, text: &'static str| get(move || async move { ([(CONTENT_TYPE, kind)], text) });
    let style: &'static str = STYLES.concat().leak();
    Router::new()
        .route("/", get(hosts))
        .route("/host", get(host))
        .route("/vm", get(vm))
        .route("/findings", get(findings))
        .route("/experiments", get(experiments))
        .route("/events", get(events))
        .route("/login", get(form).post(login))
        .route("/style.css", file("text/css; charset=utf-8", style))
        .route("/sort.js", file("text/javascript; charset=utf-8", pages::document::SCRIPT))
        .route("/live.js", file("text/javascript; charset=utf-8", LIVE))
        .fallback(async || missing())
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(shared), guarded))
        .with_state(Arc::clone(shared))
}

/// Refuses requests that may not be answered, and sets the security headers of each answer.
async fn guarded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    /// Needed to show the login form.
    const OPEN: [&str; 2] = ["/login", "/style.css"];
    let is_ours = shared.guard.is_ours(request.uri(), request.headers());
    let is_known = is_ours && shared.guard.is_known(request.headers());
    // On all paths: /login also answers differently to the right token.
    if is_ours && !is_known && bearer(request.headers()).is_some() {
        sleep(WRONG).await;
    }
    let mut answer = if !is_ours {
        let why = "exitless-fleet: this is not a name of this server; --name adds one\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    } else if !is_known && !OPEN.contains(&request.uri().path()) {
        let is_page = request.headers().get("accept").and_then(|kinds| kinds.to_str().ok());
        if is_page.is_some_and(|kinds| kinds.contains("text/html")) {
            (StatusCode::SEE_OTHER, [(LOCATION, "/login")]).into_response()
        } else {
            let why = "exitless-fleet: give the token as Authorization: Bearer TOKEN, or at /login\n";
            (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], why).into_response()
        }
    } else {
        next.run(request).await
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn missing() -> Response {
    (StatusCode::NOT_FOUND, Html(render::failure("Not found", "There is no such page, host or VM.")))
        .into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    with: String,
    host: String,
    name: String,
    range: String,
}

type Shown = State<Arc<Shared>>;

async fn hosts(State(shared): Shown, Query(asked): Query<Asked>) -> Response {
    shown(&shared, Page::Hosts(asked.with.trim().to_owned())).await
}

async fn host(State(shared): Shown, Query(asked): Query<Asked>) -> Response {
    shown(&shared, Page::Host(asked.name, Range::of(&asked.range).word())).await
}

async fn vm(State(shared): Shown, Query(asked): Query<Asked>) -> Response {
    shown(&shared, Page::Vm(asked.host, asked.name, Range::of(&asked.range).word())).await
}

async fn findings(State(shared): Shown) -> Response {
    shown(&shared, Page::Findings).await
}

async fn experiments(State(shared): Shown) -> Response {
    shown(&shared, Page::Experiments).await
}

/// Makes one page at a time; others wait at most as long as one may take.
async fn shown(shared: &Arc<Shared>, page: Page) -> Response {
    if let Page::Hosts(name) | Page::Host(name, _) | Page::Vm(name, _, _) = &page
        && name.len() > data::LONGEST
    {
        return missing();
    }
    let made = timeout(patience(shared.time), async { shared.data.lock().await.page(&page).await }).await;
    match made {
        Ok(Ok(Answer::Page(page))) => Html(page).into_response(),
        Ok(Ok(Answer::Elsewhere(path))) => (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response(),
        Ok(Ok(Answer::Missing)) => missing(),
        // A query exceeded its time limit; or the page did, with all its queries and the wait for the page before it.
        Ok(Err(Error::Time(_))) | Err(_) => {
            let why = format!(
                "This page, or one that was made before it, took too long. Show fewer days (--days), join small files \
                 (exitless-fleet compact), or give more time than {} s (--time).",
                shared.time.as_secs()
            );
            busy(&why)
        }
        Ok(Err(error)) => busy(&error.to_string()),
    }
}

fn busy(why: &str) -> Response {
    let page = Html(render::failure("The page could not be made", why));
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], page).into_response()
}

async fn form(State(shared): Shown, headers: HeaderMap) -> Response {
    if shared.guard.is_known(&headers) {
        return (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response();
    }
    Html(render::login(false)).into_response()
}

#[derive(Debug, Deserialize)]
struct Given {
    token: String,
}

async fn login(State(shared): Shown, request: Request) -> Response {
    begin_session(&shared.guard, request, HEAD).await
}

/// The answer to a form with the token, which has to come within this time: nobody may hold a connection without the token.
async fn begin_session(guard: &Guard, request: Request, within: Duration) -> Response {
    let given = match timeout(within, Form::<Given>::from_request(request, &())).await {
        Ok(Ok(Form(given))) => given,
        Ok(Err(wrong)) => return wrong.into_response(),
        Err(_) => {
            let why = "exitless-fleet: the form did not arrive in time; send it again\n";
            return (StatusCode::REQUEST_TIMEOUT, [("connection", "close")], why).into_response();
        }
    };
    match guard.session(&given.token) {
        Some(cookie) => {
            (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response()
        }
        None if !guard.has_token() => (StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response(),
        None => {
            sleep(WRONG).await;
            (StatusCode::FORBIDDEN, Html(render::login(true))).into_response()
        }
    }
}

/// A connection that waits for changes.
struct Watcher {
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.watching.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends the digest of the data set, now and whenever it changes.
async fn events(State(shared): Shown) -> Response {
    let Ok(place) = Arc::clone(&shared.room).try_acquire_owned() else {
        return busy("Too many browsers wait for changes.");
    };
    shared.watching.fetch_add(1, Ordering::Relaxed);
    let seen = shared.seen.subscribe();
    let watcher = Watcher { shared, _place: place };
    Sse::new(changes(watcher, seen))
        .keep_alive(KeepAlive::new().interval(Duration::from_secs(20)))
        .into_response()
}

fn changes(
    watcher: Watcher,
    mut seen: watch::Receiver<u64>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    seen.mark_changed();
    let end = tokio::time::Instant::now() + WATCH;
    futures::stream::unfold((watcher, seen), move |(watcher, mut seen)| async move {
        loop {
            // End the stream in time; the browser reconnects.
            if !matches!(tokio::time::timeout_at(end, seen.changed()).await, Ok(Ok(()))) {
                return None;
            }
            let digest = *seen.borrow_and_update();
            if digest != 0 {
                let event = Event::default().event("digest").retry(Duration::from_secs(1));
                return Some((Ok(event.data(format!("{digest:016x}"))), (watcher, seen)));
            }
        }
    })
}

#[cfg(test)]
mod tests;
