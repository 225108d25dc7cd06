//! Export: a session is packed into a bundle, and a roaming token opens it (SBP-L3-01).

use std::sync::Arc;

use bowline_sbp::api::{ExportList, ExportView, Exported, TokenView};
use bowline_sbp::budget::Spender;
use bowline_sbp::bundle::{Contents, MemoryPart, MessagePart, Sealed, SessionPart, SnapshotPart};
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::GatewayId;
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_sbp::id::{ExportId, SessionId, UserId};
use bowline_sbp::tool_result::without_images;
use bowline_store::{Entry, Error, Export, Memory, MemoryOwner, NewExport, Packed, Session};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::super::{Engine, Identity, internal};
use crate::clock;

/// How many characters of the last request become `last_task`.
const TASK_CHARS: usize = 200;
/// The most memories an agent can have.
pub(super) const ALL_MEMORIES: u32 = 10_000;

impl Engine {
    /// Exports the session as it is now, for that gateway if one is named, and announced to trackers or not; `memory`: with its agent's memories, and those it carries. Without a label, the
    /// bundle is labelled with the title that a person gave the session.
    pub(crate) async fn export(
        &self,
        id: SessionId,
        ttl: SignedDuration,
        label: Option<String>,
        memory: bool,
        (peer, announce): (Option<GatewayId>, bool),
        spender: Spender,
    ) -> Result<Exported, Failure> {
        self.check_export(&spender).await?;
        let packed = self.store.pack(id).await?.ok_or(Error::NoSession)?;
        let title = packed.session.titles.given.as_deref().map(str::to_owned);
        let packed = self.with_blobs(packed).await?;
        let signer = Some(self.signer.identity());
        let export = self.bundle(packed, ttl, label.or(title), memory, signer).await?;
        if let (Some(federation), Some(peer), true) = (&self.federation, &peer, export.with_memory)
            && !federation.can_tell(&*self.store, peer).await?
        {
            return Err(unknown_gateway(peer));
        }
        let export = NewExport { spender: Some(spender), peer, announce, ..export };
        if export.bundle.len() > self.limits.import_body {
            return Err(too_large(self.limits.import_body));
        }
        let export = self.store.keep_export(export).await?;
        metrics::counter!("bowline_exports_total").increment(1);
        if announce {
            self.announcements_changed();
        }
        let roaming_token = self.roaming_token(&export)?;
        let cid = Cid::from_bytes(export.cid);
        Ok(Exported {
            export_id: export.id,
            roaming_token,
            session_id: id,
            expires_at: export.expires_at,
            bundle_cid: cid,
            bundle_hash: cid,
            message_count: export.message_count,
            label: export.label,
            with_memory: export.with_memory,
        })
    }

    /// An export may have become open, used or gone: trackers are told at once.
    pub(crate) fn announcements_changed(&self) {
        if let Some(federation) = &self.federation {
            federation.exports_changed();
        }
    }

    /// The packed session with its blobs in its messages. Images of tool results are left out: other
    /// gateways would send our form of an image to a model that refuses it.
    pub(super) async fn with_blobs(&self, mut packed: Packed) -> Result<Packed, Failure> {
        for entry in packed.entries.iter_mut().filter(|entry| entry.message.may_have_images()) {
            entry.message = without_images(&entry.message).into_owned();
        }
        self.inline(packed.session.id, &mut packed.entries).await?;
        Ok(packed)
    }

    /// The bundle of a packed session. That of a handoff is not kept, so it has references in place
    /// of blobs, and no signature.
    pub(super) async fn bundle(
        &self,
        packed: Packed,
        ttl: SignedDuration,
        label: Option<String>,
        memory: bool,
        signer: Option<Arc<GatewayIdentity>>,
    ) -> Result<NewExport, Failure> {
        let memories = match memory {
            true => {
                let Session { user, agent_id: agent, .. } = &packed.session;
                let of = MemoryOwner { user: *user, agent: agent.clone() };
                self.store.memories(of, None, ALL_MEMORIES).await?
            }
            false => Vec::new(),
        };
        // Tokens have a resolution of one second.
        let now = Timestamp::from_second(clock::now().as_second()).map_err(|_| internal())?;
        let (id, session_id) = (ExportId(Uuid::now_v7()), packed.session.id);
        let mut contents = contents(packed, memories, id, label.clone(), now);
        let message_count = contents.messages.len() as u64;
        // Hashing a long history would block the async runtime.
        let sealed = tokio::task::spawn_blocking(move || {
            if !memory {
                contents.drop_memory();
            }
            match signer {
                Some(signer) => contents.seal_signed(&signer),
                None => contents.seal(),
            }
        });
        let Sealed { cid, text, with_memory } = sealed.await.map_err(|_| internal())?;
        Ok(NewExport {
            id,
            session_id,
            cid: *cid.as_bytes(),
            label,
            message_count,
            with_memory,
            bundle: text.into_bytes(),
            at: now,
            expires_at: now.checked_add(ttl).map_err(|_| internal())?,
            spender: None,
            peer: None,
            announce: false,
        })
    }

