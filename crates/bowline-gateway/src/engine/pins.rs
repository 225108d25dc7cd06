//! Pinned definitions of MCP servers' tools.
//!
//! A server can change what it says of a tool after people came to trust it. So the first definition of each
//! tool is stored, and a tool with another one asks, until somebody accepts it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_sbp::approval::DefinitionChange;
use bowline_store::{Result, Store, ToolPin};

use crate::clock;
use crate::mcp::Offered;

/// The definitions that count, by the name that models use; none before they were read.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Option<HashMap<String, String>>>);

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
            let before = self.known().as_ref().and_then(|known| known.get(&tool).cloned());
            match before {
                Some(before) if before == now => {}
                Some(before) => {
                    changes.insert(tool, DefinitionChange { before, now });
                }
                None => new.push(ToolPin { tool, definition: now }),
            }
        }
        self.pin(store, new).await?;
        Ok(changes)
    }

    /// Accepts the definitions that these tools have now.
    pub(crate) async fn accept(&self, store: &dyn Store, tools: &[Offered]) -> Result<()> {
        let pin = |offered: &Offered| ToolPin {
            tool: offered.name().to_owned(),
            definition: offered.pinned(),
        };
        self.read(store).await?;
        self.pin(store, tools.iter().map(pin).collect()).await
    }

    async fn read(&self, store: &dyn Store) -> Result<()> {
        if self.known().is_none() {
            let read = store.tool_pins().await?;
            let read = read.into_iter().map(|pin| (pin.tool, pin.definition));
            self.known().get_or_insert_with(|| read.collect());
        }
        Ok(())
    }

    async fn pin(&self, store: &dyn Store, pins: Vec<ToolPin>) -> Result<()> {
        if pins.is_empty() {
            return Ok(());
        }
        store.pin_tools(pins.clone(), clock::now()).await?;
        let mut known = self.known();
        let known = known.get_or_insert_default();
        known.extend(pins.into_iter().map(|pin| (pin.tool, pin.definition)));
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Option<HashMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
