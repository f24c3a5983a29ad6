//! Access control: the names of this server, the token, and the sessions of browsers that gave it.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The shortest token, in bytes; shorter ones are easy to guess.
const SHORTEST: usize = 16;
/// The longest token, in bytes.
pub(super) const LONGEST: usize = 1024;

/// The SHA-256 of the token, so that comparing takes the same time for any length.
#[derive(Clone)]
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) fn new(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Reads the token from a file, which must not be readable by others.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let meta = std::fs::metadata(path).with_context(|| format!("Reading the token of {shown} failed"))?;
        if !meta.is_file() || meta.mode() & 0o077 != 0 {
            bail!("{shown} may be read by others than its owner, or is no file; chmod 600 {shown}");
        }
        if meta.len() > LONGEST as u64 {
            bail!("{shown} has {} bytes; a token has at most {LONGEST}", meta.len());
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("Reading the token of {shown} failed"))?;
        let text = text.trim();
        if text.len() < SHORTEST {
            bail!(
                "the token in {shown} has {} bytes, and should have {SHORTEST} or more; (umask 077; openssl rand -hex 32 > {shown})",
                text.len()
            );
        }
        Ok(Self::new(text))
    }

    /// Compares in constant time.
    pub(super) fn is(&self, given: &str) -> bool {
        self.0.ct_eq(&Self::new(given).0).into()
    }
}

/// The requirements for requests.
pub(super) struct Guard {
    token: Option<Token>,
    /// The secret of a browser session, and the name of its cookie.
    session: Token,
    cookie: String,
    secret: String,
    /// The names of this server besides its addresses and localhost, in lower case.
    names: Vec<String>,
}

impl Guard {
    pub(super) fn new(token: Option<Token>, names: &[String], port: u16) -> anyhow::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            token,
            session: Token::new(&secret),
            // Browsers share cookies among the ports of a host.
            cookie: format!("exitless-fleet-{port}"),
            secret,
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        })
    }

    /// Tests whether the request addresses this server: by an IP address, `localhost`, or a configured name.
    /// Protects against DNS rebinding, in which the request has the name of another site that resolves to
    /// this server.
    pub(super) fn is_ours(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(Ok(host)), None) = (hosts.next().map(|host| host.to_str()), hosts.next()) else {
            return false;
        };
        let ours = |authority: &str| {
            let Ok(authority) = authority.parse::<axum::http::uri::Authority>() else { return false };
            let name = authority.host().to_ascii_lowercase();
            let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
            !authority.as_str().contains('@')
                && (name == "localhost" || bare.parse::<IpAddr>().is_ok() || self.names.contains(&name))
        };
        ours(host) && uri.authority().is_none_or(|authority| ours(authority.as_str()))
    }

    /// Tests whether the request has the token, or the cookie of a session.
    pub(super) fn is_known(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        if let Some(given) = bearer(headers) {
            return token.is(given);
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.cookie && self.session.is(value))
    }

    /// The session cookie for a browser that gave the right token.
    pub(super) fn session(&self, given: &str) -> Option<String> {
        let is_right = self.token.as_ref().is_some_and(|token| token.is(given.trim()));
        is_right.then(|| format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, self.secret))
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

/// The token in the header of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    Some(headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: Option<&str>) -> Guard {
        Guard::new(token.map(Token::new), &["Fleet.Example".to_owned()], 7).unwrap()
    }

    fn headers(pairs: &[(axum::http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        let guard = guard(None);
        let is_ours =
            |uri: &'static str, host| guard.is_ours(&Uri::from_static(uri), &headers(&[(HOST, host)]));
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.0.0.1:19171",
            "[::1]:19171",
            "10.0.0.7:1",
            "fleet.example:9",
        ] {
            assert!(is_ours("/", host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:19171",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "sub.fleet.example",
            "",
            " ",
            "a b",
            "[::1",
            "2130706433",
        ] {
            assert!(!is_ours("/", host), "{host}");
        }
        assert!(!is_ours("http://evil.example/", "localhost"));
        assert!(!guard.is_ours(&Uri::from_static("/"), &HeaderMap::new()));
        let mut two = headers(&[(HOST, "localhost")]);
        two.append(HOST, "evil.example".parse().unwrap());
        assert!(!guard.is_ours(&Uri::from_static("/"), &two));
    }

    #[test]
    fn the_token_or_its_session_is_wanted() {
        const TOKEN: &str = "0123456789abcdef";
        let guard = guard(Some(TOKEN));
        let known = |name, value: &str| guard.is_known(&headers(&[(name, value)]));
        assert!(known(AUTHORIZATION, "Bearer 0123456789abcdef"));
        for wrong in
            ["Bearer 0123456789abcdeg", "Bearer ", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef"]
        {
            assert!(!known(AUTHORIZATION, wrong), "{wrong}");
        }
        let session = guard.session(TOKEN).unwrap();
        assert!(
            session.contains("HttpOnly") && session.contains("SameSite=Strict") && !session.contains(TOKEN)
        );
        let pair = session.split(';').next().unwrap();
        assert!(known(COOKIE, &format!("other=1; {pair}")));
        assert!(!known(COOKIE, &format!("exitless-fleet-7={TOKEN}")));
        assert!(!known(COOKIE, &pair.replace("exitless-fleet-7", "exitless-fleet-8")));
        assert!(!guard.is_known(&HeaderMap::new()));
        assert_eq!(guard.session("0123456789abcde"), None);
        // Another process has another secret.
        let other = Guard::new(Some(Token::new(TOKEN)), &[], 7).unwrap();
        assert!(!other.is_known(&headers(&[(COOKIE, pair)])));
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let read = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&file).map_err(|error| error.to_string())
        };
        assert!(read("0123456789abcdef\n", 0o600).unwrap().is("0123456789abcdef"));
        assert!(read("0123456789abcdef\n", 0o640).err().unwrap().contains("chmod 600"));
        assert!(read("0123456789abcde\n", 0o600).err().unwrap().contains("has 15 bytes"));
        assert!(read(&"x".repeat(2000), 0o400).err().unwrap().contains("at most 1024"));
        assert!(Token::read(folder.path()).err().unwrap().to_string().contains("is no file"));
        assert!(Token::read(&folder.path().join("none")).is_err());
    }
}
