//! Sessions that another replica owns, and sessions of this one that others use.
//!
//! The task behind a session's slot is either its actor or, if another live replica owns the session,
//! a [`proxy`]: it has the same channels, so handles, surfaces and HTTP do not know which it is. At the
//! owner, [`serving`] puts what a proxy sends into the actor's inbox, and sends replies, states
//! and text back. Only the actor's machine decides; nothing here does.
//!
//! Here is what they share: the inbox of this replica, and the table of who gets which message. Queues
//! are bounded, and what does not fit is dropped as if the bus had lost it: links send again.
//!
//! Lock order: the table's lock is held alone, for a few instructions, never across an `await`.

mod beat;
mod look;
mod membership;
mod proxy;
mod retried;
mod serving;
mod wire;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bowline_bus::{Bus, BusError, Inbox, Lane};
use bowline_sbp::session::{LinkSender, Pace, ReplicaId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::serving::Serving;
use self::wire::{Beat, CallerLost, LinkId, Message, Seen, TextPiece, ToEdge, ToOwner};
use super::registry::LiveSessions;

/// Messages that wait for one link; more are dropped.
const WAITING: usize = 1024;
/// After which what is not acknowledged is sent again, if acknowledgements do not take longer.
const PACE: Pace = Pace { first: Duration::from_millis(400), longest: Duration::from_secs(5) };
/// Whoever is heard again after so long a silence was cut off.
const CUT_OFF: Duration = Duration::from_secs(3);
/// How soon what arrived is acknowledged, if nothing is sent anyway.
const ACKNOWLEDGE: Duration = Duration::from_millis(50);
/// After which an edge that says nothing is taken for gone.
const SILENCE: Duration = Duration::from_secs(10);
/// How long ended links are remembered. Longer than a bus keeps messages: a late one must not begin
/// such a link anew, or its commands would be taken twice.
const REMEMBERED: Duration = Duration::from_secs(120);

/// What arrives for a link.
#[derive(Debug)]
enum Incoming {
    ToOwner(Box<ToOwner>),
    ToEdge(Box<ToEdge>),
    Text(Box<TextPiece>),
    /// The replica at the other end was declared dead.
    Dead,
}

#[derive(Debug)]
pub(super) struct Remote {
    bus: Arc<dyn Bus>,
    routes: Mutex<Routes>,
    /// Another replica was seen.
    has_peers: AtomicBool,
}

#[derive(Debug, Default)]
struct Routes {
    /// Links of this replica's proxies, and links that it serves.
    links: HashMap<LinkId, Route>,
    /// Served links that have ended, oldest first.
    ended: VecDeque<(Instant, LinkId)>,
    has_ended: HashSet<LinkId>,
    /// When a beat of each replica came last.
    heard: HashMap<ReplicaId, Instant>,
    looks: HashMap<Uuid, mpsc::Sender<(ReplicaId, Seen)>>,
}

#[derive(Debug)]
struct Route {
    /// The replica at the other end.
    peer: ReplicaId,
    incoming: mpsc::Sender<Incoming>,
    /// The proxy is here, and the owner there.
    is_proxy: bool,
    /// When the link was named in a beat last, or began.
    named: Instant,
}

impl Route {
    fn new(peer: ReplicaId, is_proxy: bool) -> (Self, mpsc::Receiver<Incoming>) {
        let (incoming, received) = mpsc::channel(WAITING);
        (Self { peer, incoming, is_proxy, named: Instant::now() }, received)
    }
}

impl Remote {
    pub(super) fn new(bus: Arc<dyn Bus>) -> Self {
        Self { bus, routes: Mutex::default(), has_peers: AtomicBool::new(false) }
    }

    pub(super) async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        self.bus.open(me).await
    }

    /// Sends a message. One that cannot be sent is as good as lost.
    async fn send(&self, from: ReplicaId, to: ReplicaId, lane: Lane, message: &Message) {
        let messages = vec![message.to_bytes(from)];
        if let Err(error) = self.bus.send(to, lane, messages).await {
            tracing::debug!(%error, "a message to another replica was not sent");
        }
    }

    /// A new link to the replica `owner`, for a proxy.
    fn link_to(&self, owner: ReplicaId) -> (LinkId, mpsc::Receiver<Incoming>) {
        let link = LinkId(Uuid::new_v4());
        let (route, received) = Route::new(owner, true);
        self.routes().links.insert(link, route);
        (link, received)
    }

    /// When a beat of that replica came last.
    fn heard_of(&self, peer: ReplicaId) -> Option<Instant> {
        self.routes().heard.get(&peer).copied()
    }

    /// The proxy of a link has ended.
    fn forget(&self, link: LinkId) {
        self.routes().links.remove(&link);
    }

    /// A link that is served here has ended.
    fn served(&self, link: LinkId) {
        let (mut routes, now) = (self.routes(), Instant::now());
        routes.links.remove(&link);
        while let Some((_, old)) = routes.ended.pop_front_if(|(since, _)| now - *since > REMEMBERED)
        {
            routes.has_ended.remove(&old);
        }
        routes.ended.push_back((now, link));
        routes.has_ended.insert(link);
    }

    /// A replica was declared dead: links to it, and links of it, end.
    fn peer_dead(&self, peer: ReplicaId) {
        let routes = self.routes();
        for route in routes.links.values().filter(|route| route.peer == peer) {
            // A full queue is read soon, and its link notices the silence.
            let _ = route.incoming.try_send(Incoming::Dead);
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routes {
    /// Passes a message on to its link, if there is one.
    fn pass_on(&self, link: LinkId, incoming: Incoming) {
        if let Some(route) = self.links.get(&link) {
            let _ = route.incoming.try_send(incoming);
        }
    }
}

/// Reads the inbox of this replica until it ends or goes on under another id.
pub(super) async fn read(
    sessions: Weak<LiveSessions>,
    mut inbox: Box<dyn Inbox>,
    ended: CancellationToken,
) {
    loop {
        let messages = tokio::select! {
            messages = inbox.next() => messages,
            () = ended.cancelled() => return,
        };
        let Some(sessions) = sessions.upgrade() else { return };
        sessions.remote.has_peers.store(true, Ordering::Relaxed);
        for (_, bytes) in messages {
            if let Some((from, message)) = Message::read(&bytes) {
                sessions.arrived(from, message);
            }
        }
    }
}

impl LiveSessions {
    fn arrived(self: &Arc<Self>, from: ReplicaId, message: Message) {
        let mut routes = self.remote.routes();
        match message {
            Message::ToEdge(message) => routes.pass_on(message.link, Incoming::ToEdge(message)),
            Message::Text(piece) => routes.pass_on(piece.link, Incoming::Text(piece)),
            Message::ToOwner(message) if routes.links.contains_key(&message.link) => {
                routes.pass_on(message.link, Incoming::ToOwner(message));
            }
            Message::ToOwner(message) => {
                let link = message.link;
                if message.ends {
                    return;
                }
                if routes.has_ended.contains(&link) {
                    drop(routes);
                    tokio::spawn(serving::not_mine(Arc::clone(self), from, vec![link]));
                    return;
                }
                let (route, received) = Route::new(from, false);
                routes.links.insert(link, route);
                drop(routes);
                tokio::spawn(Serving::run(Arc::clone(self), from, message, received));
            }
            Message::Beat(beat) => {
                let Beat { links, served } = routes.heard(from, beat, Instant::now());
                drop(routes);
                if !links.is_empty() {
                    tokio::spawn(serving::not_mine(Arc::clone(self), from, links));
                }
                if !served.is_empty() {
                    let (sessions, gone) = (Arc::clone(self), Message::Gone(served));
                    tokio::spawn(async move {
                        let me = sessions.me();
                        sessions.remote.send(me, from, Lane::Control, &gone).await;
                    });
                }
            }
            Message::Gone(links) => routes.gone(from, &links),
            Message::Seen(seen) => {
                if let Some(looking) = routes.looks.get(&seen.id) {
                    let _ = looking.try_send((from, seen));
                }
            }
            Message::CallerLost(lost) => {
                drop(routes);
                let CallerLost { request, session, turn, made } = lost;
                self.retries.lost_elsewhere(request, (session, turn), made);
            }
            Message::Look(look) => {
                drop(routes);
                tokio::spawn(look::answer(Arc::clone(self), from, look));
            }
        }
    }
}

/// The sending end of a new link.
fn sender<T: Clone>() -> LinkSender<T> {
    LinkSender::new(PACE, getrandom::u32().unwrap_or_default())
}

/// Resolves at `when`; never if there is none.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
