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
mod plain_view;
mod prompt;
mod questions;
mod terminal_view;
mod tools;
mod view;
mod who;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowline_client::surface::{CloseReason, Event, Refused, Surface, SurfaceConfig, ToolOutcome};
use bowline_sbp::approval::Approval;
use bowline_sbp::frame::{AttachedSurface, TurnStatus};
use bowline_sbp::id::{ApprovalId, SessionId};
use bowline_sbp::surface::SurfaceContext;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::command::Typed;
use self::editor::Edit;
use self::input::{Input, InputEvent};
use self::keyboard::UserInput;
use self::outstanding::Outstanding;
use self::questions::{InputLine, Question, Questions, Verdict};
use self::terminal_view::PromptText;
use self::tools::ChatTools;
use self::view::View;
use crate::api::Api;
use crate::cli::{ChatArgs, Device};
use crate::commands::sessions::entry_line;
use crate::commands::{export, fork};
use crate::failure::Failure;
use crate::terminal::one_line;

/// How many messages `/back` shows at once.
const PAGE: u32 = 10;
/// The capacity of the queue of tool results.
const CALLS: usize = 64;
/// How often the prompt of a chat that waits for an answer is redrawn.
const TICK: Duration = Duration::from_secs(1);
/// How long the token of `/export` is valid, in seconds.
const EXPORT_TTL: u32 = 24 * 3600;
/// The exit code of a chat that was left before its messages were answered.
const INTERRUPTED: u8 = 130;

pub(crate) async fn run(args: ChatArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway)?;
    let tools = ChatTools::here(args.no_tools, args.read_folder.as_ref(), args.allow_run)?;
    let (mut input, first) = Input::open(&args).await?;
    let session = session(&api, &args).await?;
    let surface = Surface::connect(SurfaceConfig {
        gateway: api.url.clone(),
        session_id: session.id,
        session_token: session.token,
        bearer: api.key().map(str::to_owned),
        surface: SurfaceContext {
            mcp_tools: tools.declared(),
            surface_id: who::this_terminal(),
            ..context(args.device)
        },
        join: true,
        take_over: args.take_over,
        backoff: Default::default(),
    })
    .map_err(Failure::new)?;
    let (tell, done) = mpsc::channel(CALLS);
    let mut view = View::new(args.json, input.keyboard().is_some());
    view.begin(session.id, session.title.as_deref(), input.is_by_person());
    let chat = Chat {
        tools,
        tell,
        done,
        questions: Questions::default(),
        always: Vec::new(),
        approvals: HashMap::new(),
        api,
        id: session.id,
        surface,
        view,
        model: args.model,
        leave_when_answered: input.is_none(),
        input,
        outstanding: Outstanding::default(),
        attached: Vec::new(),
        oldest_shown: None,
        interrupted: false,
    };
    chat.talk(first).await
}

/// The session of a chat.
struct ChatSession {
    id: SessionId,
    /// Empty if it is not known.
    token: String,
    title: Option<String>,
}

/// The session to continue, or a new one.
async fn session(api: &Api, args: &ChatArgs) -> Result<ChatSession, Failure> {
    let named = args.session.as_deref().or(args.last.then_some("last"));
    let Some(named) = named else {
        let made = api.call(Method::POST, "/v1/sessions", Some(json!({}))).await?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        let id = parse_id(&text("session_id"))?;
        return Ok(ChatSession { id, token: text("session_token"), title: None });
    };
    let token = args.token.clone().unwrap_or_default();
    // An id needs no look-up: with a session's token alone there is no list to look in.
    let id = match named.parse() {
        Ok(id) => id,
        Err(_) => parse_id(&api.session(named).await?)?,
    };
    Ok(ChatSession { id, token, title: title(api, id).await.ok().flatten() })
}

fn parse_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|error| {
        Failure::new(format!("`{text}` is not a session id: {error}"))
            .hint("`bowline sessions list` shows them")
    })
}

