//! `bowline chat`: the terminal as a surface of a session.
//!
//! On a terminal: a prompt below, answers above ([`terminal_view`], [`keyboard`]). In a pipe: plain
//! text or JSON ([`plain_view`]); what is piped in is one message, or with --lines one a line.
//! Leaving, by `/quit`, Ctrl-D or a lost network, never stops the agent; Ctrl-C stops the running
//! answer, and leaves if it is pressed again.

mod command;
mod editor;
mod history;
mod input;
mod json;
mod keyboard;
mod outstanding;
mod permission;
mod plain_view;
mod prompt;
mod questions;
mod session;
mod slash;
mod terminal_view;
mod tools;
mod view;
mod who;

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use bowline_client::surface::{CloseReason, Event, Refused, Surface, SurfaceConfig, ToolOutcome};
use bowline_sbp::frame::{AttachedSurface, TurnStatus};
use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use tokio::sync::mpsc;

use self::command::Typed;
use self::editor::Edit;
use self::input::{Input, InputEvent};
use self::keyboard::UserInput;
use self::outstanding::Outstanding;
use self::permission::AllowedCall;
use self::questions::{InputLine, Questions};
use self::terminal_view::PromptText;
use self::tools::ChatTools;
use self::view::View;
use crate::api::Api;
use crate::cli::chat::{ChatArgs, Device};
use crate::failure::{Failure, FailureKind};
use crate::signals::{STOPPED_AT_ONCE, StopSignal, StopSignals};
use crate::terminal::one_line;
use crate::via::WayState;

/// The capacity of the queue of tool results.
const CALLS: usize = 64;
/// How often the prompt of a chat that waits for an answer is redrawn.
const TICK: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: ChatArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let tools = ChatTools::here(args.no_tools, args.read_folder.as_ref(), args.allow_run)?;
    let first = input::given(&args).await?;
    let session = session::open(&api, &args).await?;
    let mut config = SurfaceConfig::new(api.url.clone(), session.id, session.token);
    config.roaming_token = session.roaming_token;
    config.socket = api.via().map(|via| via.socket().to_owned());
    config.bearer = api.key().map(str::to_owned);
    config.surface = SurfaceContext {
        mcp_tools: tools.declared(),
        surface_id: who::this_terminal(),
        ..context(args.device)
    };
    config.join = true;
    config.take_over = args.take_over;
    // With one message and nothing to read, nobody can say yes.
    config.approves = first.is_none();
    let surface = Surface::connect(config).map_err(Failure::new)?;
    let (tell, done) = mpsc::channel(CALLS);
    let signals = StopSignals::install()?;
    let mut input = if first.is_some() { Input::None } else { Input::open(&args)? };
    let mut view = View::new(args.json, input.keyboard().is_some());
    view.begin(session.id, session.title.as_deref(), input.is_by_person());
    let chat = Chat {
        tools,
        tell,
        done,
        questions: Questions::default(),
        always: Vec::new(),
        api,
        id: session.id,
        goes_on: None,
        surface,
        view,
        model: args.model,
        flags: args.gateway.flags(),
        leave_when_answered: input.is_none(),
        input,
        outstanding: Outstanding::default(),
        attached: Vec::new(),
        oldest_shown: None,
        interrupted: false,
    };
    chat.talk(first, signals).await
}

/// The next change of the way through a relay; never, if there is none.
async fn way_state(api: &Api) -> WayState {
    match api.via() {
        Some(via) => via.next().await,
        None => std::future::pending().await,
    }
}

/// The device type and UI capabilities that the chat declares.
fn context(device: Device) -> SurfaceContext {
    let (device_type, capabilities): (&str, &[&str]) = match device {
        // A terminal shows no images, but their alt text and URL are useful. Without the capability
        // the gateway would describe images in words, and answers would not be streamed unchanged.
        Device::Desktop => ("desktop", &["markdown", "tables", "images", "streaming"]),
        Device::Browser => ("browser", &["markdown", "tables", "images", "streaming"]),
        Device::Phone => ("mobile", &["markdown", "streaming"]),
        Device::Watch => ("iot", &["text"]),
        Device::Voice => ("voice", &["audio", "streaming"]),
    };
    SurfaceContext {
        device_type: device_type.into(),
        ui_capabilities: capabilities.iter().map(|c| c.to_string()).collect(),
        ..SurfaceContext::default()
    }
}

