//! Clients that keep a gateway busy until they are told to stop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_checker::Outcome;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caller::{Caller, Way};
use crate::reach::{Reach, Session};
use crate::record::Record;
use crate::seed::Dice;
use crate::surface::{Broken, Seen, Surface, Taste};

/// Sessions that came to be under load.
pub(crate) type Opened = Arc<Mutex<Vec<Session>>>;

/// Callers and surfaces at work.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// A program that asks one thing after the other, each of up to `most` words.
    pub(crate) fn asks(&mut self, world: &Reach, session: &Session, dice: Dice, most: usize) {
        let task = asks(world.caller(), session.clone(), dice, most, self.stop.subscribe());
        self.tasks.push(tokio::spawn(task));
    }

    /// A program that opens a session, asks one thing more in it, and opens the next. Gives those
    /// that it was told of.
    pub(crate) fn opens(&mut self, world: &Reach, dice: Dice) -> Opened {
        let opened = Opened::default();
        let task = opens(world.caller(), dice, Arc::clone(&opened), self.stop.subscribe());
        self.tasks.push(tokio::spawn(task));
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
        };
        self.tasks.push(tokio::spawn(roaming.run(self.stop.subscribe())));
    }

    /// Lets everyone finish: each knows what became of everything it asked for.
    pub(crate) async fn finish(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn asks(
    caller: Caller,
    session: Session,
    mut dice: Dice,
    most: usize,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let way = if dice.chance(50) { Way::Streamed } else { Way::Whole };
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

struct Roaming {
    address: String,
    session: Session,
    record: Record,
    client: u32,
    dice: Dice,
    /// Said, and not known to be accepted: its ask, its key and its words.
    unsaid: Option<(bowline_checker::Ask, String, String)>,
}

impl Roaming {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() || self.unsaid.is_some() {
            if self.attached(&mut stop).await.is_err() {
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
            self.unsaid = Some((ask, format!("said-{}", ask.0), text));
        }
        if let Some((_, key, text)) = &self.unsaid {
            surface.say(key, text).await?;
        }
        let mut turns = 1 + self.dice.below(10);
        while turns > 0 {
            let seen = tokio::select! {
                seen = surface.next() => seen?,
                _ = stop.changed(), if !*stop.borrow() => Seen::Other,
            };
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
            if *stop.borrow() && self.unsaid.is_none() {
                break;
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
        if let Some((ask, ..)) = self.unsaid.take_if(|(_, ours, _)| ours == key) {
            self.record.with(|history| history.told(ask, outcome));
        }
    }
}
