//! Who may ask: by token, and where there is none, by the name the server is called by; pages of other sites may not.

use crate::answer::ApiError;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use std::net::IpAddr;

/// Who may ask.
pub struct Access {
    /// Hashes are compared: that takes the same time wherever two tokens differ, and however long they are.
    token: Option<blake3::Hash>,
    origins: Vec<String>,
}

impl Access {
    /// With a token, everyone who has it; pages of loopback addresses, and of `origins`.
    pub fn new(token: Option<&str>, origins: Vec<String>) -> Access {
        Access { token: token.map(|token| blake3::hash(token.as_bytes())), origins }
    }

    /// Refuses who may not ask.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if let Some(origin) = headers.get(ORIGIN)
            && self.allowed_origin(headers).is_none()
        {
            let message = format!(
                "pages of {} may not use this server: start it with --allow-origin to let them",
                String::from_utf8_lossy(origin.as_bytes())
            );
            return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden_origin", message));
        }
        match self.token {
            Some(token) => {
                let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
                let given = given.and_then(|value| {
                    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
                    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
                });
                // A hash that is not compared takes less time; that only tells that there was no token.
                if given.is_some_and(|given| blake3::hash(given) == token) {
                    return Ok(());
                }
                let message = "a token is needed: send the header Authorization: Bearer TOKEN";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
            }
            // A page whose name was made to point here would be taken for one of ours.
            None => match headers.get(HOST).map(|host| host.to_str().is_ok_and(is_loopback)) {
                None | Some(true) => Ok(()),
                Some(false) => {
                    let message = "without a token this server is called by localhost or 127.0.0.1 only";
                    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden_host", message))
                }
            },
        }
    }

    /// The origin of a request, where pages of it may read answers.
    pub(crate) fn allowed_origin<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let origin = headers.get(ORIGIN)?.to_str().ok()?;
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // Our own page has the name that the server is called by; whether it may be called so is the host's check.
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let is_ours = authority.is_some_and(|authority| is_loopback(authority) || Some(authority) == host);
        (is_ours || self.origins.iter().any(|allowed| allowed == origin || allowed == "*")).then_some(origin)
    }
}

/// Whether `HOST` or `HOST:PORT` is this machine.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_is_compared_whole() {
        let access = Access::new(Some("secret-token"), Vec::new());
        let check = |value: &str| access.check(&headers(&[("authorization", value)])).is_ok();
        assert!(check("Bearer secret-token") && check("bearer secret-token"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer secret-toke",
            "Bearer secret-tokenx",
            "secret-token",
            "Basic secret-token",
        ] {
            assert!(!check(wrong), "{wrong:?}");
        }
        assert!(access.check(&headers(&[])).is_err());
    }

    #[test]
    fn without_a_token_only_this_machine_is_named() {
        let access = Access::new(None, vec!["https://chat.example".to_owned()]);
        for host in ["localhost", "LOCALHOST:8020", "127.0.0.1:8020", "[::1]:8020", "127.9.9.9"] {
            assert!(access.check(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8020",
            "localhost.evil.example",
            "10.0.0.1:8020",
            "127.0.0.1.evil",
            "",
        ] {
            assert!(access.check(&headers(&[("host", host)])).is_err(), "{host}");
        }
        let origin =
            |origin: &str| access.check(&headers(&[("host", "localhost"), ("origin", origin)])).is_ok();
        assert!(
            origin("http://127.0.0.1:8000")
                && origin("http://localhost:8000")
                && origin("https://chat.example")
        );
        let renamed = headers(&[("host", "evil.example"), ("origin", "http://evil.example")]);
        assert!(access.check(&renamed).is_err(), "a page that calls us by its own name");
        let guarded = Access::new(Some("secret-token"), Vec::new());
        let mut ours = headers(&[("host", "10.0.0.1:8020"), ("origin", "http://10.0.0.1:8020")]);
        assert_eq!(
            guarded.check(&ours).unwrap_err().status,
            StatusCode::UNAUTHORIZED,
            "our own page asks for the token"
        );
        ours.insert(AUTHORIZATION, "Bearer secret-token".parse().unwrap());
        assert!(guarded.check(&ours).is_ok());
        assert!(
            !origin("https://evil.example") && !origin("null") && !origin("http://localhost.evil.example")
        );
    }
}
