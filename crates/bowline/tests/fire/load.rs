//! Clients that keep a gateway busy until they are told to stop.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_checker::{Ask, Outcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caller::{Caller, Way, patience};
use crate::cancels::cancels;
use crate::devices;
use crate::imports::imports;
use crate::reach::{Reach, Session};
use crate::record::Record;
use crate::seed::Dice;
use crate::surface::{Broken, Seen, Surface, Taste};

/// Sessions that came to be under load.
pub(crate) type Opened = Arc<Mutex<Vec<Session>>>;

/// Callers and surfaces at work.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    /// Each with what it is, for the message if it never ends.
    tasks: Vec<(&'static str, JoinHandle<()>)>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// A program that asks one thing after the other, each of up to `most` words; some of them at two
    /// places at once.
    pub(crate) fn asks(&mut self, world: &Reach, session: &Session, dice: Dice, most: usize) {
        let callers = (world.caller(), (0..3).map(|first| world.caller_at(first)).collect());
        let task = asks(callers, session.clone(), dice, most, self.stop.subscribe());
        self.tasks.push(("asks", tokio::spawn(task)));
    }

    /// Somebody who stops the agent of the session now and then.
    pub(crate) fn cancels(&mut self, world: &Reach, session: &Session, dice: Dice) {
        let task = cancels(world.clone(), session.clone(), dice, self.stop.subscribe());
        self.tasks.push(("cancels", tokio::spawn(task)));
    }

    /// Somebody who looks on beside the other surfaces of the session.
    pub(crate) fn joins(&mut self, world: &Reach, session: &Session, dice: Dice) {
        let task = joins(world.clone(), session.clone(), dice, self.stop.subscribe());
        self.tasks.push(("joins", tokio::spawn(task)));
    }

    /// A device with a tool, and an agent and an MCP host that call it.
    pub(crate) fn calls_tools(&mut self, world: &Reach, session: &Session, dice: &mut Dice) {
        let stop = || self.stop.subscribe();
        let (reach, session) = (world.clone(), session.clone());
        let device = devices::device(reach.clone(), session.clone(), dice.fork(), stop());
        let agent = devices::agent(world.caller(), session.clone(), stop());
        let host = devices::host(reach, session, dice.fork(), stop());
        self.tasks.push(("device", tokio::spawn(device)));
        self.tasks.push(("agent", tokio::spawn(agent)));
        self.tasks.push(("host", tokio::spawn(host)));
    }

    /// Sessions that are exported and imported, at all replicas at once. Gives those that were exported.
    pub(crate) fn imports(&mut self, world: &Reach, dice: Dice) -> Opened {
        let opened = Opened::default();
        let task = imports(world.clone(), dice, Arc::clone(&opened), self.stop.subscribe());
        self.tasks.push(("imports", tokio::spawn(task)));
        opened
    }

    /// A program that opens a session, asks one thing more in it, and opens the next. Gives those
    /// that it was told of.
    pub(crate) fn opens(&mut self, world: &Reach, dice: Dice) -> Opened {
        let opened = Opened::default();
        let task = opens(world.caller(), dice, Arc::clone(&opened), self.stop.subscribe());
        self.tasks.push(("opens", tokio::spawn(task)));
        opened
    }

    /// A person whose phone comes and goes, and who says something now and then.
    pub(crate) fn roams(&mut self, world: &Reach, session: &Session, dice: Dice) {
        let roaming = Roaming {
            address: world.address.clone(),
            session: session.clone(),
            record: world.record.clone(),
            client: u32::try_from(world.record.unique()).unwrap(),
            dice,
            unsaid: None,
            trail: Vec::new(),
        };
        let task = roaming.run(self.stop.subscribe());
        self.tasks.push(("roams", tokio::spawn(task)));
    }

    /// Lets everyone finish: each knows what became of everything it asked for.
    pub(crate) async fn finish(self) {
        self.stop.send_replace(true);
        // Longer than all waits of one round of any client together.
        let deadline = tokio::time::Instant::now() + 4 * patience();
        for (what, task) in self.tasks {
            let ended = tokio::time::timeout_at(deadline, task).await;
            ended.unwrap_or_else(|_| panic!("a client that {what} never ends")).unwrap();
        }
    }
}

/// The first caller asks what is asked once; one of the others what is asked twice.
async fn asks(
    (caller, others): (Caller, Vec<Caller>),
    session: Session,
    mut dice: Dice,
    most: usize,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let way = if dice.chance(50) { Way::Streamed } else { Way::Whole };
        if dice.chance(15) {
            let other = &others[dice.below(others.len())];
            let outcomes = other.ask_twice(&session.id, &dice.words(most), way).await;
            let turns = outcomes.map(|outcome| match outcome {
                Outcome::Answered { turn_id, .. } => turn_id,
                other => panic!("{other:?}"),
            });
            assert_eq!(turns[0], turns[1], "one key, two turns");
            continue;
        }
        let (ask, outcome) = caller.ask(&session.id, &dice.words(most), way).await;
        assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
        if dice.chance(10) {
            caller.clash(ask, &session.id).await;
        }
    }
}

