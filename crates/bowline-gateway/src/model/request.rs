//! The body of a chat request, as it is sent to a model's server.

use bowline_sbp::media::for_model;
use serde_json::value::RawValue;

use super::Call;

/// The request body: the caller's fields unchanged, tools, streaming options, and the conversation
/// with at most `images` bytes of the images of tool results.
pub(super) fn body(call: &Call<'_>, images: usize) -> String {
    let length: usize = call.messages.iter().map(|message| message.as_json().len() + 1).sum();
    let mut body = String::with_capacity(length + 256);
    body.push('{');
    let mut tools = tools_text(&call.tools);
    for (name, value) in &call.params {
        body.push_str(&serde_json::to_string(name).expect("a string always serialises"));
        body.push(':');
        match (name.as_str(), tools.take_if(|_| name == "tools")) {
            ("tools", Some(ours)) => body.push_str(&joined(value.get(), &ours)),
            _ => body.push_str(value.get()),
        }
        body.push(',');
    }
    if let Some(ours) = tools {
        body.push_str(&format!("\"tools\":[{ours}],"));
    }
    if call.stream {
        body.push_str("\"stream\":true,");
        if !call.params.iter().any(|(name, _)| name == "stream_options") {
            body.push_str("\"stream_options\":{\"include_usage\":true},");
        }
    }
    body.push_str("\"messages\":[");
    let mut blobs = call.blobs.in_order();
    for (n, message) in call.conversation(images).enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&for_model(&message, &mut blobs));
    }
    body.push_str("]}");
    body
}

fn tools_text(tools: &[Box<RawValue>]) -> Option<String> {
    let texts: Vec<_> = tools.iter().map(|tool| tool.get()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// The caller's tool list with the gateway's appended. Anything but a list is left for the server
/// to refuse.
fn joined(list: &str, ours: &str) -> String {
    let open = list.trim_end().strip_suffix(']').filter(|open| open.starts_with('['));
    match open.map(str::trim_end) {
        None if list == "null" => format!("[{ours}]"),
        None => list.to_owned(),
        Some("[") => format!("[{ours}]"),
        Some(open) => format!("{open},{ours}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::message::Message;

    #[test]
    fn sbp_l1_08_the_callers_fields_go_upstream_as_they_came() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let params = vec![("model".into(), raw("\"m\"")), ("temperature".into(), raw("1.50"))];
        let messages = [Message::text("user", "a"), Message::text("assistant", "b")];
        let messages = messages.iter().collect();
        let call = Call::plain("m".into(), params, messages, true);
        assert_eq!(
            body(&call, 0),
            r#"{"model":"m","temperature":1.50,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#
        );
    }

    #[test]
    fn sbp_l1_12_notes_and_tools_of_the_gateway_join_the_callers() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let said = [Message::text("system", "s"), Message::text("user", "u")];
        let call = |params| Call {
            notes: vec![Message::text("system", "n")],
            tools: [raw("{\"t\":1}")].into(),
            ..Call::plain("m".into(), params, said.iter().collect(), false)
        };
        let messages = r#""messages":[{"role":"system","content":"s"},{"role":"system","content":"n"},{"role":"user","content":"u"}]"#;
        for (theirs, all) in [
            (r#"[{"x":"tools"}]"#, r#"[{"x":"tools"},{"t":1}]"#),
            ("[ ]", r#"[{"t":1}]"#),
            ("null", r#"[{"t":1}]"#),
            ("7", "7"),
        ] {
            let sent = body(&call(vec![("tools".into(), raw(theirs))]), 0);
            assert_eq!(sent, format!("{{\"tools\":{all},{messages}}}"));
        }
        assert_eq!(body(&call(vec![]), 0), format!("{{\"tools\":[{{\"t\":1}}],{messages}}}"));
    }
}
