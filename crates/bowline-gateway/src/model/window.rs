//! How much each model takes: configured, or learned from what its server refuses, and how many bytes
//! a token has, calibrated by what it counts.
//!
//! All callers of a model share what is learned, so one refusal teaches only what its prompt makes
//! plausible, and nothing is learned for ever: after a while the whole prompt is tried again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbp::context::Measure;

use crate::config::{ContextConfig, matches};

/// Before anything was counted. Few: a prompt that is estimated too large is cut, not refused.
const BYTES_PER_TOKEN: f64 = 3.5;
/// What a calibration is kept within.
const PLAUSIBLE: (f64, f64) = (1.0, 12.0);
/// The share of a new measurement in the calibration.
const NEW: f64 = 0.3;
/// The most models that are remembered.
const MOST: usize = 1024;
/// The most tokens that are kept for an answer, if the caller does not say how many it may have.
const USUAL_ANSWER: u64 = 16_384;
/// The smallest window that is believed.
const SMALLEST: u64 = 256;
/// How long a window is remembered that a server named, and one that was guessed.
const NAMED_FOR: Duration = Duration::from_secs(3600);
const GUESSED_FOR: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Windows {
    config: ContextConfig,
    learned: Mutex<HashMap<String, Learned>>,
}

/// What is known about a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The most tokens of prompt and answer together.
    pub tokens: Option<u64>,
    pub bytes_per_token: f64,
}

/// A prompt that a server refused as too long.
#[derive(Debug, Clone, Copy)]
pub struct RefusedPrompt {
    /// The most tokens that it takes, if it said so.
    pub limit: Option<u64>,
    pub prompt: Measure,
    /// The most tokens that the answer was to have, if the caller said so.
    pub answer: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Learned {
    /// The window, and until when it is believed.
    window: Option<(u64, Instant)>,
    bytes_per_token: f64,
}

impl Default for Window {
    fn default() -> Self {
        Self { tokens: None, bytes_per_token: BYTES_PER_TOKEN }
    }
}

impl Default for Learned {
    fn default() -> Self {
        Self { window: None, bytes_per_token: BYTES_PER_TOKEN }
    }
}

impl Window {
    /// The tokens for a prompt, if the answer may take `answer`.
    pub fn for_prompt(&self, answer: Option<u64>) -> Option<u64> {
        let tokens = self.tokens?;
        let answer = answer.unwrap_or_else(|| (tokens / 8).min(USUAL_ANSWER));
        Some(tokens - answer.min(tokens / 2))
    }

    /// What has to be assumed about the model for the rest of the turn whose prompt was refused.
    pub fn after(self, refusal: &RefusedPrompt) -> Self {
        let tokens = match refusal.limit {
            Some(limit) => self.tokens.map_or(limit, |known| known.min(limit)),
            None => guess(refusal.prompt.tokens(self.bytes_per_token)),
        };
        let bytes_per_token = refusal.recalibrated(self.bytes_per_token);
        Self { tokens: Some(tokens.max(SMALLEST)), bytes_per_token }
    }

    /// The same where it was not enough: the prompt has more tokens than can be explained.
    pub fn below(self, prompt: Measure) -> Self {
        let tokens = guess(prompt.tokens(self.bytes_per_token));
        Self { tokens: Some(tokens.max(SMALLEST)), ..self }
    }
}

impl RefusedPrompt {
    /// Whether a shorter prompt may be taken: the answer that is asked for is not too long already.
    pub fn may_help(&self) -> bool {
        self.limit.zip(self.answer).is_none_or(|(limit, answer)| answer < limit)
    }

    /// The window that it teaches, if the prompt and not the answer that was asked for is the likely
    /// cause.
    fn window(&self, bytes_per_token: f64) -> Option<u64> {
        let prompt = self.prompt.tokens(bytes_per_token);
        let window = match self.limit {
            Some(limit) => Some(limit).filter(|limit| 2 * prompt >= *limit),
            None => {
                Some(guess(prompt)).filter(|_| self.answer.is_none_or(|answer| answer < prompt))
            }
        };
        window.filter(|window| *window >= SMALLEST)
    }

    /// The bytes of a token, if the server takes more than prompt and answer were estimated to have:
    /// then the estimate is too low.
    fn recalibrated(&self, bytes_per_token: f64) -> f64 {
        let prompt = self.prompt.tokens(bytes_per_token);
        let estimated = prompt.saturating_add(self.answer.unwrap_or(0));
        let measured = self.limit.filter(|limit| estimated <= *limit);
        let measured = measured.and_then(|limit| self.prompt.bytes_per_token(limit));
        measured.map_or(bytes_per_token, |measured| {
            measured.clamp(PLAUSIBLE.0, bytes_per_token.max(PLAUSIBLE.0))
        })
    }
}

/// The window of a model that refused so many tokens and did not say how many it takes.
fn guess(refused: u64) -> u64 {
    refused / 4 * 3
}

impl Windows {
    pub fn new(config: ContextConfig) -> Self {
        Self { config, learned: Mutex::default() }
    }