async fn opens(caller: Caller, mut dice: Dice, opened: Opened, stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        // Of one word or of some: over before the gateway would have written it down, or not.
        if let Some(session) = caller.open(&dice.words(12)).await {
            opened.lock().unwrap().push(session.clone());
            let (_, outcome) = caller.ask(&session.id, &dice.words(5), Way::Whole).await;
            assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
        }
        tokio::time::sleep(Duration::from_millis(dice.below(20) as u64)).await;
    }
}

/// Joins, reads some turns, leaves in some way, and comes back.
async fn joins(reach: Reach, session: Session, mut dice: Dice, stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let ended = looks_on(&reach, &session, &mut dice, stop.clone()).await;
        if ended.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn looks_on(
    reach: &Reach,
    session: &Session,
    dice: &mut Dice,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Broken> {
    let taste = if dice.chance(60) { Taste::Chunks } else { Taste::Whole };
    let mut surface = Surface::join(&reach.address, session, taste, &reach.record).await?;
    for _ in 0..1 + dice.below(10) {
        tokio::select! {
            turn = surface.turn() => drop(turn?),
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    match dice.below(3) {
        0 => surface.detach().await,
        1 => surface.close().await,
        _ => drop(surface),
    }
    Ok(())
}

struct Roaming {
    address: String,
    session: Session,
    record: Record,
    client: u32,
    dice: Dice,
    /// Said, and not known to be accepted.
    unsaid: Option<Unsaid>,
    /// What happened since it was said, for the message if it is never accepted.
    trail: Vec<String>,
}

struct Unsaid {
    ask: Ask,
    key: String,
    text: String,
    /// When it was said first.
    since: Instant,
}

impl Roaming {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() || self.unsaid.is_some() {
            if let Err(broken) = self.attached(&mut stop).await {
                self.note(&broken);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// One attachment, from its beginning to an end of some sort.
    async fn attached(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), Broken> {
        let taste = if self.dice.chance(60) { Taste::Chunks } else { Taste::Whole };
        let mut surface =
            Surface::attach(&self.address, &self.session, taste, &self.record).await?;
        if self.unsaid.is_none() && !*stop.borrow() && self.dice.chance(50) {
            let text = format!("echo {} {}", self.record.unique(), self.dice.words(20));
            let ask = self.record.with(|h| h.asked(self.client, &self.session.id, &text));
            let (key, since) = (format!("said-{}", ask.0), Instant::now());
            self.unsaid = Some(Unsaid { ask, key, text, since });
        }
        if let Some(unsaid) = &self.unsaid {
            surface.say(&unsaid.key, &unsaid.text).await?;
            self.note(&format!("said at {:?}", surface.attachment));
        }
        if self.unsaid.is_none() && self.dice.chance(5) {
            self.record.with(|history| history.cancelling(&self.session.id));
            surface.cancel().await?;
        }
        let mut turns = 1 + self.dice.below(10);
        // Also if it was told to stop while it attached: nothing may come any more.
        while turns > 0 && (!*stop.borrow() || self.unsaid.is_some()) {
            // Pings keep the surface's own deadline from passing.
            let answered_by = self.unsaid.as_ref().map(|unsaid| unsaid.since + patience());
            let seen = tokio::select! {
                seen = surface.next() => seen?,
                _ = stop.changed(), if !*stop.borrow() => Seen::Other,
                () = until(answered_by) => self.never_answered(),
            };
            if !matches!(seen, Seen::Chunk { .. }) {
                self.note(&seen);
            }
            match seen {
                Seen::Turn { .. } => {
                    turns -= 1;
                    if self.dice.chance(40) {
                        surface.ack().await?;
                    }
                }
                Seen::Accepted { key, turn_id } => self.heard(&key, Outcome::Accepted { turn_id }),
                Seen::Failed { key, code } => panic!("{key} was refused: {code}"),
                _ => {}
            }
        }
        match self.dice.below(3) {
            0 => surface.detach().await,
            1 => surface.close().await,
            _ => drop(surface),
        }
        Ok(())
    }

    fn heard(&mut self, key: &str, outcome: Outcome) {
        if let Some(unsaid) = self.unsaid.take_if(|unsaid| unsaid.key == key) {
            self.trail.clear();
            self.record.with(|history| history.told(unsaid.ask, outcome));
        }
    }

    /// Of a message that is not accepted, for the words with which the test may end.
    fn note(&mut self, what: &impl std::fmt::Debug) {
        if let Some(unsaid) = &self.unsaid {
            self.trail.push(format!("{:?} {what:?}", unsaid.since.elapsed()));
        }
    }

    fn never_answered(&self) -> Seen {
        let said = self.unsaid.as_ref().map(|unsaid| (&unsaid.key, &unsaid.text));
        let trail = self.trail.join("\n");
        panic!("never accepted in session {}: {said:?}\n{trail}", self.session.id);
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
