//! A mock control plane: publishes its keys and signs tokens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use anyhow::{Context, Result};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::token::{PresenceGrant, SessionGrant, TokenSigner};
use serde_json::json;

use crate::load::since_epoch;

#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) url: String,
    signer: TokenSigner,
}

impl Issuer {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let signer = TokenSigner::from_seed(&url, "bench", &seed);
        let body = json!({ "keys": [signer.jwk()] }).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut socket = socket;
                // The request is ignored: every path returns the keys.
                let _ = socket.read(&mut [0; 4096]);
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        Ok(Self { url, signer })
    }

    pub(super) fn daemon(&self, daemon: &str) -> String {
        let now = since_epoch().as_secs();
        self.signer.presence(&PresenceGrant {
            daemon: DaemonId::new(daemon),
            owner: None,
            epoch: 0,
            resumable: true,
            region: None,
            concurrent_sessions: None,
            issued_at: now,
            expires_at: now + 3600,
        })
    }

    pub(super) fn client(&self, daemon: &str, session: SessionId) -> String {
        let now = since_epoch().as_secs();
        self.signer.session(&SessionGrant {
            daemon: DaemonId::new(daemon),
            user: format!("user-{session}"),
            session,
            epoch: 0,
            region: None,
            issued_at: now,
            expires_at: now + 300,
        })
    }
}

pub(super) fn session(id: u64) -> Result<SessionId> {
    SessionId::from_wire(id).context("a session id must not be zero")
}