async fn title(api: &Api, id: SessionId) -> Result<Option<String>, Failure> {
    let session = api.get(&format!("/v1/sessions/{id}")).await?;
    Ok(session["title"].as_str().map(one_line))
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

/// A question that is answered with yes as long as the chat lasts.
#[derive(Debug, PartialEq)]
enum AlwaysRule {
    /// Every call of a tool of the gateway.
    Tool(String),
    /// The same call of a tool of this machine.
    Call { tool: String, input: Value },
}

struct Chat {
    tools: ChatTools,
    /// Queue of tool results: tasks of tool calls send, the main loop receives.
    tell: mpsc::Sender<(String, ToolOutcome)>,
    done: mpsc::Receiver<(String, ToolOutcome)>,
    questions: Questions,
    always: Vec<AlwaysRule>,
    /// The tools of open approvals.
    approvals: HashMap<ApprovalId, String>,
    api: Api,
    id: SessionId,
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
}

impl Chat {
    async fn talk(mut self, first: Option<String>) -> Result<ExitCode, Failure> {
        let mut signals = Signals::listen()?;
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
                input = self.input.next() => self.entered(input).await?,
                Some((call_id, outcome)) = self.done.recv() => {
                    // An error means that the surface is closed; its `Closed` event says why.
                    let _ = self.surface.answer(call_id, outcome).await;
                    ChatStep::Stay
                }
                _ = signals.interrupt.recv() => self.interrupt().await,
                _ = signals.terminate.recv() => ChatStep::Leave,
                _ = signals.hangup.recv() => ChatStep::Leave,
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
                ChatStep::Closed(reason) => break Some(reason),
            }
        };
        self.leave(end).await
    }

    async fn leave(self, end: Option<CloseReason>) -> Result<ExitCode, Failure> {
        let Self { surface, mut view, id, input, outstanding, leave_when_answered, .. } = self;
        let rest = if end.is_none() { surface.detach().await } else { Vec::new() };
        rest.iter().for_each(|event| view.show(event));
        view.close();
        // The terminal is back in its normal mode before anything else is printed.
        drop(input);
        if let Some(reason) = end {
            return Err(closed(&reason));
        }
        view.farewell(id);
        match outstanding.failure() {
            // Who leaves by a command or a key has seen what became of the messages.
            _ if !leave_when_answered => Ok(ExitCode::SUCCESS),
            Some(failure) => Err(Failure::new(one_line(failure))),
            None if !outstanding.is_empty() => Ok(ExitCode::from(INTERRUPTED)),
            None => Ok(ExitCode::SUCCESS),
        }
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
        let outcome = match typed {
            Typed::Nothing => Ok(()),
            Typed::Message(text) => return self.say(text).await.map(|()| ChatStep::Stay),
            Typed::Quit => return Ok(ChatStep::Leave),
            Typed::Help => self.told(command::HELP),
            Typed::Session => self.told(&format!("session {}", self.id)),
            Typed::Who => self.told(&who::list(&self.attached)),
            Typed::Stop => {
                self.stop().await;
                Ok(())
            }
            Typed::Model(name) => self.choose_model(name).await,
            Typed::Title(text) => self.name_it(text).await,
            Typed::Fork(label) => self.fork(label).await,
            Typed::Export(file) => self.export(file).await,
            Typed::Back => self.page_back().await,
            Typed::Unknown(name) => self.told(&format!("there is no {name}; try /help")),
        };
        // A command that fails does not end the chat.
        if let Err(failure) = outcome {
            self.view.note(&failure.to_string());
        }
        Ok(ChatStep::Stay)
    }

    fn told(&mut self, words: &str) -> Result<(), Failure> {
        self.view.note(words);
        Ok(())
    }

    async fn choose_model(&mut self, name: Option<String>) -> Result<(), Failure> {
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
        let title = title(&self.api, self.id).await?;
        self.told(
            &title.map_or("the session has no title".into(), |title| format!("title: {title}")),
        )
    }

    async fn fork(&mut self, label: Option<String>) -> Result<(), Failure> {
        let made = fork::fork(&self.api, &self.id.to_string(), label, None).await?;
        let new = made["fork_session_id"].as_str().unwrap_or("-");
        self.told(&format!("forked; talk to it with: bowline chat --session {new}"))
    }

    async fn export(&mut self, file: Option<String>) -> Result<(), Failure> {
        let file = file.map(PathBuf::from);
        let id = self.id.to_string();
        let made = export::export(&self.api, &id, EXPORT_TTL, None, file.as_deref()).await?;
        match file {
            Some(file) => self.told(&format!("exported to {}", file.display())),
            None => self.told(&format!(
                "anyone who has this token can import the session, once, within 24 hours:\n{}",
                made["roaming_token"].as_str().unwrap_or("-")
            )),
        }
    }

    /// The user answered a permission prompt.
    async fn answered(&mut self, question: Question, verdict: Verdict) {
        let yes = verdict != Verdict::No;
        match question {
            Question::Call { until, .. } if until.is_some_and(|until| Instant::now() > until) => {
                self.view.note("too late: the tool call has timed out");
            }
            Question::Call { call_id, tool, input, until } if yes => {
                if verdict == Verdict::Always {
                    self.always.push(AlwaysRule::Call { tool: tool.clone(), input: input.clone() });
                }
                self.start(call_id, tool, input, until);
            }
            Question::Call { call_id, .. } => {
                let no = Err("the user does not allow this".into());
                // An error means that the surface is closed; its `Closed` event says why.
                let _ = self.surface.answer(call_id, no).await;
            }
            Question::Approval(id) => {
                if verdict == Verdict::Always
                    && let Some(tool) = self.approvals.get(&id)
                {
                    self.always.push(AlwaysRule::Tool(tool.clone()));
                }
                self.decide(id, yes).await;
            }
            Question::Gone => {}
        }
    }

    async fn decide(&mut self, approval: ApprovalId, yes: bool) {
        if let Err(refused) = self.surface.decide(approval, yes).await {
            self.view.note(&refused.to_string());
        }
    }

    /// The agent calls a tool of this machine. Asks for permission first if the tool needs it;
    /// without a terminal such a call is denied.
    fn called(&mut self, call_id: String, tool: String, input: Value, timeout: Option<Duration>) {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let rule = AlwaysRule::Call { tool: tool.clone(), input: input.clone() };
        match self.tools.question(&tool, &input) {
            None => self.start(call_id, tool, input, until),
            Some(_) if self.always.contains(&rule) => self.start(call_id, tool, input, until),
            Some(_) if self.input.is_none() => {
                let (tell, nobody) = (self.tell.clone(), Err("no user is there to approve".into()));
                tokio::spawn(async move { tell.send((call_id, nobody)).await });
            }
            Some(words) => {
                self.questions.ask(Question::Call { call_id, tool, input, until }, &words);
            }
        }
    }

    /// Runs a tool call in its own task, so that the chat stays responsive.
    fn start(&mut self, call_id: String, tool: String, input: Value, until: Option<Instant>) {
        let (tools, tell) = (self.tools.clone(), self.tell.clone());
        tokio::spawn(async move {
            let outcome = tools.call(&tool, input, until).await;
            let _ = tell.send((call_id, outcome)).await;
        });
    }

    async fn approve(&mut self, approval: &Approval) {
        // Without input to answer it, the approval is left to other surfaces.
        if self.input.is_none() {
            return;
        }
        let (id, tool) = (approval.approval_id, &approval.tool_name);
        if self.always.contains(&AlwaysRule::Tool(tool.clone())) {
            let input = one_line(&approval.tool_input.to_string());
            self.view.note(&format!("{tool} {input}: allowed, as you said"));
            return self.decide(id, true).await;
        }
        self.approvals.insert(id, tool.clone());
        let words = format!("the agent wants to use {tool}: {}", approval.tool_input);
        self.questions.ask(Question::Approval(id), &words);
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
            Event::ApprovalAsked(approval) => self.approve(&approval).await,
            Event::Resolved { approval_id, .. } => {
                self.approvals.remove(&approval_id);
                if self.questions.answered_elsewhere(approval_id) {
                    self.view.note("that question is already decided or expired; press Enter");
                }
            }
            Event::Surfaces(list) => self.attached = list,
            Event::Closed(reason) => return ChatStep::Closed(reason),
            Event::Attached { reconnected: true, .. } => self.questions.reconnected(),
            Event::Attached { .. }
            | Event::Accepted { .. }
            | Event::Failed { .. }
            | Event::Turn(_)
            | Event::Chunk { .. }
            | Event::Complete(_)
            | Event::Asked { .. }
            | Event::Lost { .. } => {}
        }
        ChatStep::Stay
    }
}

/// Signals that end a chat, or stop its answer.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }
}

fn closed(reason: &CloseReason) -> Failure {
    let failure = Failure::new(reason);
    match reason {
        CloseReason::Forbidden => {
            failure.hint("give the session's token with --token, or an API key with --key")
        }
        CloseReason::NotFound => failure.hint("`bowline sessions list` lists your sessions"),
        CloseReason::Replaced => failure.hint("attach again with `bowline chat --last`"),
        CloseReason::HandedOff { session, .. } => {
            failure.hint(format!("continue with `bowline chat --session {session}`"))
        }
        CloseReason::Protocol { .. } => {
            failure.hint("gateway and chat may be of different versions")
        }
        CloseReason::Detached => failure,
    }
}
