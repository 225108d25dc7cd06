//! Keys of the terminal, read one by one into the line editor.
//!
//! While a permission prompt is shown, the message being written is set aside: what was typed for
//! the agent can never answer the prompt.

use std::io;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt as _;

use super::editor::{Edit, Editor};
use super::history::ChatHistory;
use crate::terminal::live::Size;
use crate::terminal::raw::RawMode;

/// What the user did.
#[derive(Debug)]
pub(super) enum UserInput {
    Edit(Edit),
    Resized(Size),
    /// The terminal is gone.
    Gone,
}

#[derive(Debug)]
pub(super) struct Keyboard {
    events: EventStream,
    raw: Option<RawMode>,
    editor: Editor,
    history: ChatHistory,
    /// A permission prompt is shown; the message that was being written.
    draft: Option<String>,
}

impl Keyboard {
    pub(super) fn open() -> io::Result<Self> {
        let (history, entries) = ChatHistory::open();
        Ok(Self {
            raw: Some(RawMode::enter()?),
            events: EventStream::new(),
            editor: Editor::new(entries),
            history,
            draft: None,
        })
    }

    pub(super) fn editor(&self) -> &Editor {
        &self.editor
    }

    /// The next thing that the user does. Cancel-safe.
    pub(super) async fn next(&mut self) -> UserInput {
        match self.events.next().await {
            Some(Ok(Event::Key(key))) => {
                let edit = self.editor.key(key);
                if let Edit::Enter(text) = &edit
                    && self.draft.is_none()
                    && self.editor.remember(text)
                {
                    self.history.append(text);
                }
                UserInput::Edit(edit)
            }
            Some(Ok(Event::Paste(text))) => {
                self.editor.paste(&text);
                UserInput::Edit(Edit::Draw)
            }
            Some(Ok(Event::Resize(columns, rows))) => {
                UserInput::Resized(Size::reported(columns, rows))
            }
            Some(Ok(_)) => UserInput::Edit(Edit::Draw),
            Some(Err(_)) | None => UserInput::Gone,
        }
    }

    /// Discards what was typed. Returns whether there was something.
    pub(super) fn clear(&mut self) -> bool {
        self.editor.clear()
    }

    /// Sets the message aside while `asking`, and brings it back afterwards.
    pub(super) fn ask(&mut self, asking: bool) {
        match (asking, self.draft.take()) {
            (true, None) => {
                self.draft = Some(self.editor.text().to_owned());
                self.editor.clear();
            }
            (true, draft) => self.draft = draft,
            (false, Some(draft)) => self.editor.set(draft),
            (false, None) => {}
        }
    }

    /// Stops the program, as Ctrl-Z does, until the shell continues it.
    pub(super) fn suspend(&mut self) {
        self.raw = None;
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        self.raw = RawMode::enter().ok();
    }
}
