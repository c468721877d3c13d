//! The web page at `/`, built into the program. Its files contain no user data, so a browser may load them before the user
//! has entered the token.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::response::ApiError;

/// No external resources, no inline code, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
                      media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../page/", $name)))),+]
    };
}

const INDEX: &str = "index.html";
const FILES: &[(&str, &[u8])] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "theme.js",
    "app.js",
    "api.js",
    "charts.js",
    "compare.js",
    "data.js",
    "dom.js",
    "i18n.js",
    "new-run.js",
    "recorder-worklet.js",
    "run.js",
    "server.js",
    "sound.js",
    "speak.js",
    "text-en.js",
    "text-fa.js",
    "training.js",
    "voices.js",
];

/// Routes of the page and its files.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(|headers: HeaderMap| async move { file(INDEX, &headers) })).route(
        "/page/{name}",
        get(|Path(name): Path<String>, headers: HeaderMap| async move { file(&name, &headers) }),
    )
}

/// Whether a request is for the page itself, which needs no token.
pub fn is_public(method: &Method, path: &str) -> bool {
    method == Method::GET && (path == "/" || path.starts_with("/page/"))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some((name, bytes)) = FILES.iter().find(|(one, _)| *one == name) else {
        return ApiError::new(StatusCode::NOT_FOUND, "unknown_url", "the page has no such file")
            .into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32]);
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(Body::from(*bytes)),
    };
    let kind = match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        // Revalidated every time, and answered without a body if unchanged.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_files_of_the_page_folder_are_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let mut served: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        served.sort();
        assert_eq!(found, served);
    }

    #[test]
    fn no_external_resources_are_loaded() {
        for (name, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            let addresses =
                text.split("http").skip(1).filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
            for rest in addresses {
                // An XML namespace is a name, not an address.
                assert!(
                    rest.starts_with("://www.w3.org/2000/svg"),
                    "{name}: http{}",
                    &rest[..rest.len().min(40)]
                );
            }
            for (at, _) in text.match_indices("from \"") {
                let from = &text[at + 6..];
                if text[..at].ends_with("} ") || text[..at].ends_with("en ") || text[..at].ends_with("fa ") {
                    assert!(from.starts_with("./"), "{name}: import of {}", &from[..from.len().min(30)]);
                }
            }
        }
    }

    #[test]
    fn both_languages_have_every_text() {
        let keys = |file: &str| -> Vec<String> {
            let (_, bytes) = FILES.iter().find(|(name, _)| *name == file).unwrap();
            let text = std::str::from_utf8(bytes).unwrap();
            let key = |line: &str| {
                let (key, _) = line.strip_prefix("  ")?.split_once(": ")?;
                key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| key.to_owned())
            };
            text.lines().filter_map(key).collect()
        };
        let english = keys("text-en.js");
        assert!(english.len() > 50);
        assert_eq!(english, keys("text-fa.js"));
        let used = FILES.iter().filter(|(name, _)| name.ends_with(".js") && !name.starts_with("text-"));
        for (name, bytes) in used {
            let text = std::str::from_utf8(bytes).unwrap();
            for (at, _) in text.match_indices("t(\"") {
                // Only the function `t`, not the end of another name.
                if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.') {
                    continue;
                }
                let key = text[at + 3..].split('"').next().unwrap();
                assert!(english.iter().any(|known| known == key), "{name} uses {key:?}, which has no text");
            }
        }
    }
}
