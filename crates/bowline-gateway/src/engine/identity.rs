//! Who is asking: from what a request shows to a checked credential, and from that to a verdict.
//!
//! The rules are in [`bowline_sbp::access`]; here is only what it takes to ask them: the owner's keys,
//! users' keys, paired devices, tokens of sessions and devices, and whose a session is.

mod names;
mod user_keys;

use std::sync::Arc;

use bowline_net::{DeviceEntry, PeerName};
use bowline_sbp::access::{
    Action, Authorization, Credential, CredentialKind, OWNER, Relation, Scope, may,
};
use bowline_sbp::approval::Decider;
use bowline_sbp::id::{AgentId, SessionId, UserId};
use bowline_sbp::session::Author;
use bowline_store::{Session, User, UserKey};
use jiff::Timestamp;
use uuid::Uuid;

pub use self::names::BadScopes;
pub(crate) use self::names::{LONGEST_NAME, fits_in_name, scopes_for};
use self::user_keys::{KnownKey, is_user_key};
pub(crate) use self::user_keys::{NewKey, UserKeys};
use super::Engine;
use crate::auth::{self, Credentials, Denied, hash_token};
use crate::clock;
use crate::config::matches;

/// The name of the user who was there from the start.
const OWNER_NAME: &str = "owner";

/// Who is asking.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) credential: Credential,
    /// The user's key that was shown, if it was one, or the paired device's.
    key: Option<Arc<UserKey>>,
    /// The name of the key's user.
    name: Option<Arc<str>>,
    /// That key has budgets of its own, which a token would not have.
    has_budgets: bool,
    /// The address or device that the request came from.
    address: Option<PeerName>,
}

impl Identity {
    pub(crate) fn of(credential: Credential) -> Self {
        Self { credential, key: None, name: None, has_budgets: false, address: None }
    }

    /// A device that was just paired, as its own credential.
    pub(super) fn of_device_key(key: &UserKey) -> Self {
        let kind = CredentialKind::Key(key.id.clone());
        let credential = Credential { kind, user: key.user, scopes: key.scopes };
        let address = Some(PeerName::Device(key.id.as_str().into()));
        Self { address, ..Self::of(credential) }
    }

    pub(crate) fn of_session(session: &Session) -> Self {
        Self::of(Credential::of_session(session.id, session.user))
    }

    /// The same, as it came with that request.
    #[must_use]
    pub(crate) fn from(mut self, shown: &Credentials) -> Self {
        self.address = shown.from.clone();
        self
    }

    pub(crate) fn address(&self) -> Option<&PeerName> {
        self.address.as_ref()
    }

    pub(crate) fn user(&self) -> UserId {
        self.credential.user
    }

    /// Who speaks in a session, if it is not the session's user.
    pub(crate) fn author_in(&self, session_user: UserId) -> Option<Author> {
        (self.user() != session_user).then(|| self.author())
    }

    pub(crate) fn author(&self) -> Author {
        let name = self.name.as_deref().unwrap_or(OWNER_NAME).to_owned();
        Author { user: self.user(), name }
    }

    /// Who decides on a tool call, from that address or device.
    pub(crate) fn decider(&self, from: Option<&PeerName>) -> Decider {
        let credential = self.credential.kind.record();
        Decider { user: self.user(), credential, from: from.map(PeerName::to_string) }
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.credential.scopes.has(scope)
    }

    /// Whether its key is only for some agents or models.
    pub(crate) fn is_limited(&self) -> bool {
        self.key.as_deref().is_some_and(|key| !key.agents.is_empty() || !key.models.is_empty())
    }

    /// Whether its key has budgets of its own.
    pub(crate) fn has_budgets(&self) -> bool {
        self.has_budgets
    }

    /// Whether its key is only for some models.
    pub(crate) fn has_model_limits(&self) -> bool {
        self.key.as_deref().is_some_and(|key| !key.models.is_empty())
    }

