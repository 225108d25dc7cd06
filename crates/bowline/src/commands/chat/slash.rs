//! What the commands of a chat do. One that fails is reported, and the chat goes on.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::json;

use super::command::{self, Typed};
use super::{Chat, session, who};
use crate::commands::sessions::entry_line;
use crate::commands::{export, fork};
use crate::failure::Failure;

/// How many messages `/back` shows at once.
const PAGE: u32 = 10;
/// How long the token of `/export` is valid, in seconds.
const EXPORT_TTL: u32 = 24 * 3600;

impl Chat {
    /// Carries out a command other than `/quit`.
    pub(super) async fn carry_out(&mut self, typed: Typed) {
        let outcome = match typed {
            Typed::Nothing | Typed::Message(_) | Typed::Quit => Ok(()),
            Typed::Help => self.told(command::HELP),
            Typed::Session => self.told(&format!("session {}", self.id)),
            Typed::Who => self.told(&who::list(&self.attached)),
            Typed::Stop => {
                self.stop().await;
                Ok(())
            }
            Typed::Model(name) => self.choose_model(name),
            Typed::Title(text) => self.name_it(text).await,
            Typed::Fork(label) => self.fork(label).await,
            Typed::Export(file) => self.export(file).await,
            Typed::Back => self.page_back().await,
            Typed::Unknown(name) => self.told(&format!("there is no {name}; try /help")),
        };
        if let Err(failure) = outcome {
            self.view.note(&failure.to_string());
        }
    }

    fn told(&mut self, words: &str) -> Result<(), Failure> {
        self.view.note(words);
        Ok(())
    }

    fn choose_model(&mut self, name: Option<String>) -> Result<(), Failure> {
        if name.is_some() {
            self.model = name;
        }
        match &self.model {
            Some(model) => self.view.note(&format!("the next answers come from {model}")),
            None => self.view.note("the gateway's default model answers; /model NAME chooses one"),
        }
        Ok(())
    }

    async fn name_it(&mut self, text: Option<String>) -> Result<(), Failure> {
        if let Some(text) = text {
            let path = format!("/v1/sessions/{}", self.id);
            self.api.call(Method::PATCH, &path, Some(json!({ "title": text }))).await?;
        }
        let title = session::title(&self.api, self.id).await?;
        self.told(
            &title.map_or("the session has no title".into(), |title| format!("title: {title}")),
        )
    }

    async fn fork(&mut self, label: Option<String>) -> Result<(), Failure> {
        let made = fork::fork(&self.api, &self.id.to_string(), label, None).await?;
        let new = made["fork_session_id"].as_str().unwrap_or("-");
        self.told(&format!("forked; talk to it with: {}", self.command_for(new)))
    }

    async fn export(&mut self, file: Option<String>) -> Result<(), Failure> {
        let file = file.map(PathBuf::from);
        let id = self.id.to_string();
        let asked = json!({ "ttl_seconds": EXPORT_TTL });
        let made = export::export(&self.api, &id, asked, file.as_deref()).await?;
        match file {
            Some(file) => self.told(&format!("exported to {}", file.display())),
            None => self.told(&format!(
                "anyone who has this token can import the session, once, within 24 hours:\n{}",
                made["roaming_token"].as_str().unwrap_or("-")
            )),
        }
    }

    async fn page_back(&mut self) -> Result<(), Failure> {
        let before = self.oldest_shown.unwrap_or(u64::MAX);
        let path = format!("/v1/sessions/{}/messages?before={before}&limit={PAGE}", self.id);
        let log = self.api.get(&path).await?;
        let entries = log["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() {
            self.view.note("there are no earlier messages");
        }
        for entry in entries {
            self.view.earlier(entry, &entry_line(entry));
        }
        self.oldest_shown = entries.first().and_then(|entry| entry["seq"].as_u64()).or(Some(0));
        Ok(())
    }
}
