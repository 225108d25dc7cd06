//! Recognises that a conversation is too long for its model.
//!
//! Few servers have a code for it, so the message has to tell. The table holds the parts of each
//! server's message that do not change.

use super::{Code, Failure, UpstreamError};

/// Where a message names the most tokens.
#[derive(Clone, Copy)]
enum Limit {
    /// Beside the phrase: `… maximum context length is 4096`, `… with 4096 maximum context length`.
    Beside,
    /// After a `>`: `5000 tokens > 4096 maximum`.
    Compared,
    /// Nowhere.
    Unsaid,
}

/// Phrases in lower case.
const PHRASES: &[(&str, Limit)] = &[
    // OpenAI, vLLM, OpenRouter, SGLang, Mistral
    ("maximum context length", Limit::Beside),
    // vLLM
    ("maximum model length", Limit::Beside),
    // llama.cpp
    ("available context size", Limit::Beside),
    // SGLang
    ("longer than the model's context length", Limit::Beside),
    // LM Studio
    ("context length of only", Limit::Beside),
    // Gemini
    ("maximum number of tokens allowed", Limit::Beside),
    // xAI
    ("maximum prompt length", Limit::Beside),
    // Poolside, GLM
    ("maximum allowed input length", Limit::Beside),
    // Text Generation Inference
    ("`max_new_tokens` must be <=", Limit::Beside),
    // Anthropic
    ("prompt is too long", Limit::Compared),
    ("exceed context limit", Limit::Compared),
    // Ollama
    ("exceeds the context length", Limit::Unsaid),
    ("exceeds context length", Limit::Unsaid),
    ("exceeded max context length", Limit::Unsaid),
    ("prompt too long", Limit::Unsaid),
    // OpenAI without a number, LM Studio, Groq
    ("exceeds the context window", Limit::Unsaid),
    ("context size has been exceeded", Limit::Unsaid),
    ("context length exceeded", Limit::Unsaid),
    ("reduce the length of the messages", Limit::Unsaid),
];

/// Codes and types that mean it; OpenAI's first.
const NAMES: &[&str] = &["context_length_exceeded", "exceed_context_size_error"];

/// The most characters between a phrase and its number: ` is only `, ` of (`.
const NEAR: usize = 10;

impl Failure {
    /// Whether the upstream refused the conversation because it is longer than the model's context.
    pub fn is_context_overflow(&self) -> bool {
        // A rate limit counts tokens, too, and a wrong key says nothing about the conversation.
        let Some(said) = self.upstream.as_ref().filter(|e| !matches!(e.status, 401 | 403 | 429))
        else {
            return false;
        };
        is_named(said) || phrase(&self.message.to_lowercase()).is_some()
    }

    /// The words by which an overflow is recognised, in lower case; none if its code tells. A server
    /// that quotes its caller may say them, too.
    pub fn overflow_words(&self) -> Option<&'static str> {
        let said = self.upstream.as_ref().filter(|_| self.is_context_overflow())?;
        let words = || phrase(&self.message.to_lowercase()).map(|(_, words, _)| words);
        if is_named(said) { None } else { words() }
    }

    /// An overflow as OpenAI reports it, whatever its server says: programs know that code.
    pub fn as_context_overflow(mut self) -> Self {
        if let Some(said) = &mut self.upstream {
            said.code.get_or_insert_with(|| NAMES[0].into());
            said.status = 400;
            self.code = Code::InvalidRequest;
        }
        self
    }

    /// The model's context in tokens, if this is an overflow that names it.
    pub fn context_limit(&self) -> Option<u64> {
        let said = self.upstream.as_ref().filter(|_| self.is_context_overflow())?;
        said.context_size.or_else(|| {
            let message = self.message.to_lowercase();
            let (at, phrase, limit) = phrase(&message)?;
            let after = &message[at + phrase.len()..];
            match limit {
                Limit::Beside => number_soon(after).or_else(|| number_before(&message[..at])),
                Limit::Compared => number_soon(after.split_once('>')?.1),
                Limit::Unsaid => None,
            }
        })
    }
}

fn is_named(said: &UpstreamError) -> bool {
    let mut names = [&said.code, &said.kind].into_iter().flatten();
    names.any(|name| NAMES.contains(&name.as_str()))
}

/// The first phrase of the table that a message holds, and where.
fn phrase(message: &str) -> Option<(usize, &'static str, Limit)> {
    let found = |(phrase, limit): &(&'static str, Limit)| {
        message.find(phrase).map(|at| (at, *phrase, *limit))
    };
    PHRASES.iter().find_map(found)
}

/// The number at the start of a text, in the same sentence.
fn number_soon(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let is_near = start <= NEAR && !text[..start].contains(['.', ';', ',']);
    is_near.then(|| digits(text[start..].chars())).flatten()
}

