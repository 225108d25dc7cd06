//! A chat on a terminal: answers as rendered Markdown above, the prompt below.
//!
//! Invariants
//! - An answer is printed in one piece: questions that arrive while it is written, typed here or on
//!   another device, wait until it has ended.
//! - An answer that starts over replaces what was shown of it, as far as it is on the screen.

use std::collections::{HashSet, VecDeque};
use std::io::{Stdout, Write as _};
use std::time::Instant;

use bowline_client::surface::Event;
use bowline_sbp::frame::{AttachedSurface, TurnStatus};
use bowline_sbp::id::TurnId;

use super::prompt;
use crate::terminal::live::{LiveRows, LiveScreen, Size};
use crate::terminal::markdown::MarkdownStream;
use crate::terminal::styled::{Color, Span, Style, StyledLine, wrap};
use crate::terminal::{one_line, printable};

/// A question that was asked, here or elsewhere.
#[derive(Debug)]
struct Asked {
    key: AskedKey,
    /// Who asked; none if it was typed here.
    who: Option<String>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AskedKey {
    /// Sent from here under this `client_turn_id`, and not accepted yet.
    Sent(String),
    Turn(TurnId),
}

/// What is being written, and where its cursor stands.
#[derive(Debug, Clone, Default)]
pub(super) struct PromptText {
    pub(super) label: &'static str,
    pub(super) text: String,
    pub(super) cursor: usize,
}

#[derive(Debug)]
pub(super) struct TerminalView {
    screen: LiveScreen<Stdout>,
    styled: bool,
    /// None without a keyboard, as with --message.
    prompt: Option<PromptText>,
    answer: MarkdownStream,
    /// The turn whose text is being printed.
    open: Option<TurnId>,
    /// The widths of the lines of the open answer that were printed.
    printed: Vec<usize>,
    /// Something else was printed between them: they can no longer be removed.
    split: bool,
    /// The question that was printed last, if it is not answered.
    unanswered: Option<(AskedKey, Instant)>,
    /// Questions that wait until the open answer has ended.
    waiting: VecDeque<Asked>,
    /// Turns asked from here.
    own: HashSet<TurnId>,
    /// Why there is no connection.
    lost: Option<String>,
    others: Option<Vec<String>>,
    /// Lines to be printed at the next update.
    finished: Vec<StyledLine>,
    /// The widths of printed lines to be removed at the next update.
    removed: Vec<usize>,
}

impl TerminalView {
    pub(super) fn new(size: Size, styled: bool, with_prompt: bool) -> Self {
        Self {
            screen: LiveScreen::new(std::io::stdout(), size, styled),
            styled,
            prompt: with_prompt.then(PromptText::default),
            answer: MarkdownStream::new(styled),
            open: None,
            printed: Vec::new(),
            split: false,
            unanswered: None,
            waiting: VecDeque::new(),
            own: HashSet::new(),
            lost: None,
            others: None,
            finished: Vec::new(),
            removed: Vec::new(),
        }
    }

    pub(super) fn set_prompt(&mut self, prompt: PromptText) {
        if self.prompt.is_some() {
            self.prompt = Some(prompt);
        }
        self.draw();
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.screen.resize(size);
        self.draw();
    }

    pub(super) fn clear(&mut self) {
        let live = self.live();
        let _ = self.screen.clear(live);
    }

    /// A turn is running: an answer is being written, or a question waits for one.
    pub(super) fn is_working(&self) -> bool {
        self.open.is_some() || self.unanswered.is_some()
    }

    /// A message was typed here.
    pub(super) fn sent(&mut self, client_turn_id: &str, text: &str) {
        let key = AskedKey::Sent(client_turn_id.to_owned());
        self.asked(Asked { key, who: None, text: text.to_owned() });
    }

    /// A notice of the program.
    pub(super) fn note(&mut self, text: &str) {
        self.notice(text, Style::DIM);
    }

    fn notice(&mut self, text: &str, style: Style) {
        let (first, rest) = (Span::new("· ", style), Span::new("  ", style));
        for (number, line) in printable(text).replace('\t', "    ").lines().enumerate() {
            let start = if number == 0 { &first } else { &rest };
            let lines = wrap(&[Span::new(line, style)], self.screen.width(), start, &rest);
            self.between(lines);
        }
        self.draw();
    }

