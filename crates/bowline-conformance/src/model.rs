//! The suite's own model: an OpenAI-compatible server that says what a check wants.
//!
//! The server under test uses it as its upstream. A check makes a [`Script`] and puts its prompt
//! into a message; the model finds the script by its number, wherever the server has put the
//! message. What the server sends is recorded, so that checks can look at what is forwarded.

mod act;
mod asked;
mod http;
mod reply;
mod script;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use act::Act;
pub(crate) use asked::Asked;
pub(crate) use script::Script;
use script::Shared;

/// A running model.
#[derive(Debug)]
pub struct Model {
    url: String,
    scripts: Scripts,
    server: JoinHandle<()>,
}

/// The scripts by their numbers.
type Scripts = Arc<Mutex<HashMap<String, Arc<Shared>>>>;

impl Model {
    /// Starts at this address. `url` is how the server under test reaches it, if that is another address, with or
    /// without its `/v1`.
    pub async fn start(listen: SocketAddr, url: Option<&str>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let url =
            url.map_or(own, |url| url.trim_end_matches('/').trim_end_matches("/v1").to_owned());
        let url = format!("{url}/v1");
        let scripts = Scripts::default();
        let server = tokio::spawn(http::serve(listener, Arc::clone(&scripts)));
        Ok(Self { url, scripts, server })
    }

    /// What the server under test has to use as the base URL of its upstream.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn script(&self, rounds: Vec<Vec<Act>>) -> Script {
        let script = Script::new(rounds);
        locked(&self.scripts).insert(script.nonce().to_owned(), script.shared());
        script
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn locked(
    scripts: &Mutex<HashMap<String, Arc<Shared>>>,
) -> MutexGuard<'_, HashMap<String, Arc<Shared>>> {
    scripts.lock().unwrap_or_else(PoisonError::into_inner)
}
