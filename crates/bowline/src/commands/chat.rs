//! `bowline chat`: the terminal as a surface of a session.
//!
//! Plain line-by-line output, so that it works over ssh, in a pipe and with a screen reader.
//! Disconnecting, by `/quit`, Ctrl-C or a lost network, never stops the agent.

mod questions;
mod screen;
mod tools;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowline_client::surface::{CloseReason, Event, Refused, Surface, SurfaceConfig, ToolOutcome};
use bowline_sbp::approval::Approval;
use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc;

use self::questions::{InputLine, Question, Questions};
use self::screen::Screen;
use self::tools::ChatTools;
use crate::api::Api;
use crate::cli::{ChatArgs, Device};
use crate::commands::sessions::entry_line;
use crate::failure::Failure;

/// How many messages `/back` shows at once.
const PAGE: u32 = 10;

pub(crate) async fn run(args: ChatArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway)?;
    let tools = ChatTools::here(args.no_tools, args.read_folder.as_ref(), args.allow_run)?;
    let (id, token) = session(&api, &args).await?;
    let surface = Surface::connect(SurfaceConfig {
        gateway: api.url.clone(),
        session_id: id,
        session_token: token,
        bearer: api.key().map(str::to_owned),
        surface: SurfaceContext { mcp_tools: tools.declared(), ..context(args.device) },
        join: false,
        take_over: false,
        backoff: Default::default(),
    })
    .map_err(Failure::new)?;
    let (tell, done) = mpsc::channel(CALLS);
    let chat = Chat {
        tools,
        tell,
        done,
        questions: Questions::default(),
        api,
        id,
        surface,
        screen: Screen::new(args.json),
        model: args.model,
        input: None,
        waiting: HashSet::new(),
        accepted: HashSet::new(),
        oldest_shown: None,
        leave_when_answered: false,
    };
    chat.talk(args.message).await
}

/// The id of the session to continue, or of a new one, and its token if known.
async fn session(api: &Api, args: &ChatArgs) -> Result<(SessionId, String), Failure> {
    let token = args.token.clone().unwrap_or_default();
    let id = match (&args.session, args.last) {
        (Some(id), _) => id.clone(),
        (None, true) => {
            let newest = api.get("/v1/sessions?limit=1").await?;
            let id = newest["sessions"][0]["session_id"].as_str().map(str::to_owned);
            id.ok_or_else(|| {
                Failure::new("there is no session yet").hint("leave --last out to start one")
            })?
        }
        (None, false) => {
            let made = api.call(Method::POST, "/v1/sessions", Some(json!({}))).await?;
            let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
            return Ok((parse_id(&text("session_id"))?, text("session_token")));
        }
    };
    Ok((parse_id(&id)?, token))
}

fn parse_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|error| {
        Failure::new(format!("`{text}` is not a session id: {error}"))
            .hint("`bowline sessions list` shows them")
    })
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

/// The capacity of the queue of tool results.
const CALLS: usize = 64;

struct Chat {
    tools: ChatTools,
    /// Queue of tool results: tasks of tool calls send, the main loop receives.
    tell: mpsc::Sender<(String, ToolOutcome)>,
    done: mpsc::Receiver<(String, ToolOutcome)>,
    questions: Questions,
    api: Api,
    id: SessionId,
    surface: Surface,
    screen: Screen,
    model: Option<String>,
    input: Option<Lines<BufReader<Stdin>>>,
    /// Messages not yet accepted, by `client_turn_id`.
    waiting: HashSet<String>,
    /// Accepted turns without an answer yet.
    accepted: HashSet<bowline_sbp::id::TurnId>,
    /// The `seq` of the oldest message that `/back` has shown.
    oldest_shown: Option<u64>,
    /// stdin has ended: exit once every message is answered.
    leave_when_answered: bool,
}

/// What the main loop does after an event or a line of input.
enum ChatStep {
    Stay,
    Leave,
    Closed(CloseReason),
}