    /// What a token refers to. Inspecting does not consume it (SBP-L3-09).
    pub(crate) async fn inspect(&self, token: &str) -> Result<TokenView, Failure> {
        let claims = self.own_token(token, clock::now()).await?;
        let (export, bundle) = self.store.export(claims.sub).await?.ok_or(Error::NoExport)?;
        let expired = claims.exp <= clock::now().as_second();
        let consumed = export.imported.is_some();
        Ok(TokenView {
            export_id: export.id,
            session_id: export.session_id,
            label: export.label,
            message_count: export.message_count,
            bundle_cid: Cid::from_bytes(export.cid),
            with_memory: export.with_memory,
            created_at: export.created_at,
            expires_at: export.expires_at,
            expired,
            consumed,
            valid: bundle.is_some() && !expired && !consumed,
        })
    }

    /// The bundle of one of the session's exports, as a file. This does not consume its token. One with
    /// memory only if the caller may read that now.
    pub(crate) async fn bundle_of(
        &self,
        identity: &Identity,
        session: &Session,
        export: ExportId,
    ) -> Result<Vec<u8>, Failure> {
        let (export, bundle) = match self.store.export(export).await? {
            Some((export, Some(bundle))) if export.session_id == session.id => (export, bundle),
            _ => {
                let message = "the session has no such bundle, or it expired";
                return Err(Failure::new(Code::NotFound, message));
            }
        };
        match export.with_memory && !identity.may_read_memory_of(session) {
            true => Err(has_memory()),
            false => Ok(bundle),
        }
    }

    /// The session's exports. Where another user imported one, only that it was imported is told.
    pub(crate) async fn exports(
        &self,
        session_id: SessionId,
        user: UserId,
    ) -> Result<ExportList, Failure> {
        let mut exports: Vec<_> =
            self.store.exports(session_id).await?.into_iter().map(view).collect();
        for export in &mut exports {
            if let Some(imported) = export.import_session_id
                && !self.is_of(imported, user).await?
            {
                export.import_session_id = None;
            }
        }
        Ok(ExportList { session_id, exports })
    }

    /// Whether a session is that user's. A deleted one is nobody's.
    pub(super) async fn is_of(&self, id: SessionId, user: UserId) -> Result<bool, Failure> {
        Ok(self.store.session(id).await?.is_some_and(|session| session.user == user))
    }
}

pub(super) fn view(export: Export) -> ExportView {
    ExportView {
        export_id: export.id,
        label: export.label,
        bundle_cid: Cid::from_bytes(export.cid),
        message_count: export.message_count,
        with_memory: export.with_memory,
        created_at: export.created_at,
        expires_at: export.expires_at,
        imported_at: export.imported.map(|(at, _)| at),
        import_session_id: export.imported.map(|(_, session)| session),
    }
}

/// A bundle whose memory its reader may not have. What they get without it would have another content
/// id than the export says, so they get nothing.
pub(super) fn has_memory() -> Failure {
    let why = "this bundle has the memory of its agent, which takes a key of the session's user \
               with the scope `read`; export the session without memory (`with_memory: false`, \
               `bowline export --without-memory`)";
    Failure::new(Code::Forbidden, why)
}

/// Whoever says first to be that gateway would get the memory.
fn unknown_gateway(peer: &GatewayId) -> Failure {
    let why = format!(
        "nothing is known here of a gateway {peer}, so memory cannot be exported for it: name it in \
         `federation.peers` (`bowline peers add {peer}=URL`), or export without memory (--without-memory)"
    );
    Failure::new(Code::Forbidden, why)
}

pub(in crate::engine) fn too_large(limit: usize) -> Failure {
    let why = format!(
        "the bundle is over {limit} bytes; raise limits.import_body here and where it goes"
    );
    Failure::new(Code::TooLarge, why)
}

fn contents(
    packed: Packed,
    memories: Vec<Memory>,
    export: ExportId,
    label: Option<String>,
    now: Timestamp,
) -> Contents {
    let Packed { session, entries, instruction, carried } = packed;
    let asked = entries.iter().rev().find(|entry| entry.message.role() == "user");
    let memory: Vec<_> = memories
        .into_iter()
        .rev()
        .map(|memory| MemoryPart {
            kind: memory.kind.as_str().to_owned(),
            text: memory.text,
            created_at: memory.created_at,
        })
        .collect();
    Contents {
        export_id: export.to_string(),
        exported_at: now,
        label,
        session: SessionPart {
            id: session.id.to_string(),
            agent: session.agent_id.as_str().to_owned(),
            status: session.status.as_str().to_owned(),
            last_task: asked
                .map(|entry| entry.message.content().chars().take(TASK_CHARS).collect()),
            created_at: session.created_at,
            step_count: session.step_count,
            metadata: Some(session.metadata).filter(|metadata| metadata != "{}"),
            instruction,
        },
        messages: entries.into_iter().map(message).collect(),
        memory: Some(memory).filter(|memory| !memory.is_empty()),
        snapshot: session.snapshot.map(|snapshot| SnapshotPart {
            id: snapshot.id.to_string(),
            kind: snapshot.kind.as_str().to_owned(),
            seq: snapshot.seq,
            at: snapshot.at,
        }),
        carried,
    }
}

fn message(entry: Entry) -> MessagePart {
    MessagePart {
        kind: entry.kind,
        message: entry.message,
        model: entry.model,
        cost_usd: entry.cost_usd,
        created_at: entry.created_at,
        status: entry.status,
        agent_id: entry.agent_id,
        replaces: entry.replaces,
        carried: entry.carried,
    }
}
