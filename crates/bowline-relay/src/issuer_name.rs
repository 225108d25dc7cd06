//! The name of an issuer, which tokens carry and settings name: written in several ways, compared in one.
//!
//! Apart, because relay and control plane have to agree on it: a slash at the end of one of them would
//! refuse every token.

use url::Url;

/// An issuer's name as tokens and settings compare it: a URL in its normal form (lower-case host, no
/// default port), without a slash at its end.
pub(crate) fn normal(issuer: &str) -> String {
    let url = Url::parse(issuer).map_or_else(|_| issuer.to_owned(), String::from);
    url.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_has_one_name_however_it_is_written() {
        for written in [
            "https://id.example",
            "https://id.example/",
            "https://ID.example:443//",
            "HTTPS://id.example",
        ] {
            assert_eq!(normal(written), "https://id.example", "{written}");
        }
        assert_eq!(normal("https://id.example/a/B/"), "https://id.example/a/B");
        assert_eq!(normal("http://127.0.0.1:7000/"), "http://127.0.0.1:7000");
    }
}