/// The number that ends a text.
fn number_before(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let word = text.rsplit(char::is_whitespace).next()?;
    digits(word.chars()).filter(|_| word.ends_with(|c: char| c.is_ascii_digit()))
}

/// Digits, with or without commas between thousands.
fn digits(text: impl Iterator<Item = char>) -> Option<u64> {
    let digits = text.take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',');
    digits.collect::<String>().parse().ok().filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, code: Option<&str>, kind: Option<&str>, message: &str) -> Failure {
        let said = UpstreamError {
            status,
            code: code.map(str::to_owned),
            kind: kind.map(str::to_owned),
            ..UpstreamError::default()
        };
        let message = format!("the upstream `u-128000` refused the request: {message}");
        Failure { upstream: Some(Box::new(said)), ..Failure::new(Code::InvalidRequest, message) }
    }

    #[test]
    fn overflows_of_common_servers_are_recognised_with_their_limits() {
        for (message, limit) in [
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000",
                8192,
            ),
            (
                "'max_tokens' is too large: 9. This model's maximum context length is 4096 tokens and your request has 26 input tokens",
                4096,
            ),
            (
                "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
                4096,
            ),
            (
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                4096,
            ),
            (
                "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
                4096,
            ),
            (
                "Requested token count exceeds the model's maximum context length of 4096 tokens.",
                4096,
            ),
            (
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                32768,
            ),
            ("Input length (265330) exceeds model's maximum context length (262144).", 262144),
            (
                "the model is loaded with context length of only 4096 tokens, which is not enough",
                4096,
            ),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1,048,576).",
                1_048_576,
            ),
            (
                "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
                131_072,
            ),
            (
                "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
                131_040,
            ),
            ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", 4096),
            ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
            (
                "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease",
                200_000,
            ),
        ] {
            let failure = failure(400, None, None, message);
            assert!(failure.is_context_overflow(), "{message}");
            assert_eq!(failure.context_limit(), Some(limit), "{message}");
        }
    }

    #[test]
    fn an_overflow_without_a_number_has_no_limit() {
        for (code, kind, message) in [
            (Some("context_length_exceeded"), None, "Your input is long: 77 words"),
            (None, Some("exceed_context_size_error"), ""),
            (
                None,
                None,
                "the request exceeds the available context size. try increasing it to 9000",
            ),
            (None, None, "the input length exceeds the context length"),
            (None, None, "prompt too long; exceeded max context length by 12 tokens"),
            (None, None, "Your input exceeds the context window of this model."),
            (None, None, "maximum context length exceeded"),
        ] {
            let failure = failure(400, code, kind, message);
            assert!(failure.is_context_overflow(), "{message}");
            assert_eq!(failure.context_limit(), None, "{message}");
        }
    }

    #[test]
    fn a_limit_in_a_field_counts_before_the_message() {
        let mut failure = failure(400, None, Some("exceed_context_size_error"), "");
        failure.upstream.as_mut().unwrap().context_size = Some(2048);
        assert_eq!(failure.context_limit(), Some(2048));
    }

    #[test]
    fn other_errors_are_no_overflow() {
        for (status, code, message) in [
            (400, Some("invalid_value"), "Invalid value: 8192 tokens"),
            (404, Some("model_not_found"), "The model `x` does not exist"),
            (
                429,
                Some("rate_limit_exceeded"),
                "Limit 30000 tokens; reduce the length of the messages",
            ),
            (401, None, "maximum context length is 4096"),
            (500, None, "out of memory"),
        ] {
            let failure = failure(status, code, None, message);
            assert!(!failure.is_context_overflow(), "{message}");
            assert_eq!(failure.context_limit(), None);
        }
        let ours = Failure::new(Code::InvalidRequest, "maximum context length is 4096 tokens");
        assert!(!ours.is_context_overflow(), "only an upstream knows");
    }

    #[test]
    fn an_overflow_known_by_its_words_gets_openais_code_and_status() {
        let words = "the input length exceeds the context length";
        let known = failure(500, None, None, words);
        assert_eq!(known.overflow_words(), Some("exceeds the context length"));
        let told = known.as_context_overflow();
        assert_eq!((told.code, told.http_status()), (Code::InvalidRequest, 400));
        let said = told.upstream.unwrap();
        assert_eq!(said.code.as_deref(), Some("context_length_exceeded"));
        let kind = Some("exceed_context_size_error");
        assert_eq!(failure(400, None, kind, words).overflow_words(), None);
        let own = failure(400, Some("their_code"), None, words).as_context_overflow();
        assert_eq!(own.upstream.unwrap().code.as_deref(), Some("their_code"));
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        for message in [
            "maximum context length is 99999999999999999999999999 tokens",
            "maximum context length",
            "maximum context length is ,,,",
            "İ maximum context length is 0",
            "prompt is too long >",
        ] {
            let failure = failure(400, None, None, message);
            assert_eq!(failure.context_limit(), None, "{message}");
        }
    }
}
