//! The table: for each action the scope that it takes, and who beside the session's own user may do it.

use super::credential::{Credential, CredentialKind, Share};
use super::scope::{Scope, Scopes};

/// What a request or a frame does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    // At the gateway.
    /// Ask a model without a session; list models.
    UseModels,
    CreateSession,
    /// List, search and name sessions. What is found is the user's own and what is shared with them.
    ListSessions,
    ImportSession,
    ReadMemory,
    WriteMemory,
    /// Look at the gateway's MCP servers, use their prompts and resources.
    UseServers,
    /// Speak MCP. What is called is another action.
    SpeakMcp,
    /// Read metrics, rotate keys.
    Operate,
    /// Add and disable users, make and revoke credentials.
    ManageUsers,
    /// Read what one has used; with `admin` also what others have.
    ReadUsage,
    /// Read what was done at the gateway, and by whom.
    ReadAudit,

    // In a session.
    ReadSession,
    /// Take and cancel turns.
    Talk,
    /// Take part as a surface: it resumes the session, and what it confirms counts as delivered.
    Attach,
    /// Rename, end, suspend and resume.
    ChangeSession,
    DeleteSession,
    /// Make and revoke device tokens; forget devices.
    ManageDevices,
    /// Say yes or no to a tool call.
    Decide,
    /// Call a tool on a device of the session.
    CallDevice,
    /// Export, fork, hand off; download a bundle.
    TakeAway,
    /// Share it with others; rotate and revoke its token.
    ShareSession,
}

impl Action {
    pub const ALL: [Action; 22] = [
        Action::UseModels,
        Action::CreateSession,
        Action::ListSessions,
        Action::ImportSession,
        Action::ReadMemory,
        Action::WriteMemory,
        Action::UseServers,
        Action::SpeakMcp,
        Action::Operate,
        Action::ManageUsers,
        Action::ReadUsage,
        Action::ReadAudit,
        Action::ReadSession,
        Action::Talk,
        Action::Attach,
        Action::ChangeSession,
        Action::DeleteSession,
        Action::ManageDevices,
        Action::Decide,
        Action::CallDevice,
        Action::TakeAway,
        Action::ShareSession,
    ];

    /// The scopes that it takes, all of them; the tokens of a session with which it may be done; and how
    /// the session must be shared for it to be done by others.
    fn row(self) -> (&'static [Scope], Tokens, NeededShare) {
        use {NeededShare as With, Scope as S, Tokens as T};
        match self {
            Action::UseModels => (&[S::Turns], T::No, With::Nobody),
            Action::CreateSession => (&[S::Turns], T::No, With::Nobody),
            Action::ListSessions => (&[S::Read], T::No, With::Nobody),
            Action::ImportSession => (&[S::Turns], T::No, With::Nobody),
            Action::ReadMemory => (&[S::Read], T::No, With::Nobody),
            Action::WriteMemory => (&[S::Turns], T::No, With::Nobody),
            Action::UseServers => (&[S::Tools], T::No, With::Nobody),
            Action::SpeakMcp => (&[], T::Session, With::Nobody),
            Action::Operate => (&[S::Admin], T::No, With::Nobody),
            Action::ManageUsers => (&[S::Admin], T::No, With::Nobody),
            Action::ReadUsage => (&[S::Read], T::No, With::Nobody),
            Action::ReadAudit => (&[S::Admin], T::No, With::Nobody),

            Action::ReadSession => (&[S::Read], T::Device, With::AtLeast(Share::Read)),
            Action::Talk => (&[S::Turns], T::Device, With::AtLeast(Share::Talk)),
            Action::Attach => (&[S::Turns, S::Read], T::Device, With::AtLeast(Share::Talk)),
            Action::ChangeSession => (&[S::Turns], T::Session, With::Nobody),
            Action::DeleteSession => (&[S::Turns], T::Session, With::Nobody),
            // The token that is made reads, too.
            Action::ManageDevices => (&[S::Turns, S::Read], T::Session, With::Nobody),
            Action::Decide => (&[S::Approve], T::No, With::AtLeast(Share::Approve)),
            Action::CallDevice => (&[S::Tools], T::Session, With::Nobody),
            Action::TakeAway => (&[S::Export], T::Session, With::Nobody),
            Action::ShareSession => (&[S::Turns], T::No, With::Nobody),
        }
    }

