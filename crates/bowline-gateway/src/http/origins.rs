//! Web origins: which pages may call the gateway besides its own.

/// A web origin as browsers write it: scheme, host and port, in lower case; or `null`, for pages
/// that have none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WebOrigin(String);

/// The longest origin: a host name has at most 253 characters.
const LONGEST: usize = 300;

impl WebOrigin {
    /// `None` if the text is no origin. What is one has no character that could confuse a log.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text == "null" {
            return Some(Self(text));
        }
        let (scheme, authority) = text.split_once("://").filter(|_| text.len() <= LONGEST)?;
        let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let in_authority = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let is_origin = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(in_scheme)
            && !authority.is_empty()
            && authority.bytes().all(in_authority);
        // Browsers leave the scheme's own port out.
        let port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let authority = authority.strip_suffix(port).unwrap_or(authority);
        is_origin.then(|| Self(format!("{scheme}://{authority}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why `http.allowed_origins` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOrigins {
    #[error("http.allowed_origins: `{0}` is not a web origin")]
    NotAnOrigin(String),
    #[error("http.allowed_origins allows every web page (`*`), and there is no API key")]
    EveryPage,
}

impl BadOrigins {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotAnOrigin(_) => {
                "write scheme, host and port, and nothing after them: https://app.example or \
                 http://localhost:3000; `null` stands for pages without an origin"
            }
            Self::EveryPage => {
                "make a key with `bowline keys new` and set auth.api_keys, or list the origins one \
                 by one"
            }
        }
    }
}

/// The origins of `http.allowed_origins`.
#[derive(Debug, Default)]
pub(crate) struct AllowedOrigins {
    /// `*` is among them.
    every: bool,
    listed: Vec<WebOrigin>,
}

impl AllowedOrigins {
    /// `is_open`: the gateway needs no API key. Then `*` is refused: any page that its owner opens
    /// could use it.
    pub(crate) fn new(origins: &[String], is_open: bool) -> Result<Self, BadOrigins> {
        let mut allowed = Self::default();
        for text in origins {
            match WebOrigin::parse(text) {
                _ if text == "*" && is_open => return Err(BadOrigins::EveryPage),
                _ if text == "*" => allowed.every = true,
                Some(origin) => allowed.listed.push(origin),
                None => return Err(BadOrigins::NotAnOrigin(text.clone())),
            }
        }
        Ok(allowed)
    }

    pub(crate) fn contains(&self, origin: &WebOrigin) -> bool {
        self.every || self.names(origin)
    }

    /// The same without `*`.
    pub(crate) fn names(&self, origin: &WebOrigin) -> bool {
        self.listed.contains(origin)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.every && self.listed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(origins: &[&str], is_open: bool) -> Result<AllowedOrigins, BadOrigins> {
        let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        AllowedOrigins::new(&origins, is_open)
    }

    #[test]
    fn origins_are_compared_whole_and_as_browsers_write_them() {
        let listed = ["https://App.example:443", "http://localhost:3000", "app://local", "null"];
        let allowed = allowed(&listed, true).unwrap();
        let contains = |text: &str| WebOrigin::parse(text).is_some_and(|o| allowed.contains(&o));
        for known in ["https://app.example", "http://localhost:3000", "app://local", "null"] {
            assert!(contains(known), "{known}");
        }
        for foreign in [
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil.example",
            "https://evil.example/https://app.example",
            "http://localhost",
            "http://localhost:30000",
            "https://*",
            "*",
            "",
        ] {
            assert!(!contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused_in_the_configuration() {
        for wrong in [
            "app.example",
            "https://app.example/",
            "https://app.example/page",
            "https://*.example",
            "https://user@app.example",
            "https://",
            "https://bücher.example",
            "https://app.example\n",
            "://app.example",
            "",
        ] {
            let refused = allowed(&[wrong], false).unwrap_err();
            assert_eq!(refused, BadOrigins::NotAnOrigin(wrong.into()), "{wrong:?}");
        }
    }

    #[test]
    fn g11_every_page_may_call_only_a_gateway_with_keys() {
        assert_eq!(
            allowed(&["https://app.example", "*"], true).unwrap_err(),
            BadOrigins::EveryPage
        );
        let any = allowed(&["*"], false).unwrap();
        assert!(any.contains(&WebOrigin::parse("https://any.example").unwrap()));
        assert!(any.contains(&WebOrigin::parse("null").unwrap()));
    }
}
