//! Import: a bundle becomes a session, and its token is consumed in the same transaction
//! (SBP-L3-05).

use bowline_sbp::api::{Imported, Provenance};
use bowline_sbp::bundle::{Contents, MemoryPart, MessagePart, OpenError};
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, ExportId, MemoryId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::title;
use bowline_store::{
    Derived, Edge, EdgeKind, Error, IdempotencyKey, Imported as ImportedEntry, MemoryKind,
    NewEntry, NewImport, NewMemory, NewSession, failpoint,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{Engine, Identity, internal};
use crate::auth::hash_token;
use crate::clock;

/// Where a bundle comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A bundle of this gateway, by its roaming token.
    Token(String),
    /// A bundle file, already opened and checked.
    Bundle(Box<Contents>, Cid),
}

/// A verified bundle, and its export if it was made by this gateway.
struct Checked {
    contents: Contents,
    cid: Cid,
    export_id: Option<ExportId>,
}

impl Engine {
    /// Creates a session from a bundle. `reuse`: the token is not consumed, and the session is a
    /// fork (SBP-L3-07).
    pub(crate) async fn import(
        &self,
        identity: &Identity,
        source: Source,
        agent: Option<AgentId>,
        reuse: bool,
        key: Option<IdempotencyKey>,
    ) -> Result<Imported, Failure> {
        // A retry gets the response of the first request, even if the token has expired meanwhile
        // (G3).
        if let Some(key) = &key
            && let Some((made, edge)) = self.store.made_under(key.clone()).await?
        {
            return self.imported(made, &edge, identity);
        }
        let consume = matches!(source, Source::Token(_)) && !reuse;
        let checked = self.check(source, consume && key.is_none()).await?;
        let Checked { contents, cid, export_id } = checked;
        let now = clock::now();
        let id = SessionId(Uuid::now_v7());
        let own = || contents.session.agent.parse().ok().filter(|own| self.knows(own));
        let agent_id = agent.or_else(own).unwrap_or_else(AgentId::fallback);
        if identity.check_agent(&agent_id).is_err() {
            let message = format!("that key is not for the agent {}", agent_id.as_str());
            return Err(Failure::new(Code::Forbidden, message));
        }
        let title = contents.label.as_deref().and_then(|label| title::given(label).ok().flatten());
        let about = About {
            label: contents.label,
            bundle_cid: cid,
            from_agent_id: contents.session.agent.clone(),
            to_agent_id: agent_id.clone(),
            origin_export_id: contents.export_id.clone(),
            exported_at: contents.exported_at,
            messages: contents.messages.len() as u64,
            memory_restored: contents.memory.is_some(),
        };
        // Decoding and hashing many images would block the async runtime.
        let messages = contents.messages;
        let entries = tokio::task::spawn_blocking(move || entries(messages, now)).await;
        let mut entries = entries.map_err(|_| internal())?;
        let told = told(&about, &contents.session.id, now);
        entries.push(ImportedEntry {
            entry: NewEntry {
                instruction: contents.session.instruction,
                ..NewEntry::message(Message::text("system", &told))
            },
            turn_id: TurnId(Uuid::now_v7()),
            at: now,
        });
        let kind = if reuse && export_id.is_some() { EdgeKind::Fork } else { EdgeKind::Import };
        let detail = serde_json::to_string(&about).map_err(|_| internal())?;
        let edge = Edge {
            kind,
            origin: contents.session.id.clone(),
            session: id.to_string(),
            export_id,
            detail: detail.clone(),
            at: now,
        };
        let import = NewImport {
            session: NewSession {
                id,
                token_hash: hash_token(&self.access.token_for(id)),
                listed: false,
                user: identity.user(),
                agent_id,
                metadata: contents.session.metadata.unwrap_or_else(|| "{}".into()),
                at: now,
            },
            // Bounded, because a bundle may claim any number.
            step_count: contents.session.step_count.min(u64::from(u32::MAX)),
            entries,
            carried: contents.carried,
            memories: memories(contents.memory.unwrap_or_default(), id),
            snapshot: SnapshotId(Uuid::now_v7()),
            origin: contents.session.id,
            export_id,
            consume,
            kind,
            detail,
            title,
            key,
        };
        let made = self.store.import(import).await?;
        failpoint::pass_as("import", "answer");
        metrics::counter!("bowline_imports_total").increment(1);
        self.imported(made, &edge, identity)
    }

