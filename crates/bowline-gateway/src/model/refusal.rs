//! Refusals of a model's server as failures of ours, with the server's own status and code.

use bowline_sbp::error::{Code, Failure, UpstreamError};
use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// Whether the error came instead of an answer, or after it had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Before,
    Within,
}

/// The failure for an error of the upstream `name`. `status`: that of the response; an error event
/// has none.
pub(super) fn refusal(name: &str, status: Option<u16>, body: &Value, when: When) -> Failure {
    let (said, text) = UpstreamError::read(status, body);
    let text = text.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
    let text = text.unwrap_or_default();
    let status = said.status;
    let message = match (status, when) {
        // Not quoted: servers repeat parts of a wrong key.
        (401, _) => format!(
            "the upstream `{name}` refused the gateway's own key for it; the gateway's owner must \
             check key_env or key_file of that upstream"
        ),
        (403, _) => format!(
            "the upstream `{name}` does not allow this with the gateway's own key for it; the \
             gateway's owner must check what that key may do"
        ),
        (_, When::Within) => {
            format!("the upstream `{name}` failed in the middle of its answer{text}")
        }
        (400..500, _) => format!("the upstream `{name}` refused the request{text}"),
        (503, _) => format!("the upstream `{name}` is not available{text}"),
        (504, _) => format!("the upstream `{name}` timed out{text}"),
        (status, _) => format!("the upstream `{name}` answered {status}{text}"),
    };
    let upstream = (400..600).contains(&status).then(|| Box::new(said));
    Failure { upstream, ..Failure::new(code(status), message) }
}

fn code(status: u16) -> Code {
    match status {
        400 | 404 | 405 | 415 | 422 => Code::InvalidRequest,
        413 => Code::TooLarge,
        429 => Code::RateLimited,
        503 => Code::Unavailable,
        504 => Code::UpstreamTimeout,
        _ => Code::Upstream,
    }
}

/// An error event inside a stream, or an error sent as an answer: `{"error": …}` and no choices.
pub(super) fn error_event(data: &[u8]) -> Option<Value> {
    // A cheap check first: most chunks have no such field.
    if !std::str::from_utf8(data).is_ok_and(|text| text.contains("\"error\"")) {
        return None;
    }
    let event: Value = serde_json::from_slice(data).ok()?;
    event.get("error").filter(|error| !error.is_null())?;
    // A chunk with choices is not an error event.
    let choices = event.get("choices").and_then(|choices| choices.as_array());
    choices.is_none_or(|choices| choices.is_empty()).then_some(event)
}

/// Adds how long the upstream asks to wait. A date becomes seconds, which every SDK reads; the
/// upstream's own `Date` is its clock.
pub(super) fn add_wait(failure: &mut Failure, headers: &HeaderMap, now: Timestamp) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |text: &str| text.trim().parse().ok().filter(|n: &f64| (0.0..1e9).contains(n));
    let date = |text: &str| Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp());
    let millis = text("retry-after-ms").and_then(number).map(|millis| millis.ceil() as u64);
    let seconds = text(RETRY_AFTER.as_str()).and_then(|said| {
        number(said).map(|seconds| seconds.ceil() as u64).or_else(|| {
            let now = text(DATE.as_str()).and_then(date).unwrap_or(now);
            Some(date(said)?.duration_since(now).as_secs().max(0).unsigned_abs())
        })
    });
    failure.retry_after = seconds.or(millis.map(|millis| millis.div_ceil(1000)));
    if let Some(said) = &mut failure.upstream {
        said.retry_after_ms = millis;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_wait_is_read_in_every_form() {
        let now = Timestamp::from_second(784_111_777).unwrap();
        let at = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (fields, seconds, millis) in [
            (vec![("retry-after", "7")], Some(7), None),
            (vec![("retry-after", "0.2")], Some(1), None),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], Some(60), None),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0), None),
            (vec![("retry-after", "Sun, 06 Nov 1994 09:00:00 GMT"), ("date", at)], Some(623), None),
            (vec![("retry-after-ms", "1500")], Some(2), Some(1500)),
            (vec![("retry-after", "2"), ("retry-after-ms", "1500")], Some(2), Some(1500)),
            (vec![("retry-after", "soon"), ("retry-after-ms", "-1")], None, None),
            (vec![("retry-after", "NaN"), ("retry-after-ms", "1e99")], None, None),
            (vec![], None, None),
        ] {
            let name = |name: &'static str| reqwest::header::HeaderName::from_static(name);
            let value = |text: &str| reqwest::header::HeaderValue::from_str(text).unwrap();
            let headers = fields.iter().map(|(n, v)| (name(n), value(v))).collect();
            let mut failure = refusal("u", Some(429), &json!({}), When::Before);
            add_wait(&mut failure, &headers, now);
            let said = failure.upstream.unwrap();
            assert_eq!((failure.retry_after, said.retry_after_ms), (seconds, millis), "{fields:?}");
        }
    }

    #[test]
    fn a_status_that_is_no_error_is_not_passed_on() {
        let failure = refusal("u", Some(307), &json!({}), When::Before);
        assert_eq!((failure.http_status(), failure.upstream), (502, None));
        assert!(failure.message.contains("307"));
    }

    #[test]
    fn a_message_about_a_key_is_not_quoted() {
        for status in [401, 403] {
            let body =
                json!({ "error": { "message": "bad key sk-secret", "code": "invalid_api_key" } });
            for (status, when) in [(Some(status), When::Before), (Some(status), When::Within)] {
                let failure = refusal("u", status, &body, when);
                assert!(failure.message.contains("own key"), "{}", failure.message);
                assert!(!format!("{failure:?}").contains("sk-secret"));
                assert_eq!(failure.upstream.unwrap().code.as_deref(), Some("invalid_api_key"));
            }
        }
    }
}