    /// The scopes that it takes, all of them.
    pub fn scopes(self) -> Scopes {
        Scopes::of(self.row().0)
    }

    /// Whether it is done in a session.
    pub fn is_in_session(self) -> bool {
        matches!(
            self,
            Action::ReadSession
                | Action::Talk
                | Action::Attach
                | Action::ChangeSession
                | Action::DeleteSession
                | Action::ManageDevices
                | Action::Decide
                | Action::CallDevice
                | Action::TakeAway
                | Action::ShareSession
        )
    }
}

/// The tokens of a session with which an action may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tokens {
    No,
    Session,
    /// Also a device's own.
    Device,
}

/// With whom a session must be shared for an action by another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeededShare {
    Nobody,
    AtLeast(Share),
}

/// What a session is to the user of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Own,
    SharedWith(Share),
    /// Another user's, or not there at all.
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    Allowed,
    /// As if it were not there.
    NotFound,
    /// It is there, and this credential may not do that with it.
    Forbidden,
}

/// Whether a credential may do that. `relation`: what the session is to the credential's user; ignored
/// where there is none. The session of a token is the one that it is for: another one is foreign to it.
pub fn may(credential: &Credential, action: Action, relation: Relation) -> Authorization {
    let (scopes, tokens, shared) = action.row();
    let has_scope = scopes.iter().all(|scope| credential.scopes.has(*scope));
    let by_token = match credential.kind {
        CredentialKind::Session(_) => tokens >= Tokens::Session,
        CredentialKind::Device(_) => tokens >= Tokens::Device,
        CredentialKind::Open
        | CredentialKind::Local
        | CredentialKind::Configured
        | CredentialKind::Key(_) => true,
    };
    let allowed = |is_allowed: bool| {
        if is_allowed { Authorization::Allowed } else { Authorization::Forbidden }
    };
    if !action.is_in_session() {
        return allowed(has_scope && by_token);
    }
    match (relation, shared) {
        (Relation::Foreign, _) => Authorization::NotFound,
        (Relation::Own, _) => allowed(has_scope && by_token),
        // A token is the session's own.
        (Relation::SharedWith(_), _) if credential.only().is_some() => Authorization::NotFound,
        (Relation::SharedWith(_), NeededShare::Nobody) => Authorization::Forbidden,
        (Relation::SharedWith(share), NeededShare::AtLeast(least)) => {
            allowed(has_scope && share >= least)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CredentialId, OWNER};
    use super::*;
    use crate::id::{SessionId, UserId};
    use uuid::Uuid;

    const SESSION: SessionId = SessionId(Uuid::from_u128(7));
    const RELATIONS: [Relation; 5] = [
        Relation::Own,
        Relation::SharedWith(Share::Read),
        Relation::SharedWith(Share::Talk),
        Relation::SharedWith(Share::Approve),
        Relation::Foreign,
    ];

    fn key(scopes: &[Scope]) -> Credential {
        let kind = CredentialKind::Key(CredentialId::from_bytes([1; 8]));
        Credential { kind, user: UserId(Uuid::from_u128(1)), scopes: Scopes::of(scopes) }
    }

    #[test]
    fn g20_what_is_foreign_is_not_there_for_any_credential_and_action() {
        let all = [
            Credential::open(),
            Credential::local(),
            Credential::configured(),
            key(&Scope::ALL),
            key(&[]),
            Credential::of_session(SESSION, OWNER),
            Credential::of_device(SESSION, OWNER),
        ];
        for credential in &all {
            for action in Action::ALL.into_iter().filter(|action| action.is_in_session()) {
                let verdict = may(credential, action, Relation::Foreign);
                assert_eq!(verdict, Authorization::NotFound, "{credential:?} {action:?}");
            }
        }
    }

    #[test]
    fn g20_every_action_takes_its_scope_and_no_other() {
        for action in Action::ALL {
            let (scopes, ..) = action.row();
            assert_eq!(
                may(&key(scopes), action, Relation::Own),
                Authorization::Allowed,
                "{action:?}"
            );
            for scope in scopes {
                let others: Vec<_> = Scope::ALL.into_iter().filter(|o| o != scope).collect();
                let verdict = may(&key(&others), action, Relation::Own);
                assert_eq!(verdict, Authorization::Forbidden, "{action:?} without {scope}");
            }
        }
    }

    #[test]
    fn g20_a_share_gives_what_it_says_and_nothing_more() {
        let all = key(&Scope::ALL);
        for (action, expected) in [
            (Action::ReadSession, [true, true, true]),
            (Action::Talk, [false, true, true]),
            (Action::Attach, [false, true, true]),
            (Action::Decide, [false, false, true]),
            (Action::ChangeSession, [false; 3]),
            (Action::DeleteSession, [false; 3]),
            (Action::ManageDevices, [false; 3]),
            (Action::CallDevice, [false; 3]),
            (Action::TakeAway, [false; 3]),
            (Action::ShareSession, [false; 3]),
        ] {
            let given = Share::ALL.map(|share| {
                may(&all, action, Relation::SharedWith(share)) == Authorization::Allowed
            });
            assert_eq!(given, expected, "{action:?}");
            // Nobody who may not see a shared session is told so: it is shared.
            let read_only = may(&key(&[]), action, Relation::SharedWith(Share::Approve));
            assert_eq!(read_only, Authorization::Forbidden);
        }
    }

    #[test]
    fn g21_tokens_and_keys_without_the_scope_never_approve() {
        for credential in [
            Credential::of_session(SESSION, OWNER),
            Credential::of_device(SESSION, OWNER),
            Credential::open(),
            key(&[Scope::Turns, Scope::Read, Scope::Tools, Scope::Export, Scope::Admin]),
        ] {
            for relation in RELATIONS {
                assert_ne!(may(&credential, Action::Decide, relation), Authorization::Allowed);
            }
        }
        // A person at their own terminal may.
        assert_eq!(
            may(&Credential::local(), Action::Decide, Relation::Own),
            Authorization::Allowed
        );
        assert_eq!(
            may(&key(&[Scope::Approve]), Action::Decide, Relation::Own),
            Authorization::Allowed
        );
    }

    #[test]
    fn g20_tokens_reach_nothing_beside_their_session() {
        let session = Credential::of_session(SESSION, OWNER);
        let device = Credential::of_device(SESSION, OWNER);
        for action in Action::ALL.into_iter().filter(|action| !action.is_in_session()) {
            let speaks = action == Action::SpeakMcp;
            let expected = if speaks { Authorization::Allowed } else { Authorization::Forbidden };
            assert_eq!(may(&session, action, Relation::Own), expected, "{action:?}");
            assert_eq!(may(&device, action, Relation::Own), Authorization::Forbidden, "{action:?}");
        }
        for relation in RELATIONS.into_iter().filter(|relation| *relation != Relation::Own) {
            for action in Action::ALL.into_iter().filter(|action| action.is_in_session()) {
                assert_eq!(may(&session, action, relation), Authorization::NotFound, "{action:?}");
            }
        }
    }

    #[test]
    fn g20_an_open_gateway_is_not_managed_by_whoever_comes() {
        for action in [Action::Operate, Action::ManageUsers, Action::ReadAudit] {
            assert_eq!(may(&Credential::open(), action, Relation::Own), Authorization::Forbidden);
            assert_eq!(may(&Credential::local(), action, Relation::Own), Authorization::Allowed);
            assert_eq!(may(&key(&[Scope::Admin]), action, Relation::Own), Authorization::Allowed);
        }
    }
}