    /// Until when it is valid.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.key.as_deref().and_then(|key| key.expires_at)
    }

    /// Whether it may be given tokens of sessions that are made from its own: a session's token makes
    /// others of its kind.
    pub(crate) fn may_hand_out_tokens(&self) -> bool {
        !self.is_of_user() || self.holds_all_of_a_token()
    }

    /// Whether it may be given the token of a session: who gets it may do no more by it.
    pub(crate) fn may_hold_token_of(&self, session: &Session) -> bool {
        self.user() == session.user && self.holds_all_of_a_token()
    }

    /// Whether it may do all that the token of a session of its own may.
    pub(crate) fn holds_all_of_a_token(&self) -> bool {
        let token = Credential::of_session(SessionId(Uuid::nil()), self.user()).scopes;
        let is_lasting = !self.is_limited() && !self.has_budgets && self.expires_at().is_none();
        self.credential.scopes.both(token) == token && is_lasting
    }

    /// Whether it stands for its user everywhere, and not for one session.
    pub(crate) fn is_of_user(&self) -> bool {
        self.credential.only().is_none()
    }

    /// Whether it may have what the session's agent remembers: as by reading it there (G20). Memory is
    /// the user's, not the session's, so a session's token may not.
    pub(crate) fn may_read_memory_of(&self, session: &Session) -> bool {
        self.user() == session.user
            && self.check(Action::ReadMemory).is_ok()
            && self.check_agent(&session.agent_id).is_ok()
    }

    /// Whether its key may be used for that agent.
    pub(crate) fn check_agent(&self, agent: &AgentId) -> Result<(), Denied> {
        fits(self.key.as_deref().map(|key| &key.agents), agent.as_str(), "agent")
    }

    /// Whether its key may be used for that model.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), Denied> {
        fits(self.key.as_deref().map(|key| &key.models), model, "model")
    }

    /// Whether it may do that at the gateway, or in a session of its user's own.
    pub(crate) fn check(&self, action: Action) -> Result<(), Denied> {
        match may(&self.credential, action, Relation::Own) {
            Authorization::Allowed => Ok(()),
            Authorization::NotFound | Authorization::Forbidden => Err(self.denied(action)),
        }
    }

    fn denied(&self, action: Action) -> Denied {
        match action.scopes().iter().find(|scope| !self.has(*scope)) {
            Some(scope) if self.is_of_user() => Denied::Scope(scope),
            _ => Denied::Wrong,
        }
    }
}

fn fits(patterns: Option<&Vec<String>>, name: &str, what: &'static str) -> Result<(), Denied> {
    let fits =
        |all: &Vec<String>| all.is_empty() || all.iter().any(|pattern| matches(pattern, name));
    if patterns.is_none_or(fits) { Ok(()) } else { Err(Denied::NotFor(what)) }
}

impl Engine {
    /// The user of that name, whatever its case; without a name, the owner.
    pub(crate) async fn user_named(
        &self,
        name: Option<&str>,
    ) -> Result<Option<User>, bowline_store::Error> {
        let users = self.store.users().await?;
        let is_it = |user: &User| match name {
            Some(name) => user.name.eq_ignore_ascii_case(name),
            None => user.id == OWNER,
        };
        Ok(users.into_iter().find(is_it))
    }

    /// The identity behind a key: the owner's, or a user's. `None`: it is no key.
    pub(crate) async fn by_key(&self, shown: &str, here: bool) -> Result<Option<Identity>, Denied> {
        if let Some(credential) = self.access.owners_key(shown, here) {
            return Ok(Some(Identity::of(credential)));
        }
        match self.users.check(&*self.store, shown).await? {
            Some(known) => self.known(known).await.map(Some),
            None => Ok(None),
        }
    }

    /// The paired device that a connection came from. Its local port is used by any program there, so
    /// what comes by it neither approves nor manages (G21).
    pub(crate) async fn by_paired_device(&self, device: &DeviceEntry) -> Result<Identity, Denied> {
        let known = self.users.check_device(&*self.store, &device.id).await?;
        let mut identity = self.known(known.ok_or(Denied::Unpaired)?).await?;
        if device.programs {
            identity.credential = identity.credential.of_a_program();
        }
        Ok(identity)
    }

    /// Who shows a key, or nothing from a paired device; `None`: neither.
    pub(crate) async fn by_key_or_device(
        &self,
        shown: &Credentials,
    ) -> Result<Option<Identity>, Denied> {
        match (&shown.bearer, &shown.device) {
            (Some(bearer), _) => self.by_key(bearer, shown.from_loopback).await,
            (None, Some(device)) => self.by_paired_device(device).await.map(Some),
            (None, None) => Ok(None),
        }
    }

    async fn known(&self, known: KnownKey) -> Result<Identity, Denied> {
        let KnownKey { credential, key, name } = known;
        let (key, name) = (Some(key), Some(name));
        let mut identity = Identity { key, name, ..Identity::of(credential) };
        identity.has_budgets = self.has_key_budgets(&identity.spender()).await?;
        Ok(identity)
    }

    /// Who asks for something at the gateway. A session's token is for its session: it does not count
    /// here.
    pub(crate) async fn identify(&self, shown: &Credentials) -> Result<Identity, Denied> {
        let identity = match self.by_key_or_device(shown).await? {
            Some(known) => known,
            // Who shows a key means to be somebody.
            None if shown.bearer.as_deref().is_some_and(is_user_key) => return Err(Denied::Wrong),
            // An SDK has to send some key: at a device's local port, as at an open gateway, any will do.
            None if let Some(device) = shown.at_a_local_port() => {
                self.by_paired_device(device).await?
            }
            None if self.access.is_open_to(shown)? => Identity::of(Credential::open()),
            None if shown.bearer.is_none() => return Err(Denied::Missing),
            None => return Err(Denied::Wrong),
        };
        self.count_request(shown, &identity).await?;
        Ok(identity.from(shown))
    }

    /// Who asks, if they may do that at the gateway.
    pub(crate) async fn allow(
        &self,
        shown: &Credentials,
        action: Action,
    ) -> Result<Identity, Denied> {
        let identity = self.identify(shown).await?;
        identity.check(action)?;
        Ok(identity)
    }