    /// An earlier entry of the log.
    pub(super) fn earlier(&mut self, role: &str, text: &str) {
        if role == "user" {
            let lines = self.question(None, text);
            self.between(lines);
        } else {
            let mut stream = MarkdownStream::new(self.styled);
            let mut lines = stream.push(&format!("{text}\n"), self.screen.width());
            lines.extend(stream.finish(self.screen.width()));
            lines.push(StyledLine::default());
            self.between(lines);
        }
        self.draw();
    }

    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Attached { pending, reconnected, .. } => {
                self.lost = None;
                // The answer that was being written when the connection was lost is one of them.
                match pending.saturating_sub(u64::from(*reconnected && self.is_working())) {
                    0 => {}
                    1 => self.note("1 turn arrived while you were away"),
                    n => self.note(&format!("{n} turns arrived while you were away")),
                }
            }
            Event::Accepted { client_turn_id, turn_id } => self.accepted(client_turn_id, *turn_id),
            Event::Asked { turn_id, content, surface_id, author }
                if !self.own.contains(turn_id) =>
            {
                let who = author.clone().or_else(|| surface_id.clone());
                let who = Some(who.unwrap_or_else(|| "another client".into()));
                let key = AskedKey::Turn(*turn_id);
                self.asked(Asked { key, who, text: content.clone() });
            }
            Event::Chunk { turn_id, text, restarted } => self.chunk(*turn_id, text, *restarted),
            Event::Turn(turn) => {
                self.chunk(turn.turn_id, turn.content.trim_end(), true);
                self.ended(turn.turn_id, turn.status);
            }
            Event::Complete(turn) => self.ended(turn.turn_id, turn.status),
            Event::Failed { client_turn_id, turn_id, message, .. } => {
                let sent = client_turn_id.clone().map(AskedKey::Sent);
                let turn = turn_id.map(AskedKey::Turn);
                self.failed([sent, turn].into_iter().flatten().collect(), message);
            }
            Event::Lost { why, .. } => self.lost = Some(why.clone()),
            Event::Moved { session, gateway, url } => self.note(&format!(
                "the session has moved to the gateway {gateway} at {url} and goes on there as {session}"
            )),
            Event::Arrived { session } => {
                self.note(&format!("the session has come to this gateway, as {session}"));
            }
            Event::ToolCall { tool, input, .. } => {
                self.note(&format!("the agent calls {tool} {}", shortened(&input.to_string())));
            }
            Event::Surfaces(list) => self.surfaces(list),
            _ => {}
        }
        self.draw();
    }

    /// Removes the prompt: the chat is over.
    pub(super) fn close(&mut self) {
        let width = self.screen.width();
        let rest = self.answer.finish(width);
        self.finished.extend(rest);
        self.prompt = None;
        (self.open, self.unanswered) = (None, None);
        self.waiting.clear();
        self.draw();
        let _ = std::io::stdout().flush();
    }

    fn accepted(&mut self, client_turn_id: &str, turn: TurnId) {
        self.own.insert(turn);
        let sent = AskedKey::Sent(client_turn_id.to_owned());
        for asked in &mut self.waiting {
            if asked.key == sent {
                asked.key = AskedKey::Turn(turn);
            }
        }
        if let Some((key, _)) = &mut self.unanswered
            && *key == sent
        {
            *key = AskedKey::Turn(turn);
        }
    }

    fn asked(&mut self, asked: Asked) {
        if self.is_working() || !self.waiting.is_empty() {
            self.waiting.push_back(asked);
        } else {
            self.print_question(asked);
        }
        self.draw();
    }

    fn print_question(&mut self, asked: Asked) {
        let lines = self.question(asked.who.as_deref(), &asked.text);
        self.finished.extend(lines);
        self.unanswered = Some((asked.key, Instant::now()));
    }

    /// The lines of a question.
    fn question(&self, who: Option<&str>, text: &str) -> Vec<StyledLine> {
        let (label, style) = match who {
            None => ("> ".to_owned(), Style::BOLD),
            Some(who) => {
                let style = Style { bold: true, ..Style::color(Color::Magenta) };
                (format!("{}> ", shortened(&printable(who))), style)
            }
        };
        let first = Span::new(label, style);
        let rest = Span::new("  ", Style::PLAIN);
        let text = printable(text.trim_end()).replace('\t', "    ");
        let mut lines = Vec::new();
        for (number, line) in text.split('\n').enumerate() {
            let start = if number == 0 { &first } else { &rest };
            let spans = [Span::new(line, Style::PLAIN)];
            lines.extend(wrap(&spans, self.screen.width(), start, &rest));
        }
        lines
    }

    fn chunk(&mut self, turn: TurnId, text: &str, whole: bool) {
        if self.open != Some(turn) {
            self.end_answer();
            self.print_questions_before(turn);
            self.open = Some(turn);
        } else if whole {
            self.start_over();
        }
        let lines = self.answer.push(text, self.screen.width());
        self.answer_lines(lines);
    }

    /// Prints the question of a turn, and those that were asked before it.
    fn print_questions_before(&mut self, turn: TurnId) {
        let Some(at) = self.waiting.iter().position(|asked| asked.key == AskedKey::Turn(turn))
        else {
            return;
        };
        let asked: Vec<_> = self.waiting.drain(..=at).collect();
        asked.into_iter().for_each(|asked| self.print_question(asked));
    }

    /// Discards what was shown of the open answer.
    fn start_over(&mut self) {
        self.answer.finish(self.screen.width());
        let printed = std::mem::take(&mut self.printed);
        if !std::mem::take(&mut self.split) && self.screen.fits(&printed) {
            self.removed = printed;
        } else {
            self.finished.push(StyledLine::new("· the answer starts over:", Style::DIM));
        }
    }

    fn answer_lines(&mut self, lines: Vec<StyledLine>) {
        self.printed.extend(lines.iter().map(StyledLine::width));
        self.finished.extend(lines);
    }

    /// Prints lines that are not part of the open answer.
    fn between(&mut self, lines: Vec<StyledLine>) {
        self.split |= !self.printed.is_empty();
        self.finished.extend(lines);
    }

    fn end_answer(&mut self) {
        let width = self.screen.width();
        let rest = self.answer.finish(width);
        self.finished.extend(rest);
        self.printed.clear();
        self.split = false;
        self.open = None;
    }

    fn ended(&mut self, turn: TurnId, status: TurnStatus) {
        self.print_questions_before(turn);
        self.end_answer();
        let mark = match status {
            TurnStatus::Complete => None,
            TurnStatus::Cancelled => Some("[stopped]"),
            TurnStatus::Interrupted => Some("[interrupted]"),
            TurnStatus::Failed => Some("[failed]"),
        };
        if let Some(mark) = mark {
            self.finished.push(StyledLine::new(mark, Style::color(Color::Yellow)));
        }
        self.finished.push(StyledLine::default());
        self.answered(&AskedKey::Turn(turn));
    }

    fn failed(&mut self, keys: Vec<AskedKey>, message: &str) {
        // Its question is printed first, if it still waits.
        if let Some(at) = self.waiting.iter().position(|asked| keys.contains(&asked.key))
            && let Some(asked) = self.waiting.remove(at)
        {
            let lines = self.question(asked.who.as_deref(), &asked.text);
            self.between(lines);
        }
        if self.open.is_some_and(|open| keys.contains(&AskedKey::Turn(open))) {
            self.end_answer();
        }
        self.notice(&format!("not answered: {message}"), Style::color(Color::Red));
        self.finished.push(StyledLine::default());
        keys.iter().for_each(|key| self.answered(key));
    }

    /// The question has its answer: the next one is printed.
    fn answered(&mut self, key: &AskedKey) {
        if self.unanswered.as_ref().is_some_and(|(unanswered, _)| unanswered == key) {
            self.unanswered = None;
        }
        if !self.is_working()
            && let Some(next) = self.waiting.pop_front()
        {
            self.print_question(next);
        }
    }

    fn surfaces(&mut self, list: &[AttachedSurface]) {
        let others: Vec<String> =
            list.iter().filter(|surface| !surface.you).map(super::who::name).collect();
        if let Some(before) = self.others.replace(others.clone()) {
            for came in others.iter().filter(|other| !before.contains(other)) {
                self.note(&format!("{came} is here, too"));
            }
            for left in before.iter().filter(|other| !others.contains(other)) {
                self.note(&format!("{left} left"));
            }
        }
    }

    /// Writes what has changed.
    fn draw(&mut self) {
        let live = self.live();
        let finished = std::mem::take(&mut self.finished);
        let removed = std::mem::take(&mut self.removed);
        // A terminal that is gone ends the chat by its signal.
        let _ = self.screen.update(&removed, &finished, live);
    }

    fn live(&self) -> LiveRows {
        let (width, height) = (self.screen.width(), self.screen.size().rows.max(2));
        let mut rows = self.answer.tail(width);
        if let (None, Some((_, since)), Some(_)) = (self.open, &self.unanswered, &self.prompt) {
            let words = match since.elapsed().as_secs() {
                0 => "· …".to_owned(),
                seconds => format!("· … {seconds} s, Ctrl-C stops"),
            };
            rows.push(StyledLine::new(words, Style::DIM));
        }
        if let Some(why) = &self.lost {
            let words = format!("· connection lost ({why}); the agent continues, reconnecting …");
            let (first, rest) = (Span::new("", Style::DIM), Span::new("  ", Style::DIM));
            rows.extend(wrap(&[Span::new(one_line(&words), Style::DIM)], width, &first, &rest));
        }
        for asked in &self.waiting {
            let who = asked.who.as_deref().unwrap_or("you");
            let line = one_line(&format!("· waits: {who}> {}", asked.text));
            // No wider than the row, whatever its characters.
            let cut: String = line.chars().take(width / 2).collect();
            rows.push(StyledLine::new(cut, Style::DIM));
        }
        let Some(prompt) = &self.prompt else {
            rows.drain(..rows.len().saturating_sub(height - 1));
            return LiveRows { rows, cursor: None };
        };
        let (lines, (row, column)) =
            prompt::rows(prompt.label, &prompt.text, prompt.cursor, width, height / 2);
        // What does not fit on the screen could not be erased again.
        rows.drain(..rows.len().saturating_sub(height.saturating_sub(lines.len() + 1)));
        let above = rows.len();
        rows.extend(lines);
        LiveRows { rows, cursor: Some((above + row, column)) }
    }
}

/// Text for one line, cut after 200 characters.
fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let text = text.replace('\n', " ");
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