    /// The response, made from stored data: with an idempotency key it may be repeated much later
    /// (G3).
    fn imported(
        &self,
        made: Derived,
        edge: &Edge,
        identity: &Identity,
    ) -> Result<Imported, Failure> {
        let Derived { session, point: (_, step_count), .. } = made;
        // The key belongs to another operation, or the session's contents were erased.
        let about: About = serde_json::from_str(&edge.detail).map_err(|_| Error::KeyReused)?;
        Ok(Imported {
            session_id: session.id,
            new_session_id: session.id,
            session_token: match identity.may_hand_out_tokens() {
                true => self.access.token_for(session.id),
                false => String::new(),
            },
            agent_id: session.agent_id,
            step_count,
            message_count: about.messages,
            messages_restored: about.messages,
            origin_export_id: about.origin_export_id.clone(),
            memory_restored: about.memory_restored,
            provenance: Provenance {
                origin_session_id: edge.origin.clone(),
                origin_agent_id: about.from_agent_id,
                origin_export_id: about.origin_export_id,
                bundle_cid: about.bundle_cid,
                exported_at: about.exported_at,
                imported_at: session.created_at,
            },
        })
    }

    /// Checks the token, then the bundle. Nothing in the bundle is used before its content id
    /// matches.
    async fn check(&self, source: Source, once: bool) -> Result<Checked, Failure> {
        let token = match source {
            Source::Bundle(contents, cid) => {
                return Ok(Checked { contents: *contents, cid, export_id: None });
            }
            Source::Token(token) => token,
        };
        let claims = self.keys.read(&token, clock::now())?;
        let (export, bundle) = self.store.export(claims.sub).await?.ok_or(Error::NoExport)?;
        if once && export.imported.is_some() {
            return Err(Error::Consumed.into());
        }
        let text = String::from_utf8(bundle.ok_or(Error::NoExport)?);
        let text = text.map_err(|_| OpenError::WrongCid)?;
        // Hashing a long history would block the async runtime.
        let opened = tokio::task::spawn_blocking(move || Contents::open(&text)).await;
        let (contents, cid) = opened.map_err(|_| internal())??;
        if export.cid != *cid.as_bytes() {
            return Err(OpenError::WrongCid.into());
        }
        Ok(Checked { contents, cid, export_id: Some(export.id) })
    }
}

/// The messages as log entries; a turn and the messages before it get the same turn id.
fn entries(messages: Vec<MessagePart>, now: Timestamp) -> Vec<ImportedEntry> {
    let mut turn_id = TurnId(Uuid::now_v7());
    let place = |part: MessagePart| {
        let ends = part.kind == EntryKind::Turn;
        let at = if part.created_at == Timestamp::UNIX_EPOCH { now } else { part.created_at };
        let entry = NewEntry {
            model: part.model,
            cost_usd: part.cost_usd,
            status: part.status,
            agent_id: part.agent_id,
            carried: part.carried,
            replaces: part.replaces,
            ..NewEntry::with_blobs(part.kind, part.message)
        };
        let entry = ImportedEntry { entry, turn_id, at };
        if ends {
            turn_id = TurnId(Uuid::now_v7());
        }
        entry
    };
    messages.into_iter().map(place).collect()
}

fn memories(parts: Vec<MemoryPart>, session: SessionId) -> Vec<NewMemory> {
    let known = |part: MemoryPart| {
        Some(NewMemory {
            id: MemoryId(Uuid::now_v7()),
            kind: MemoryKind::named(&part.kind)?,
            text: part.text,
            session_id: Some(session),
            at: part.created_at,
        })
    };
    parts.into_iter().filter_map(known).collect()
}

/// What lineage stores about an import; its response is made from this.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    label: Option<String>,
    bundle_cid: Cid,
    from_agent_id: String,
    to_agent_id: AgentId,
    origin_export_id: String,
    exported_at: Timestamp,
    messages: u64,
    memory_restored: bool,
}

/// The system message that tells the model about the import.
fn told(about: &About, origin: &str, now: Timestamp) -> String {
    let About { messages, from_agent_id, exported_at, bundle_cid, .. } = about;
    format!(
        "This session was imported. Its {messages} messages so far come from session {origin} \
         (agent {from_agent_id}), exported at {exported_at} and imported at {now}; the bundle's \
         content id is {bundle_cid}. Go on from there.",
    )
}