struct Chat {
    tools: ChatTools,
    /// Queue of tool results: tasks of tool calls send, the main loop receives.
    tell: mpsc::Sender<(String, ToolOutcome)>,
    done: mpsc::Receiver<(String, ToolOutcome)>,
    questions: Questions,
    always: Vec<AllowedCall>,
    api: Api,
    id: SessionId,
    /// How the gateway was named on the command line.
    flags: String,
    /// The session has moved: its gateway's URL, and its id there.
    goes_on: Option<(String, SessionId)>,
    surface: Surface,
    view: View,
    model: Option<String>,
    input: Input,
    outstanding: Outstanding,
    /// Who is attached, as the gateway said last.
    attached: Vec<AttachedSurface>,
    /// The `seq` of the oldest message that `/back` has shown.
    oldest_shown: Option<u64>,
    /// There is no more input: exit once every message is answered.
    leave_when_answered: bool,
    /// Ctrl-C was pressed, and no other key since.
    interrupted: bool,
}

/// What the main loop does after an event or a line of input.
enum ChatStep {
    Stay,
    Leave,
    Closed(CloseReason),
    /// The way through the relay is over.
    Lost(Failure),
}

impl Chat {
    async fn talk(
        mut self,
        first: Option<String>,
        mut signals: StopSignals,
    ) -> Result<ExitCode, Failure> {
        if let Some(text) = first {
            self.say(text).await?;
        }
        self.draw_prompt();
        let end = loop {
            let next = tokio::select! {
                event = self.surface.next() => match event {
                    Some(event) => self.happened(event).await,
                    None => ChatStep::Leave,
                },
                input = self.input.next() => self.entered(input?).await?,
                Some((call_id, outcome)) = self.done.recv() => {
                    // An error means that the surface is closed; its `Closed` event says why.
                    let _ = self.surface.answer(call_id, outcome).await;
                    ChatStep::Stay
                }
                signal = signals.next() => match signal {
                    StopSignal::Interrupt => self.interrupt().await,
                    StopSignal::Terminate => ChatStep::Leave,
                },
                state = way_state(&self.api) => match state {
                    WayState::Changed(words) => {
                        self.view.note(&words);
                        ChatStep::Stay
                    }
                    WayState::Closed(failure) => ChatStep::Lost(failure),
                },
                () = tokio::time::sleep(TICK), if !self.outstanding.is_empty() => ChatStep::Stay,
            };
            if let Some(question) = self.questions.next_words() {
                self.view.note(&question);
            }
            self.draw_prompt();
            match next {
                ChatStep::Stay if self.leave_when_answered && self.outstanding.is_empty() => {
                    break None;
                }
                ChatStep::Stay => {}
                ChatStep::Leave => break None,
                ChatStep::Closed(reason) => break Some(closed(&reason, &self.flags)),
                ChatStep::Lost(failure) => break Some(failure),
            }
        };
        self.leave(end).await
    }

