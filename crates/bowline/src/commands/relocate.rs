//! `bowline move`: a session goes to another gateway.
//!
//! Exported here, imported there; the gateways see to it that it is at one of them at every moment. What this
//! program knows of it may be too little: when something failed, it asks both where the session is.

use std::process::ExitCode;

use bowline_sbp::federation::Manifest;
use bowline_sbp::federation::wire::MANIFEST_PATH;
use reqwest::Method;
use serde_json::{Value, json};

use super::export::export;
use crate::api::{Api, IdempotentRequest, fresh_key};
use crate::cli::roaming::MoveArgs;
use crate::failure::{Failure, FailureKind};
use crate::secrets::TO_KEY;
use crate::shell::{quote, quote_path};
use crate::terminal::{note, one_line, printable, say};

/// How long the token is valid: a move that takes longer has failed.
const TTL_SECONDS: u32 = 3600;

/// A move, and both ends of it.
struct Move<'a> {
    args: &'a MoveArgs,
    here: Api,
    there: Api,
    from: Manifest,
    to: Manifest,
    /// The session's id here.
    session: String,
}

/// Where a session is.
enum Place {
    Here,
    /// At the other gateway, by this id.
    There(Value),
    /// Under another id that the other gateway does not know: it went elsewhere, or to another agent.
    Elsewhere(String),
}

pub(crate) async fn run(args: MoveArgs) -> Result<ExitCode, Failure> {
    let here = Api::new(&args.gateway).await?;
    let there = Api::at(&args.to, TO_KEY.secret(None, args.to_key_file.as_deref())?)?;
    let session = here.session(&args.session).await?;
    let (from, to) =
        (manifest(&here, "this gateway").await?, manifest(&there, "that gateway").await?);
    if from.gateway_id == to.gateway_id {
        let what = format!("{} is the gateway that the session is at", args.to);
        return Err(Failure::new(what).hint("name another with --to").kind(FailureKind::Usage));
    }
    let moving = Move { args: &args, here, there, from, to, session };
    match moving.place().await? {
        Place::Here => {}
        Place::There(session) => {
            note!("it has moved there before");
            return Ok(moving.done(&json!({ "session_id": session["session_id"] })));
        }
        Place::Elsewhere(id) => {
            let what = format!("the session goes on as {}, and not at {}", one_line(&id), args.to);
            return Err(Failure::new(what)
                .hint("`bowline lineage` shows where it went; move that one")
                .kind(FailureKind::Refused));
        }
    }
    match moving.carry_out().await {
        Ok(imported) => Ok(moving.done(&imported)),
        Err(failure) => moving.after(failure).await,
    }
}

async fn manifest(api: &Api, which: &str) -> Result<Manifest, Failure> {
    let alone = |why: String| {
        Failure::new(why)
            .hint("it has to run with --federation and --gateway-id; see docs/federation.md")
    };
    if api.status(MANIFEST_PATH).await? == 404 {
        return Err(alone(format!("{which} takes part in no federation")));
    }
    let text = api.send(Method::GET, MANIFEST_PATH, None).await?;
    Manifest::read(text.as_bytes()).map_err(|why| alone(format!("{which}: {why}")))
}

impl Move<'_> {
    async fn carry_out(&self) -> Result<Value, Failure> {
        let asked = json!({
            "ttl_seconds": TTL_SECONDS, "for_gateway": self.to.gateway_id,
            "with_memory": self.args.without_memory.then_some(false),
        });
        let exported = export(&self.here, &self.session, asked, None).await?;
        note!(
            "exported {} messages; {} fetches them …",
            exported["message_count"],
            self.to.gateway_id
        );
        let mut body = json!({ "roaming_token": exported["roaming_token"] });
        if let Some(agent) = &self.args.agent {
            body["target_agent_id"] = json!(agent);
        }
        let import = IdempotentRequest {
            path: "/v1/sbp/sessions/import",
            body: body.to_string(),
            key: fresh_key(),
            name: "the move",
            look: "the same command again says where the session is, or goes on".into(),
        };
        let imported = self.there.once(import).await?;
        serde_json::from_str(&imported)
            .map_err(|_| Failure::new("the other gateway's answer cannot be read"))
    }

    /// Where the session is now, as both gateways say.
    async fn place(&self) -> Result<Place, Failure> {
        let session = self.here.get(&format!("/v1/sessions/{}", self.session)).await?;
        let Some(next) = session["handed_off_to"].as_str() else { return Ok(Place::Here) };
        let path = format!("/v1/sessions/{next}");
        match self.there.status(&path).await? {
            200 => Ok(Place::There(self.there.get(&path).await?)),
            _ => Ok(Place::Elsewhere(next.to_owned())),
        }
    }

    /// Something failed: what is so nevertheless.
    async fn after(&self, failure: Failure) -> Result<ExitCode, Failure> {
        let failure = match self.place().await {
            Ok(Place::There(session)) => {
                note!("the answer was lost, but the session has moved");
                return Ok(self.done(&json!({ "session_id": session["session_id"] })));
            }
            Ok(Place::Here) => failure.hint(format!(
                "the session is still at {} and goes on there; the same command again is safe",
                self.from.gateway_id
            )),
            Ok(Place::Elsewhere(id)) => failure.hint(format!(
                "the session has left {}: it is {} at {}, if that is where it went",
                self.from.gateway_id,
                one_line(&id),
                self.to.gateway_id
            )),
            Err(_) => failure.hint(
                "it is not known where the session is, because a gateway does not answer; it is at one of them, \
                 and the same command again says at which",
            ),
        };
        Err(failure)
    }

    fn done(&self, imported: &Value) -> ExitCode {
        let id = imported["session_id"].as_str().unwrap_or_default();
        if self.args.json {
            let mut answer = imported.clone();
            answer["from"] =
                json!({ "gateway_id": self.from.gateway_id, "session_id": self.session });
            answer["to"] = json!({ "gateway_id": self.to.gateway_id, "url": self.args.to });
            say!("{answer}");
            return ExitCode::SUCCESS;
        }
        note!("the session is at {} now, as", printable(&self.to.gateway_name));
        say!("{}", one_line(id));
        let key = self.args.to_key_file.as_deref();
        let key = key.map(|file| format!(" --key-file {}", quote_path(file))).unwrap_or_default();
        let url = quote(self.args.to.as_str());
        note!("\nGo on there:\n  bowline chat --session {} --url {url}{key}", one_line(id));
        ExitCode::SUCCESS
    }
}