    pub fn config(&self) -> &ContextConfig {
        &self.config
    }

    pub fn of(&self, model: &str) -> Window {
        self.at(model, Instant::now())
    }

    fn at(&self, model: &str, now: Instant) -> Window {
        let learned = self.learned().get(model).copied().unwrap_or_default();
        let window = learned.window.filter(|(_, until)| now < *until).map(|(tokens, _)| tokens);
        // What a server refused is true whatever is configured.
        let tokens = match (self.configured(model), window) {
            (Some(configured), Some(learned)) => Some(configured.min(learned)),
            (configured, learned) => configured.or(learned),
        };
        Window { tokens, bytes_per_token: learned.bytes_per_token }
    }

    /// The server took a prompt in which it counted so many tokens.
    pub fn accepted(&self, model: &str, tokens: u64) {
        if let Some((window, _)) = self.learned().get_mut(model).and_then(|l| l.window.as_mut()) {
            *window = tokens.max(*window);
        }
    }

    /// The server counted these tokens in a prompt of that size.
    pub fn counted(&self, model: &str, prompt: Measure, tokens: u64) {
        let Some(measured) = prompt.bytes_per_token(tokens) else { return };
        let measured = measured.clamp(PLAUSIBLE.0, PLAUSIBLE.1);
        self.change(model, |learned| {
            let before = learned.bytes_per_token;
            learned.bytes_per_token = before + (measured - before) * NEW;
        });
    }

    /// The server refused a prompt as too long.
    pub fn refused(&self, model: &str, refusal: &RefusedPrompt) {
        self.learn(model, refusal, Instant::now());
    }

    fn learn(&self, model: &str, refusal: &RefusedPrompt, now: Instant) {
        let bytes_per_token = self.at(model, now).bytes_per_token;
        let Some(window) = refusal.window(bytes_per_token) else { return };
        let until = now + if refusal.limit.is_some() { NAMED_FOR } else { GUESSED_FOR };
        self.change(model, |learned| {
            // What was guessed before is the better guess, also if it has expired.
            let guessed = learned.window.filter(|_| refusal.limit.is_none());
            let window = guessed.map_or(window, |(before, _)| window.min(before));
            learned.window = Some((window, until));
            learned.bytes_per_token = refusal.recalibrated(bytes_per_token);
        });
    }

