//! Access control: by token or, without one, by host name; pages of other sites are refused.

use crate::response::ApiError;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use std::net::IpAddr;

/// Access rules of a server.
pub struct Access {
    /// Hashes are compared, which takes the same time wherever tokens differ and however long they are.
    token: Option<blake3::Hash>,
    origins: Vec<String>,
}

impl Access {
    /// Allows clients with the token, and pages of loopback addresses and of `origins`.
    pub fn new(token: Option<&str>, origins: Vec<String>) -> Access {
        Access { token: token.map(|token| blake3::hash(token.as_bytes())), origins }
    }

    /// Checks the headers of a request.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if let Some(origin) = headers.get(ORIGIN)
            && self.allowed_origin(headers).is_none()
        {
            let message = format!(
                "pages of {} may not use this server: allow them with --allow-origin",
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
                // Skipping the comparison takes less time, which only reveals that there was no token.
                if given.is_some_and(|given| blake3::hash(given) == token) {
                    return Ok(());
                }
                let message = "a token is required: send the header Authorization: Bearer TOKEN";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
            }
            // Otherwise a page whose host name resolves to this machine (DNS rebinding) would be accepted.
            None => match headers.get(HOST).map(|host| host.to_str().is_ok_and(is_loopback)) {
                None | Some(true) => Ok(()),
                Some(false) => {
                    let message =
                        "without a token this server accepts only the host names localhost and 127.0.0.1";
                    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden_host", message))
                }
            },
        }
    }

    /// The origin of a request, if its pages may read responses.
    pub(crate) fn allowed_origin<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let origin = headers.get(ORIGIN)?.to_str().ok()?;
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // The server's own page has the host name of the request; the host check decides whether that is allowed.
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let is_ours = authority.is_some_and(|authority| is_loopback(authority) || Some(authority) == host);
        (is_ours || self.origins.iter().any(|allowed| allowed == origin || allowed == "*")).then_some(origin)
    }
}

/// Whether `HOST` or `HOST:PORT` is a loopback address.
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
    fn the_whole_token_is_compared() {
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
    fn without_a_token_only_loopback_hosts_are_accepted() {
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
        assert!(access.check(&renamed).is_err(), "a page that uses its own host name");
        let guarded = Access::new(Some("secret-token"), Vec::new());
        let mut ours = headers(&[("host", "10.0.0.1:8020"), ("origin", "http://10.0.0.1:8020")]);
        assert_eq!(
            guarded.check(&ours).unwrap_err().status,
            StatusCode::UNAUTHORIZED,
            "the server's own page must ask for the token"
        );
        ours.insert(AUTHORIZATION, "Bearer secret-token".parse().unwrap());
        assert!(guarded.check(&ours).is_ok());
        assert!(
            !origin("https://evil.example") && !origin("null") && !origin("http://localhost.evil.example")
        );
    }
}
