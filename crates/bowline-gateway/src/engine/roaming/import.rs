//! Import: a bundle becomes a session, and its token is consumed in the same transaction
//! (SBP-L3-05).

use bowline_sbp::api::{Imported, Provenance, SignatureView};
use bowline_sbp::bundle::{
    BundleSignature, MemoryPart, MessagePart, OpenError, Opened, RequiredSignature,
};
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, ExportId, MemoryId, SessionId, SnapshotId, TurnId, UserId};
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
use super::ancestry::CameFromGateway;
use super::export::has_memory;
use super::remembered;
use crate::auth::hash_token;
use crate::clock;

/// Where a bundle comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A bundle of this gateway, by its roaming token.
    Token(String),
    /// A bundle file, already opened and checked against its content id.
    Bundle(Box<Opened>),
}

/// What is to be imported, and how.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) source: Source,
    /// The agent of the new session; that of the bundle if none.
    pub(crate) agent: Option<AgentId>,
    /// The token is not consumed, and the session is a fork (SBP-L3-07).
    pub(crate) reuse: bool,
    /// Write the bundle's memory into the agent's. Otherwise it travels with the session.
    pub(crate) with_memory: bool,
    pub(crate) signature: RequiredSignature,
    /// Whoever imports has shown nothing but the token.
    pub(crate) by_token_alone: bool,
}

/// How a bundle becomes a session.
#[derive(Debug)]
pub(super) struct ImportPlan {
    pub(super) id: SessionId,
    pub(super) user: UserId,
    pub(super) agent: AgentId,
    pub(super) with_memory: bool,
    pub(super) export_id: Option<ExportId>,
    pub(super) consume: bool,
    pub(super) kind: EdgeKind,
    pub(super) key: Option<IdempotencyKey>,
    /// The gateway that it comes from, if it is another one.
    pub(super) from: Option<CameFromGateway>,
}

/// A verified bundle, and its export if it was made by this gateway.
struct Checked {
    opened: Opened,
    export_id: Option<ExportId>,
}

impl Engine {
    /// Creates a session of the caller's own from a bundle.
    pub(crate) async fn import(
        &self,
        identity: &Identity,
        asked: Import,
        key: Option<IdempotencyKey>,
    ) -> Result<Imported, Failure> {
        // A retry gets the response of the first request, even if the token has expired meanwhile
        // (G3).
        if let Some(key) = &key
            && let Some((made, edge)) = self.store.made_under(key.clone()).await?
        {
            return self.imported(made, &edge, identity);
        }
        let Import { source, agent, reuse, with_memory, signature: required, .. } = asked;
        let consume = matches!(source, Source::Token(_)) && !reuse;
        let checked = self.check(source, identity, consume && key.is_none()).await?;
        let Checked { opened, export_id } = checked;
        opened.signature.check(required)?;
        let agent = self.agent_for(identity, agent, &opened)?;
        let kind = if reuse && export_id.is_some() { EdgeKind::Fork } else { EdgeKind::Import };
        let id = SessionId(Uuid::now_v7());
        let user = identity.user();
        let plan =
            ImportPlan { id, user, agent, with_memory, export_id, consume, kind, key, from: None };
        let (import, edge) = self.planned(opened, plan).await?;
        let made = self.store.import(import).await?;
        if consume {
            self.announcements_changed();
        }
        failpoint::pass_as("import", "answer");
        metrics::counter!("bowline_imports_total").increment(1);
        self.imported(made, &edge, identity)
    }

    /// The agent of an imported session: the one that was asked for, or that of the bundle if it is known here.
    pub(super) fn agent_for(
        &self,
        identity: &Identity,
        asked: Option<AgentId>,
        opened: &Opened,
    ) -> Result<AgentId, Failure> {
        let own = || opened.contents.session.agent.parse().ok().filter(|own| self.knows(own));
        let agent = asked.or_else(own).unwrap_or_else(AgentId::fallback);
        match identity.check_agent(&agent) {
            Ok(()) => Ok(agent),
            Err(_) => {
                let message = format!("that key is not for the agent {}", agent.as_str());
                Err(Failure::new(Code::Forbidden, message))
            }
        }
    }