    fn configured(&self, model: &str) -> Option<u64> {
        let fitting = self.config.tokens.iter().filter(|(pattern, _)| matches(pattern, model));
        fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, tokens)| *tokens)
    }

    fn change(&self, model: &str, change: impl FnOnce(&mut Learned)) {
        let mut learned = self.learned();
        if learned.len() >= MOST && !learned.contains_key(model) {
            learned.clear();
        }
        change(learned.entry(model.to_owned()).or_default());
    }

    fn learned(&self) -> std::sync::MutexGuard<'_, HashMap<String, Learned>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(tokens: &[(&str, u64)]) -> Windows {
        let tokens = tokens.iter().map(|(name, tokens)| (name.to_string(), *tokens)).collect();
        Windows::new(ContextConfig { tokens, ..ContextConfig::default() })
    }

    /// A prompt of so many tokens of the usual size was refused.
    fn refusal(limit: Option<u64>, tokens: usize, answer: Option<u64>) -> RefusedPrompt {
        RefusedPrompt { limit, prompt: prompt(tokens, BYTES_PER_TOKEN), answer }
    }

    fn prompt(tokens: usize, bytes_per_token: f64) -> Measure {
        Measure::text((tokens as f64 * bytes_per_token) as usize)
    }

    #[test]
    fn a_window_is_configured_by_pattern_and_learned_from_refusals() {
        let windows = windows(&[("llama*", 8192), ("llama3-big", 131_072)]);
        assert_eq!(windows.of("llama3").tokens, Some(8192));
        assert_eq!(windows.of("llama3-big").tokens, Some(131_072));
        assert_eq!(windows.of("gpt").tokens, None);
        windows.refused("gpt", &refusal(Some(4096), 9000, None));
        assert_eq!(windows.of("gpt").tokens, Some(4096));
        windows.refused("llama3", &refusal(Some(2048), 5000, None));
        assert_eq!(windows.of("llama3").tokens, Some(2048), "what a server says is true");
        windows.refused("unsaid", &refusal(None, 1000, None));
        assert_eq!(windows.of("unsaid").tokens, Some(750));
    }

    #[test]
    fn a_refusal_that_the_prompt_does_not_explain_teaches_nothing() {
        let windows = windows(&[]);
        for refusal in [
            // The answer that was asked for is too long.
            refusal(None, 500, Some(100_000)),
            refusal(Some(4096), 26, Some(5000)),
            refusal(Some(u64::MAX), 26, Some(u64::MAX)),
            // Less than half of the window, whatever is asked for.
            refusal(Some(4096), 2000, Some(5000)),
            refusal(Some(1_000_000), 2000, None),
            // No model is that small.
            refusal(Some(1), 500, None),
            refusal(None, 300, None),
        ] {
            for _ in 0..10 {
                windows.refused("m", &refusal);
            }
            assert_eq!(windows.of("m"), Window::default(), "{refusal:?}");
        }
    }

    #[test]
    fn an_answer_that_explains_the_refusal_leaves_the_calibration() {
        let windows = windows(&[]);
        windows.refused("m", &refusal(Some(4096), 3000, Some(2000)));
        assert_eq!(windows.of("m"), Window { tokens: Some(4096), ..Window::default() });
        assert!(refusal(Some(4096), 3000, Some(2000)).may_help());
        assert!(!refusal(Some(4096), 3000, Some(4096)).may_help());
    }

    #[test]
    fn what_was_learned_is_raised_by_a_longer_prompt_that_is_accepted_and_expires() {
        let windows = windows(&[]);
        let now = Instant::now();
        windows.learn("named", &refusal(Some(4096), 9000, None), now);
        windows.learn("guessed", &refusal(None, 8000, None), now);
        windows.accepted("named", 4000);
        windows.accepted("other", 4000);
        assert_eq!(windows.of("named").tokens, Some(4096));
        windows.accepted("named", 5000);
        windows.accepted("guessed", 7000);
        assert_eq!(windows.of("named").tokens, Some(5000));
        assert_eq!(windows.of("guessed").tokens, Some(7000));
        let later = now + GUESSED_FOR;
        assert_eq!(windows.at("guessed", later).tokens, None);
        assert_eq!(windows.at("named", later).tokens, Some(5000));
        assert_eq!(windows.at("named", now + NAMED_FOR).tokens, None);
        // The whole was tried again and refused: the guess of before holds.
        windows.learn("guessed", &refusal(None, 80_000, None), later);
        assert_eq!(windows.at("guessed", later).tokens, Some(7000));
        assert_eq!(windows.of("other"), Window::default());
    }

    #[test]
    fn the_estimate_follows_what_the_server_counts() {
        let windows = windows(&[]);
        for _ in 0..50 {
            windows.counted("m", prompt(1000, 8.0), 1000);
            windows.counted("empty", Measure::text(10), 0);
            windows.counted("image", Measure { media: 1, ..prompt(1000, 8.0) }, 1000);
        }
        assert!((windows.of("m").bytes_per_token - 8.0).abs() < 0.1);
        assert_eq!(windows.of("empty"), Window::default());
        assert_eq!(windows.of("image"), Window::default());
        // Refused although it was estimated to fit: the estimate was too low.
        let refused = RefusedPrompt { limit: Some(4096), prompt: prompt(3000, 8.0), answer: None };
        windows.refused("m", &refused);
        let measured = windows.of("m").bytes_per_token;
        assert!(measured < 6.1 && measured > 5.0);
        // The same prompt again is explained now.
        windows.refused("m", &refused);
        assert!((windows.of("m").bytes_per_token - measured).abs() < 0.01);
    }

    #[test]
    fn the_messages_of_a_prompt_are_part_of_its_calibration() {
        let windows = windows(&[]);
        let many = Measure { messages: 1000, ..Measure::text(16_000) };
        for _ in 0..50 {
            windows.counted("m", many, many.tokens(4.0));
        }
        assert!((windows.of("m").bytes_per_token - 4.0).abs() < 0.01);
        assert!(many.tokens(windows.of("m").bytes_per_token).abs_diff(many.tokens(4.0)) <= 1);
    }

    #[test]
    fn the_rest_of_a_refused_turn_assumes_less_room() {
        let known = Window { tokens: Some(8000), bytes_per_token: 3.5 };
        let after = known.after(&refusal(Some(4096), 6000, None));
        assert_eq!(after, Window { tokens: Some(4096), ..known });
        let after = known.after(&refusal(Some(16_000), 6000, None));
        assert_eq!(after.tokens, Some(8000));
        assert!(after.bytes_per_token < 3.5 * 0.4, "6000 tokens were 16000");
        assert_eq!(known.after(&refusal(None, 6000, None)).tokens, Some(4500));
        assert_eq!(known.below(prompt(4000, 3.5)).tokens, Some(3000));
        assert_eq!(known.after(&refusal(Some(1), 6000, None)).tokens, Some(SMALLEST));
    }

    #[test]
    fn room_is_kept_for_the_answer() {
        let window = Window { tokens: Some(8000), bytes_per_token: 4.0 };
        assert_eq!(window.for_prompt(None), Some(7000));
        assert_eq!(window.for_prompt(Some(100)), Some(7900));
        assert_eq!(window.for_prompt(Some(1_000_000)), Some(4000));
        let large = Window { tokens: Some(256_000), bytes_per_token: 4.0 };
        assert_eq!(large.for_prompt(None), Some(256_000 - USUAL_ANSWER));
        assert_eq!(large.for_prompt(Some(32_000)), Some(224_000), "as much as the caller asks for");
        assert_eq!(Window::default().for_prompt(None), None);
    }
}
