//! The gateway, as the other commands see it: its HTTP interface, with readable failures.

use std::time::Duration;

use bowline_sbp::api::ErrorBody;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use url::Url;

use crate::cli::GatewayArgs;
use crate::failure::Failure;
use crate::{local, settings};

/// A gateway to talk to.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) url: Url,
    key: Option<String>,
    http: reqwest::Client,
}

impl Api {
    /// Finds the gateway: by flag, by the data folder, or where it usually is.
    pub(crate) fn new(args: &GatewayArgs) -> Result<Self, Failure> {
        let folder = settings::data_folder(args.data.as_deref());
        let announced = || local::running(&folder).and_then(|running| running.url.parse().ok());
        let usual = || Url::parse("http://127.0.0.1:8080").expect("a literal URL parses");
        let url = args.url.clone().or_else(announced).unwrap_or_else(usual);
        // The folder's key is for the gateway of this machine, and for nobody else.
        let here = match url.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let key = args.key.clone().or_else(|| here.then(|| local::key(&folder)).flatten());
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(Failure::new)?;
        Ok(Self { url, key, http })
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Asks, and gives the JSON of a good answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let text = self.send(method, path, body.map(|body| body.to_string())).await?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a text as it is, and gives the text of a good answer. What only Python takes for JSON
    /// goes through.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<String, Failure> {
        let url = self.url.join(path).map_err(Failure::new)?;
        let mut request = self.http.request(method, url);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        if status.is_success() { Ok(text) } else { Err(refused(status, &text)) }
    }

    /// The session that was meant: `last` is the newest.
    pub(crate) async fn session(&self, named: &str) -> Result<String, Failure> {
        if named != "last" {
            return Ok(named.to_owned());
        }
        let newest = self.get("/v1/sessions?limit=1").await?;
        let id = newest["sessions"][0]["session_id"].as_str().map(str::to_owned);
        id.ok_or_else(|| {
            Failure::new("there are no sessions").hint("start one with `bowline chat`")
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let why = if error.is_timeout() { "it does not answer" } else { "nothing answers there" };
        Failure::new(format!("no gateway at {}: {why}", self.url))
            .hint("start one with `bowline up`, or name another with --url")
    }
}

fn refused(status: StatusCode, text: &str) -> Failure {
    let Ok(body) = serde_json::from_str::<ErrorBody>(text) else {
        return Failure::new(format!("the gateway answered {status}"));
    };
    let failure = Failure::new(body.error.message);
    let again = "ask the sender to export again";
    match body.error.code.as_str() {
        "SBP_TOKEN_CONSUMED" => return failure.hint(format!("{again}, or import with --fork")),
        "SBP_TOKEN_EXPIRED" | "SBP_TOKEN_INTEGRITY" => return failure.hint(again),
        "SBP_TOKEN_INVALID" => {
            return failure.hint("a token opens a bundle on the gateway that made it: check --url");
        }
        _ => {}
    }
    match (status, body.error.detail) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            failure.hint("give an API key with --key or BOWLINE_API_KEY")
        }
        (StatusCode::NOT_FOUND, _) => failure.hint("`bowline sessions list` shows what is there"),
        (_, Some(detail)) => failure.hint(detail),
        (_, None) => failure,
    }
}