impl Chat {
    async fn talk(mut self, first: Option<String>) -> Result<ExitCode, Failure> {
        self.screen.begin(self.id);
        match first {
            Some(text) => {
                self.leave_when_answered = true;
                self.say(text).await?;
            }
            None => self.input = Some(BufReader::new(tokio::io::stdin()).lines()),
        }
        let end = loop {
            let next = tokio::select! {
                event = self.surface.next() => match event {
                    Some(event) => self.happened(event),
                    None => ChatStep::Leave,
                },
                line = read(&mut self.input) => self.typed(line).await?,
                Some((call_id, outcome)) = self.done.recv() => {
                    // An error means that the surface is closed; its `Closed` event says why.
                    let _ = self.surface.answer(call_id, outcome).await;
                    ChatStep::Stay
                }
                _ = tokio::signal::ctrl_c() => ChatStep::Leave,
            };
            if let Some(question) = self.questions.next_words() {
                self.screen.note(&question);
            }
            match next {
                ChatStep::Stay if self.leave_when_answered && self.is_answered() => break None,
                ChatStep::Stay => {}
                ChatStep::Leave => break None,
                ChatStep::Closed(reason) => break Some(reason),
            }
        };
        self.screen.end_line();
        let Self { surface, screen, id, .. } = self;
        match end {
            None => {
                for event in surface.detach().await {
                    screen.after(&event);
                }
                screen.farewell(id);
                Ok(ExitCode::SUCCESS)
            }
            Some(reason) => Err(closed(&reason)),
        }
    }

    fn is_answered(&self) -> bool {
        self.waiting.is_empty() && self.accepted.is_empty()
    }

    async fn say(&mut self, text: String) -> Result<(), Failure> {
        let name = uuid::Uuid::now_v7().to_string();
        match self.surface.send(text, name.clone(), self.model.clone()).await {
            Ok(()) => {
                self.waiting.insert(name);
            }
            Err(refused @ (Refused::Full | Refused::TooLong)) => {
                self.screen.note(&refused.to_string())
            }
            Err(refused) => return Err(Failure::new(refused)),
        }
        Ok(())
    }

