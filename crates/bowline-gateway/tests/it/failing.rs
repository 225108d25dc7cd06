//! A store that fails when told to: what is on disk is real, the failures are not.

use std::sync::{Arc, Mutex};

use bowline_sbp::approval::{Approval, Step};
use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::id::{AgentId, ApprovalId, ExportId, MemoryId, Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::message::Message;
use bowline_sbp::roaming_token::SigningKey;
use bowline_store::sqlite::Sqlite;
use bowline_store::{
    Accepted, Advance, Attach, Attached, Created, Derived, Edge, Entry, Error, Export, Family,
    Finish, Forgotten, IdempotencyKey, InstanceId, KnownSurface, Memory, NewApproval,
    NewDeviceToken, NewExport, NewFork, NewHandoff, NewImport, NewMemory, NewSession, NewTurn,
    Packed, Page, Result, Session, Store, TokenHash, Unfinished,
};
use jiff::Timestamp;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct Failing {
    store: Arc<Sqlite>,
    next: Mutex<Option<(&'static str, Error)>>,
    /// The next call of that operation begins when this is told to.
    held: Mutex<Option<(&'static str, oneshot::Receiver<()>)>>,
    /// The operations that have ended.
    ended: Mutex<Vec<&'static str>>,
}

impl Failing {
    pub(crate) fn new(store: Arc<Sqlite>) -> Self {
        Self { store, next: Mutex::default(), held: Mutex::default(), ended: Mutex::default() }
    }

    /// The next call of that operation fails like this, once.
    pub(crate) fn fail(&self, operation: &'static str, error: Error) {
        *self.next.lock().unwrap() = Some((operation, error));
    }

    /// The next call of that operation waits until then.
    pub(crate) fn hold(&self, operation: &'static str) -> oneshot::Sender<()> {
        let (go, held) = oneshot::channel();
        *self.held.lock().unwrap() = Some((operation, held));
        go
    }

    /// How often that operation has ended.
    pub(crate) fn ended(&self, operation: &str) -> usize {
        self.ended.lock().unwrap().iter().filter(|name| **name == operation).count()
    }

    async fn until_let_go(&self, operation: &'static str) {
        let held = self.held.lock().unwrap().take_if(|(name, _)| *name == operation);
        if let Some((_, held)) = held {
            let _ = held.await;
        }
    }

    /// Whether the failure has happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }

    fn may(&self, operation: &'static str) -> Result<()> {
        let failure = self.next.lock().unwrap().take_if(|(name, _)| *name == operation);
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

macro_rules! fails_when_told {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        #[async_trait::async_trait]
        impl Store for Failing {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$out> {
                self.may(stringify!($name))?;
                self.until_let_go(stringify!($name)).await;
                let outcome = self.store.$name($($arg),*).await;
                self.ended.lock().unwrap().push(stringify!($name));
                outcome
            })*

            async fn failed(&self) -> Error {
                self.store.failed().await
            }
        }
    };
}

fails_when_told! {
    create_session(session: NewSession, key: Option<IdempotencyKey>) -> Created;
    session(id: SessionId) -> Option<Session>;
    session_by_token(token: TokenHash) -> Option<Session>;
    sessions(page: Page) -> Vec<Session>;
    change_status(id: SessionId, change: Change, at: Timestamp) -> Session;
    delete_session(id: SessionId) -> bool;
    history(id: SessionId) -> Vec<Message>;
    entries_after(id: SessionId, after: Seq, limit: u32) -> Vec<Entry>;
    entries_before(id: SessionId, before: Seq, limit: u32) -> Vec<Entry>;
    tethered_after(id: SessionId, after: Seq) -> Vec<LoggedTurn>;
    accept_turn(turn: NewTurn) -> Accepted;
    start_turn(turn: TurnId, owner: InstanceId) -> ();
    advance_turn(advance: Advance) -> Session;
    finish_turn(finish: Finish) -> Seq;
    abandon_turn(turn: TurnId, owner: InstanceId) -> ();
    take_over(owner: InstanceId, at: Timestamp) -> Vec<Unfinished>;
    attach(attach: Attach) -> Attached;
    surfaces(id: SessionId) -> Vec<KnownSurface>;
    forget_surface(id: SessionId, surface: String, at: Timestamp) -> Forgotten;
    add_device_token(token: NewDeviceToken) -> Forgotten;
    device_of(id: SessionId, token: TokenHash, at: Timestamp) -> Option<String>;
    ask_approval(approval: NewApproval) -> Approval;
    step_approval(id: SessionId, approval: ApprovalId, step: Step, at: Timestamp) -> Option<Approval>;
    approvals(id: SessionId) -> Vec<Approval>;
    awaits_approval(turn: TurnId, calls: Seq) -> bool;
    forget_approvals(before: Timestamp) -> u64;
    detach(id: SessionId, epoch: u64, at: Timestamp) -> bool;
    confirm(id: SessionId, epoch: u64, seq: Seq) -> ();
    pack(id: SessionId) -> Option<Packed>;
    keep_export(export: NewExport) -> Export;
    export(id: ExportId) -> Option<(Export, Option<Vec<u8>>)>;
    exports(session: SessionId) -> Vec<Export>;
    import(import: NewImport) -> Derived;
    made_under(key: IdempotencyKey) -> Option<(Derived, Edge)>;
    fork(fork: NewFork) -> Derived;
    hand_off(handoff: NewHandoff) -> Derived;
    family(session: String, most: u32) -> Family;
    remember(agent: AgentId, memories: Vec<NewMemory>, instead: bool) -> Vec<Memory>;
    memories(agent: AgentId, before: Option<MemoryId>, limit: u32) -> Vec<Memory>;
    recall(agent: AgentId, words: Vec<String>, limit: u32) -> Vec<Memory>;
    forget(agent: AgentId, memory: Option<MemoryId>) -> u64;
    secret(name: &'static str, fresh: [u8; 32]) -> [u8; 32];
    signing_keys(fresh: [u8; 32], at: Timestamp) -> Vec<SigningKey>;
    add_signing_key(fresh: [u8; 32], at: Timestamp) -> Vec<SigningKey>;
    forget_keys(before: Timestamp) -> u64;
    forget_bundles(before: Timestamp) -> u64;
    check() -> ();
}
