//! The tool `open_url`: opens a page in the user's browser. Only http and https, since other URL
//! schemes start other programs.

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};
use url::Url;

use super::{program, required};

/// The installed program that opens URLs.
pub(super) fn program() -> Option<&'static str> {
    ["xdg-open", "open", "termux-open-url"].into_iter().find(|name| program::is_here(name))
}

pub(super) async fn open(program: &str, input: &Value) -> ToolOutcome {
    let url = web_page(required(input, "url")?)?;
    program::hand_over(program, &[url.as_str()], None).await?;
    Ok(json!({ "opened": url.as_str() }))
}

fn web_page(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|_| "`url` is not an address".to_owned())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("only http and https addresses are opened".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_pages_are_opened_and_no_address_is_taken_for_an_option() {
        assert!(web_page("https://example.com/a b").is_ok());
        for other in ["file:///etc/passwd", "javascript:alert(1)", "--help", "", "ssh://x"] {
            assert!(web_page(other).is_err(), "{other}");
        }
    }
}