    /// A session, if it exists and they may do that in it. Who may not see it does not learn whether
    /// it exists (G20).
    pub(crate) async fn allow_in(
        &self,
        shown: &Credentials,
        id: SessionId,
        action: Action,
    ) -> Result<(Session, Identity), Denied> {
        let session = self.store.session(id).await?;
        let identity = match self.by_token(shown, session.as_ref(), id).await? {
            Some(identity) => {
                self.count_request(shown, &identity).await?;
                identity.from(shown)
            }
            None => self.identify(shown).await?,
        };
        self.check_in(session, id, identity, action).await
    }

    /// The same for somebody who was identified before.
    pub(crate) async fn check_in(
        &self,
        session: Option<Session>,
        id: SessionId,
        identity: Identity,
        action: Action,
    ) -> Result<(Session, Identity), Denied> {
        let relation = self.relation(session.as_ref(), id, &identity).await?;
        match (may(&identity.credential, action, relation), session) {
            (Authorization::Allowed, Some(session)) => {
                identity.check_agent(&session.agent_id)?;
                Ok((session, identity))
            }
            (Authorization::Forbidden, _) => Err(identity.denied(action)),
            (Authorization::Allowed | Authorization::NotFound, _) => Err(Denied::NoSession),
        }
    }

    /// What a session is to somebody. What is not there takes as long as what is another user's.
    pub(crate) async fn relation(
        &self,
        session: Option<&Session>,
        id: SessionId,
        identity: &Identity,
    ) -> Result<Relation, Denied> {
        let user = identity.user();
        if session.is_some_and(|session| session.user == user)
            && identity.credential.only().is_none_or(|only| only == id)
        {
            return Ok(Relation::Own);
        }
        let shared = self.store.shared_with(id, user).await?;
        Ok(shared.map_or(Relation::Foreign, Relation::SharedWith))
    }

    /// Who shows the token of a session. Nobody, if its user is disabled.
    pub(crate) async fn by_session_token(&self, session: &Session) -> Result<Identity, Denied> {
        match self.users.is_disabled(&*self.store, session.user).await? {
            true => Err(Denied::Wrong),
            false => Ok(Identity::of_session(session)),
        }
    }

    /// The token of this session or of one of its devices, if that is what was shown.
    async fn by_token(
        &self,
        shown: &Credentials,
        session: Option<&Session>,
        id: SessionId,
    ) -> Result<Option<Identity>, Denied> {
        let opens = |token: &String| session.filter(|session| self.access.opens(token, session));
        // A session token must be right even where none is needed: a wrong one was meant for another
        // session.
        if let Some(token) = &shown.session_token {
            if let Some(session) = opens(token) {
                return self.by_session_token(session).await.map(Some);
            }
            return self.by_device(token, session, id).await?.map(Some).ok_or(Denied::Wrong);
        }
        let Some(bearer) = &shown.bearer else { return Ok(None) };
        match opens(bearer) {
            Some(session) => self.by_session_token(session).await.map(Some),
            None => self.by_device(bearer, session, id).await,
        }
    }

    /// The device of this session that has that token.
    pub(crate) async fn by_device(
        &self,
        token: &str,
        session: Option<&Session>,
        id: SessionId,
    ) -> Result<Option<Identity>, Denied> {
        let Some(session) = session.filter(|_| auth::is_device_token(token)) else {
            return Ok(None);
        };
        let device = self.store.device_of(id, hash_token(token), clock::now()).await?;
        if device.is_none() {
            return Ok(None);
        }
        self.by_session_token(session).await?;
        Ok(Some(Identity::of(Credential::of_device(id, session.user))))
    }

    /// The session that a session's or a device's own token opens, and who shows it.
    pub(crate) async fn opened_by(
        &self,
        shown: &Credentials,
        token: &str,
    ) -> Result<Option<(Session, Identity)>, Denied> {
        let found = match auth::named_by_device(token) {
            Some(id) => {
                let session = self.store.session(id).await?;
                let identity = match self.by_device(token, session.as_ref(), id).await {
                    Err(Denied::Store(error)) => return Err(error.into()),
                    identity => identity.unwrap_or_default(),
                };
                session.zip(identity)
            }
            None => self.session_by_token(token).await?.map(|session| {
                let identity = Identity::of_session(&session);
                (session, identity)
            }),
        };
        if let Some((_, identity)) = &found {
            self.count_request(shown, identity).await?;
        }
        Ok(found.map(|(session, identity)| (session, identity.from(shown))))
    }

    /// Whether a key that was shown before still opens what it did.
    pub(crate) async fn is_valid(&self, credential: &Credential) -> bool {
        match &credential.kind {
            CredentialKind::Key(id) => self.users.is_valid(&*self.store, id).await,
            CredentialKind::Session(_) | CredentialKind::Device(_) => {
                let disabled = self.users.is_disabled(&*self.store, credential.user).await;
                !disabled.unwrap_or(false)
            }
            CredentialKind::Open | CredentialKind::Local | CredentialKind::Configured => true,
        }
    }
}
