//! JSON responses; errors have the format of OpenAI's API, with all four keys.

use crate::limits::RETRY_AFTER;
use crate::queue::QueueError;
use crate::speaker::SpeakerError;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER as RETRY_AFTER_HEADER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

/// An error response.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: Some(code) }
    }

    /// A missing or invalid field.
    pub fn field(param: &str, code: &'static str, message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::BAD_REQUEST, code, message);
        ApiError { param: Some(param.to_owned()), ..error }
    }

    pub fn not_ready() -> ApiError {
        let message = "the model is still being loaded: poll /ready";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message)
    }

    pub fn body(&self) -> Json {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        let headers = response.headers_mut();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER_HEADER, HeaderValue::from(RETRY_AFTER));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(axum::http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<QueueError> for ApiError {
    fn from(refused: QueueError) -> ApiError {
        match refused {
            QueueError::Full => {
                let message = "the queue is full: try again later";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
            }
            QueueError::Closed => SpeakerError::Stopping.into(),
        }
    }
}

impl From<SpeakerError> for ApiError {
    fn from(error: SpeakerError) -> ApiError {
        let message = error.to_string();
        match error {
            SpeakerError::Refused { param, code, .. } => ApiError::field(param, code, message),
            SpeakerError::TimedOut => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timed_out", message),
            SpeakerError::Stopping => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message),
            SpeakerError::Failed(_) => {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "synthesis_failed", message)
            }
        }
    }
}

/// A JSON response with a status.
pub fn json_response(status: StatusCode, json: &Json) -> Response {
    let mut response = Response::new(Body::from(json.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON response with status 200.
pub fn ok(json: &Json) -> Response {
    json_response(StatusCode::OK, json)
}
