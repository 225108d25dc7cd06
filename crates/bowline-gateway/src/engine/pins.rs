//! Pinned definitions of MCP servers' tools.
//!
//! A server can change what it says of a tool after people came to trust it. So the first definition of each
//! tool is stored, and a tool with another one asks, until somebody accepts it.
//!
//! The store decides which definition was first, because a server may say different things to different
//! replicas. What it said is kept in memory until the store's revision changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_sbp::approval::DefinitionChange;
use bowline_store::{Result, Store, ToolPin};

use crate::clock;
use crate::mcp::Offered;

#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The definitions that count, by the name that models use; none before they were read.
    pins: Option<HashMap<String, String>>,
    /// How often they were forgotten.
    forgotten: u64,
}

impl Pins {
    /// Which of these tools have changed. New ones are pinned.
    pub(super) async fn changes(
        &self,
        store: &dyn Store,
        tools: &[Offered],
    ) -> Result<HashMap<String, DefinitionChange>> {
        if tools.is_empty() {
            return Ok(HashMap::new());
        }
        self.read(store).await?;
        let (mut changes, mut new) = (HashMap::new(), Vec::new());
        for offered in tools {
            let (tool, now) = (offered.name().to_owned(), offered.pinned());
            match self.of(&tool) {
                Some(before) if before == now => {}
                Some(before) => {
                    changes.insert(tool, DefinitionChange { before, now });
                }
                None => new.push(ToolPin { tool, definition: now }),
            }
        }
        if new.is_empty() {
            return Ok(changes);
        }
        let count = store.pin_new_tools(new.clone(), clock::now()).await?;
        for (ToolPin { tool, definition: now }, first) in std::iter::zip(new, &count) {
            if first.definition != now {
                let before = first.definition.clone();
                changes.insert(tool, DefinitionChange { before, now });
            }
        }
        self.note(count);
        Ok(changes)
    }

    /// Accepts the definitions that these tools have now.
    pub(crate) async fn accept(&self, store: &dyn Store, tools: &[Offered]) -> Result<()> {
        let pin = |offered: &Offered| ToolPin {
            tool: offered.name().to_owned(),
            definition: offered.pinned(),
        };
        let pins: Vec<_> = tools.iter().map(pin).collect();
        if !pins.is_empty() {
            store.pin_tools(pins.clone(), clock::now()).await?;
            self.note(pins);
        }
        Ok(())
    }

    /// Forgets what was read: another replica may have accepted something else.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.pins = None;
        known.forgotten += 1;
    }

    async fn read(&self, store: &dyn Store) -> Result<()> {
        loop {
            let before = match &*self.known() {
                Known { pins: Some(_), .. } => return Ok(()),
                Known { forgotten, .. } => *forgotten,
            };
            let read = store.tool_pins().await?;
            let mut known = self.known();
            // What was forgotten meanwhile may be what was read.
            if known.forgotten == before {
                let read = read.into_iter().map(|pin| (pin.tool, pin.definition));
                known.pins.get_or_insert_with(|| read.collect());
                return Ok(());
            }
        }
    }

    fn of(&self, tool: &str) -> Option<String> {
        self.known().pins.as_ref()?.get(tool).cloned()
    }

    /// Notes what counts now, if the others are known.
    fn note(&self, pins: Vec<ToolPin>) {
        if let Some(known) = &mut self.known().pins {
            known.extend(pins.into_iter().map(|pin| (pin.tool, pin.definition)));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