    async fn leave(self, end: Option<Failure>) -> Result<ExitCode, Failure> {
        let command = match &self.goes_on {
            None => self.command_for(self.id),
            Some((url, id)) => format!("bowline chat --url {url} --session {id}"),
        };
        let Self { surface, mut view, input, outstanding, leave_when_answered, .. } = self;
        let rest = if end.is_none() { surface.detach().await } else { Vec::new() };
        rest.iter().for_each(|event| view.show(event));
        view.close();
        // The terminal is back in its normal mode before anything else is printed.
        drop(input);
        if let Some(failure) = end {
            return Err(failure);
        }
        view.farewell(&command);
        match outstanding.failure() {
            // Who leaves by a command or a key has seen what became of the messages.
            _ if !leave_when_answered => Ok(ExitCode::SUCCESS),
            Some(failure) => Err(Failure::new(one_line(failure))),
            None if !outstanding.is_empty() => Ok(ExitCode::from(STOPPED_AT_ONCE)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// The command that continues a session of this gateway.
    fn command_for(&self, session: impl Display) -> String {
        format!("bowline chat{} --session {session}", self.flags)
    }

    fn draw_prompt(&mut self) {
        let asking = self.questions.is_asking();
        if let Some(keyboard) = self.input.keyboard() {
            keyboard.ask(asking);
            let label = if asking { "yes/no/always> " } else { "> " };
            let (text, cursor) = (keyboard.editor().text().to_owned(), keyboard.editor().cursor());
            self.view.set_prompt(PromptText { label, text, cursor });
        }
    }

    async fn say(&mut self, text: String) -> Result<(), Failure> {
        let name = uuid::Uuid::now_v7().to_string();
        match self.surface.send(text.clone(), name.clone(), self.model.clone()).await {
            Ok(()) => {
                self.view.sent(&name, &text);
                self.outstanding.sent(name);
            }
            Err(refused @ (Refused::Full | Refused::TooLong)) if self.input.is_by_person() => {
                self.view.note(&refused.to_string());
            }
            Err(refused) => return Err(Failure::new(refused)),
        }
        Ok(())
    }

    async fn entered(&mut self, input: InputEvent) -> Result<ChatStep, Failure> {
        let edit = match input {
            InputEvent::Line(line) => return self.typed(line).await,
            InputEvent::End => {
                self.input = Input::None;
                self.leave_when_answered = true;
                return Ok(ChatStep::Stay);
            }
            InputEvent::User(UserInput::Gone) => return Ok(ChatStep::Leave),
            InputEvent::User(UserInput::Resized(size)) => {
                self.view.resize(size);
                return Ok(ChatStep::Stay);
            }
            InputEvent::User(UserInput::Edit(Edit::Interrupt)) => {
                return Ok(self.interrupt().await);
            }
            InputEvent::User(UserInput::Edit(edit)) => edit,
        };
        self.interrupted = false;
        match edit {
            Edit::Enter(line) => return self.typed(line).await,
            Edit::End => return Ok(ChatStep::Leave),
            Edit::Clear => self.view.clear(),
            Edit::Suspend => {
                if let Some(keyboard) = self.input.keyboard() {
                    keyboard.suspend();
                }
            }
            Edit::Draw | Edit::Interrupt => {}
        }
        Ok(ChatStep::Stay)
    }

    /// Ctrl-C: stops the running answer, or discards what is being written; pressed again, leaves.
    async fn interrupt(&mut self) -> ChatStep {
        if std::mem::replace(&mut self.interrupted, true) {
            return ChatStep::Leave;
        }
        if !self.outstanding.is_empty() || self.view.is_working() {
            self.stop().await;
            self.view.note("stopping the answer; Ctrl-C again leaves");
        } else if !self.input.keyboard().is_some_and(|keyboard| keyboard.clear()) {
            self.view.note("Ctrl-C again leaves; the agent continues");
        }
        ChatStep::Stay
    }

    async fn stop(&mut self) {
        if let Err(refused) = self.surface.cancel().await {
            self.view.note(&refused.to_string());
        }
    }

    async fn typed(&mut self, line: String) -> Result<ChatStep, Failure> {
        let typed = command::parse(&line);
        // Commands work while a question is asked, too.
        if matches!(typed, Typed::Nothing | Typed::Message(_)) {
            match self.questions.typed(&line, self.input.is_by_person()) {
                InputLine::Answer(question, verdict) => {
                    self.answered(question, verdict).await;
                    return Ok(ChatStep::Stay);
                }
                InputLine::Again => return Ok(ChatStep::Stay),
                InputLine::Message => {}
            }
        }
        match typed {
            Typed::Message(text) => self.say(text).await?,
            Typed::Quit => return Ok(ChatStep::Leave),
            typed => self.carry_out(typed).await,
        }
        Ok(ChatStep::Stay)
    }

    async fn happened(&mut self, event: Event) -> ChatStep {
        self.outstanding.happened(&event);
        let failed = match &event {
            Event::Failed { .. } => true,
            Event::Turn(turn) => turn.status == TurnStatus::Failed,
            _ => false,
        };
        // Without input the chat ends with the reason as its error.
        if !(failed && self.leave_when_answered) || self.view.is_json() {
            self.view.show(&event);
        }
        match event {
            Event::ToolCall { call_id, tool, input, timeout } => {
                self.called(call_id, tool, input, timeout);
            }
            Event::ApprovalAsked(approval) => self.approve(&approval),
            Event::Resolved { approval_id, .. }
                if self.questions.answered_elsewhere(approval_id) =>
            {
                self.view.note("that question is already decided or expired; press Enter");
            }
            Event::Surfaces(list) => self.attached = list,
            Event::Closed(reason) => return ChatStep::Closed(reason),
            Event::Arrived { session } => self.id = session,
            Event::Moved { session, url, .. } => self.goes_on = Some((url, session)),
            Event::Attached { reconnected: true, .. } => self.questions.reconnected(),
            // The others are only shown.
            _ => {}
        }
        ChatStep::Stay
    }
}

/// `flags`: how the gateway was named on the command line.
fn closed(reason: &CloseReason, flags: &str) -> Failure {
    let failure = Failure::new(reason);
    match reason {
        CloseReason::Forbidden => failure
            .hint("give the session's token with --token-file, or an API key with --key-file")
            .kind(FailureKind::Refused),
        CloseReason::NotFound => failure
            .hint(format!("`bowline sessions list{flags}` lists your sessions"))
            .kind(FailureKind::NotFound),
        CloseReason::Replaced => {
            failure.hint(format!("attach again with `bowline chat{flags} --last`"))
        }
        CloseReason::HandedOff { session, .. } => {
            failure.hint(format!("continue with `bowline chat{flags} --session {session}`"))
        }
        CloseReason::Moved { session, url, .. } => {
            failure.hint(format!("continue with `bowline chat --url {url} --session {session}`"))
        }
        CloseReason::Protocol { .. } => {
            failure.hint("gateway and chat may be of different versions")
        }
        _ => failure,
    }
}