    /// The session that a bundle becomes, and its lineage edge.
    pub(super) async fn planned(
        &self,
        opened: Opened,
        plan: ImportPlan,
    ) -> Result<(NewImport, Edge), Failure> {
        let Opened { mut contents, cid, signature } = opened;
        let ImportPlan { id, user, agent, with_memory, export_id, consume, kind, key, from } = plan;
        let now = clock::now();
        let title = contents.label.as_deref().and_then(|label| title::given(label).ok().flatten());
        let about = About {
            label: contents.label.take(),
            bundle_cid: cid,
            from_agent_id: contents.session.agent.clone(),
            to_agent_id: agent.clone(),
            origin_export_id: contents.export_id.clone(),
            exported_at: contents.exported_at,
            messages: contents.messages.len() as u64,
            memory_restored: with_memory && contents.memory.as_ref().is_some_and(|m| !m.is_empty()),
            memories: contents.memory.as_ref().map_or(0, |memory| memory.len() as u64),
            signed_by: signature.key().map(|key| key.to_string()),
            from_gateway: from,
        };
        let mut told = told(&about, &contents.session.id, now);
        let memories = match with_memory {
            true => memories(contents.memory.take().unwrap_or_default(), id),
            false => {
                told.extend(told_memory(&about, contents.memory.as_deref().unwrap_or_default()));
                Vec::new()
            }
        };
        // Decoding and hashing many images, or writing many memories, would block the async runtime.
        let made = tokio::task::spawn_blocking(move || {
            contents.carry_memory();
            (entries(std::mem::take(&mut contents.messages), now), contents)
        });
        let (mut entries, contents) = made.await.map_err(|_| internal())?;
        entries.push(ImportedEntry {
            entry: NewEntry {
                instruction: contents.session.instruction,
                ..NewEntry::message(Message::text("system", &told))
            },
            turn_id: TurnId(Uuid::now_v7()),
            at: now,
        });
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
                user,
                agent_id: agent,
                metadata: contents.session.metadata.unwrap_or_else(|| "{}".into()),
                at: now,
            },
            // Bounded, because a bundle may claim any number.
            step_count: contents.session.step_count.min(u64::from(u32::MAX)),
            entries,
            carried: contents.carried,
            memories,
            snapshot: SnapshotId(Uuid::now_v7()),
            origin: contents.session.id,
            export_id,
            consume,
            kind,
            detail,
            title,
            key,
            tether: None,
        };
        Ok((import, edge))
    }

    /// The response, made from stored data: with an idempotency key it may be repeated much later
    /// (G3).
    pub(super) fn imported(
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
            memory_count: about.memories,
            signature: self.signature_view(about.signed_by.as_deref()),
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

    /// The signature of an imported bundle: it was good.
    fn signature_view(&self, signed_by: Option<&str>) -> SignatureView {
        let key = signed_by.and_then(|key| key.parse().ok());
        let signature = key.map_or(BundleSignature::Unsigned, BundleSignature::Signed);
        SignatureView::new(signature, Some(&self.signer.public()))
    }

    /// Checks the token, then the bundle. Nothing in the bundle is used before its content id
    /// matches.
    async fn check(
        &self,
        source: Source,
        identity: &Identity,
        once: bool,
    ) -> Result<Checked, Failure> {
        let token = match source {
            Source::Bundle(opened) => return Ok(Checked { opened: *opened, export_id: None }),
            Source::Token(token) => token,
        };
        let claims = self.valid_token(&token, clock::now()).await?;
        let (export, bundle) = self.store.export(claims.sub).await?.ok_or(Error::NoExport)?;
        if once && export.imported.is_some() {
            return Err(Error::Consumed.into());
        }
        let bundle = bundle.ok_or(Error::NoExport)?;
        if export.with_memory {
            let session = self.store.session(export.session_id).await?.ok_or(Error::NoExport)?;
            if !identity.may_read_memory_of(&session) {
                return Err(has_memory());
            }
        }
        let text = String::from_utf8(bundle);
        let text = text.map_err(|_| OpenError::WrongCid)?;
        // Hashing a long history would block the async runtime.
        let opened = tokio::task::spawn_blocking(move || Opened::read(&text)).await;
        let opened = opened.map_err(|_| internal())??;
        if export.cid != *opened.cid.as_bytes() {
            return Err(OpenError::WrongCid.into());
        }
        Ok(Checked { opened, export_id: Some(export.id) })
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
    /// How many memories the bundle had.
    #[serde(default)]
    memories: u64,
    /// The key of the gateway that signed the bundle.
    #[serde(default)]
    signed_by: Option<String>,
    /// The gateway that it came from, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_gateway: Option<CameFromGateway>,
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

/// The bundle's memory as notes for the model: it is not in the agent's own.
fn told_memory(about: &About, memories: &[MemoryPart]) -> Option<String> {
    let heading = format!("\nWhat agent {} remembered there", about.from_agent_id);
    remembered::told(&heading, memories.iter().map(|memory| memory.text.as_str()))
}