    async fn typed(&mut self, line: Option<String>) -> Result<ChatStep, Failure> {
        let Some(line) = line else {
            self.input = None;
            self.leave_when_answered = true;
            return Ok(ChatStep::Stay);
        };
        if let InputLine::Answer(question, yes) = self.questions.typed(&line) {
            self.answered(question, yes).await?;
            return Ok(ChatStep::Stay);
        }
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => return Ok(ChatStep::Leave),
            "/help" => self.screen.note("/back  /cancel  /session  /quit"),
            "/session" => self.screen.note(&format!("session {}", self.id)),
            "/cancel" => {
                if let Err(refused) = self.surface.cancel().await {
                    self.screen.note(&refused.to_string());
                }
            }
            "/back" => self.page_back().await?,
            command if command.starts_with('/') => {
                self.screen.note(&format!("there is no {command}; try /help"));
            }
            _ => self.say(line).await?,
        }
        Ok(ChatStep::Stay)
    }

    /// The user answered a permission prompt.
    async fn answered(&mut self, question: Question, yes: bool) -> Result<(), Failure> {
        match question {
            Question::Call { until, .. } if until.is_some_and(|until| Instant::now() > until) => {
                self.screen.note("too late: the tool call has timed out");
            }
            Question::Call { call_id, tool, input, until } if yes => {
                self.start(call_id, tool, input, until);
            }
            Question::Call { call_id, .. } => {
                let no = Err("the user does not allow this".into());
                self.surface.answer(call_id, no).await.map_err(Failure::new)?;
            }
            Question::Approval(id) => {
                if let Err(refused) = self.surface.decide(id, yes).await {
                    self.screen.note(&refused.to_string());
                }
            }
            Question::Gone => {}
        }
        Ok(())
    }

    /// The agent calls a tool of this machine. Asks for permission first if the tool needs it;
    /// without a terminal such a call is denied.
    fn called(&mut self, call_id: String, tool: String, input: Value, timeout: Option<Duration>) {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        match self.tools.question(&tool, &input) {
            None => self.start(call_id, tool, input, until),
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

    fn approve(&mut self, approval: &Approval) {
        // Without input to answer it, the approval is left to other surfaces.
        if self.input.is_none() {
            return;
        }
        let words =
            format!("the agent wants to use {}: {}", approval.tool_name, approval.tool_input);
        self.questions.ask(Question::Approval(approval.approval_id), &words);
    }

    async fn page_back(&mut self) -> Result<(), Failure> {
        let before = self.oldest_shown.unwrap_or(u64::MAX);
        let path = format!("/v1/sessions/{}/messages?before={before}&limit={PAGE}", self.id);
        let log = self.api.get(&path).await?;
        let entries = log["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() {
            self.screen.note("there are no earlier messages");
        }
        for entry in entries {
            self.screen.earlier(entry, &entry_line(entry));
        }
        self.oldest_shown = entries.first().and_then(|entry| entry["seq"].as_u64()).or(Some(0));
        Ok(())
    }

    fn happened(&mut self, event: Event) -> ChatStep {
        self.screen.show(&event);
        match event {
            Event::Accepted { client_turn_id, turn_id } => {
                // An accept can be repeated after the turn has ended: then there is no answer to
                // wait for.
                if self.waiting.remove(&client_turn_id) && !self.screen.has_ended(turn_id) {
                    self.accepted.insert(turn_id);
                }
            }
            Event::Failed { client_turn_id, turn_id, .. } => {
                client_turn_id.map(|id| self.waiting.remove(&id));
                turn_id.map(|id| self.accepted.remove(&id));
            }
            Event::Turn(turn) => {
                self.accepted.remove(&turn.turn_id);
            }
            Event::Complete(complete) => {
                self.accepted.remove(&complete.turn_id);
            }
            Event::ToolCall { call_id, tool, input, timeout } => {
                self.called(call_id, tool, input, timeout);
            }
            Event::ApprovalAsked(approval) => self.approve(&approval),
            Event::Resolved { approval_id, .. } => {
                if self.questions.answered_elsewhere(approval_id) {
                    self.screen.note("that question is already decided or expired; press Enter");
                }
            }
            Event::Closed(reason) => return ChatStep::Closed(reason),
            Event::Attached { reconnected: true, .. } => self.questions.reconnected(),
            Event::Attached { .. }
            | Event::Chunk { .. }
            | Event::Asked { .. }
            | Event::Surfaces(_)
            | Event::Lost { .. } => {}
        }
        ChatStep::Stay
    }
}

/// The next line of input; never completes if there is no input.
async fn read(input: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    match input {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
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

/// An event as JSON, for `--json`.
fn as_json(event: &Event) -> Value {
    match event {
        Event::Attached { pending, sbp_level, reconnected } => json!({
            "event": "attached", "pending": pending, "sbp_level": sbp_level, "reconnected": reconnected,
        }),
        Event::Turn(turn) => json!({ "event": "turn", "turn": turn }),
        Event::Chunk { turn_id, text, restarted } => json!({
            "event": "chunk", "turn_id": turn_id, "text": text, "restarted": restarted,
        }),
        Event::Complete(complete) => json!({ "event": "complete", "turn": complete }),
        Event::Accepted { client_turn_id, turn_id } => json!({
            "event": "accepted", "client_turn_id": client_turn_id, "turn_id": turn_id,
        }),
        Event::Failed { client_turn_id, turn_id, code, message } => json!({
            "event": "failed", "client_turn_id": client_turn_id, "turn_id": turn_id, "code": code,
            "message": message,
        }),
        Event::ToolCall { call_id, tool, input, .. } => json!({
            "event": "tool_call", "call_id": call_id, "tool": tool, "input": input,
        }),
        Event::Asked { turn_id, content, surface_id } => json!({
            "event": "asked", "turn_id": turn_id, "content": content, "surface_id": surface_id,
        }),
        Event::Surfaces(list) => json!({ "event": "surfaces", "list": list }),
        Event::ApprovalAsked(approval) => {
            json!({ "event": "approval_request", "approval": approval })
        }
        Event::Resolved { approval_id, state } => json!({
            "event": "approval_resolved", "approval_id": approval_id, "state": state,
        }),
        Event::Lost { why, retry_in } => json!({
            "event": "lost", "why": why, "retry_in_ms": retry_in.as_millis() as u64,
        }),
        Event::Closed(reason) => json!({ "event": "closed", "why": reason.to_string() }),
    }
}
