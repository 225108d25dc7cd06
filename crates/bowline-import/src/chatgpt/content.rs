//! The content of a ChatGPT message: a dozen kinds, all reduced to pieces of text.

use std::collections::HashSet;

use bowline_pyjson::{Text, Value};

use super::super::words::{joined, said, shortened, shown};

/// The content of one message.
#[derive(Debug, Default)]
pub(super) struct Content<'t> {
    pub(super) pieces: Vec<Piece<'t>>,
    /// The model's reasoning, not its answer.
    pub(super) is_thought: bool,
    /// Custom instructions, or ChatGPT's memory of the user.
    pub(super) is_context: bool,
    /// The pieces represent the whole content.
    pub(super) is_all_there_is: bool,
}

/// A piece of the content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece<'t> {
    Text(Text<'t>),
    /// A file whose bytes are not in `conversations.json`.
    Elsewhere {
        kind: &'static str,
        name: String,
    },
    /// A part of a kind that is not known here, by its name.
    Unknown(String),
}

impl<'t> Piece<'t> {
    /// The text for models.
    pub(super) fn told(self) -> Text<'t> {
        match self {
            Self::Text(text) => text,
            Self::Elsewhere { kind, name } => format!("[{kind}: {name}]").into(),
            Self::Unknown(kind) => format!("[{kind}]").into(),
        }
    }
}

impl<'t> Content<'t> {
    pub(super) fn read(content: Option<&Value<'t>>, metadata: Option<&Value<'t>>) -> Self {
        let Some(content) = content else { return Self::default() };
        let text = |name: &str| said(content.get(name)).cloned();
        let texts = |names: &[&str]| -> Vec<Piece<'t>> {
            let texts: Vec<Text<'t>> = names.iter().filter_map(|name| text(name)).collect();
            let joined = (!texts.is_empty()).then(|| joined(&texts, "\n"));
            joined.map(Piece::Text).into_iter().collect()
        };
        let kind = content.get("content_type").and_then(Value::as_str).unwrap_or_default();
        let mut read = Self::default();
        match kind {
            "thoughts" | "reasoning_recap" => read.is_thought = true,
            "user_editable_context" => {
                read.pieces = texts(&["user_profile", "user_instructions"]);
                read.is_context = !read.pieces.is_empty();
            }
            "model_editable_context" => {
                read.pieces = texts(&["model_set_context"]);
                read.is_context = !read.pieces.is_empty();
            }
            "tether_quote" => read.pieces = texts(&["title", "url", "text"]),
            _ => match content.get("parts").and_then(Value::as_array) {
                Some(parts) => {
                    read.pieces = parts.iter().filter_map(piece).collect();
                    let members = content.as_object().map_or(0, |content| content.len());
                    read.is_all_there_is =
                        kind == "text" && members == 2 && matches!(parts, [Value::String(_)]);
                }
                None => {
                    let text = content.as_text().cloned();
                    let text = text.or_else(|| BODIES.into_iter().find_map(text_of(content)));
                    read.pieces = text.map(Piece::Text).into_iter().collect();
                }
            },
        }
        if !read.is_thought {
            read.attach(metadata);
        }
        read
    }

    /// Adds the attached files, unless a part already refers to them.
    fn attach(&mut self, metadata: Option<&Value<'t>>) {
        let attached = metadata.and_then(|metadata| metadata.get("attachments"));
        let attached = attached.and_then(Value::as_array).unwrap_or_default();
        if attached.is_empty() {
            return;
        }
        let shown_already: HashSet<String> = self.pieces.iter().filter_map(Piece::name).collect();
        for file in attached {
            let id = said(file.get("id")).map(shown);
            if id.as_ref().is_some_and(|id| shown_already.contains(id)) {
                continue;
            }
            let name = said(file.get("name")).map(shown).or(id).unwrap_or_else(|| "?".into());
            self.pieces.push(Piece::Elsewhere { kind: "file", name: shortened(&name) });
        }
    }
}

impl Piece<'_> {
    fn name(&self) -> Option<String> {
        if let Self::Elsewhere { name, .. } = self { Some(name.clone()) } else { None }
    }
}

/// One part of the content; none if it is empty.
fn piece<'t>(part: &Value<'t>) -> Option<Piece<'t>> {
    let kind = match part {
        Value::Null => return None,
        Value::String(_) => return said(Some(part)).cloned().map(Piece::Text),
        Value::Object(part) => said(part.get("content_type")).map(shown).unwrap_or_default(),
        _ => String::new(),
    };
    let pointer = |value: &Value<'_>| {
        let pointer = shown(said(value.get("asset_pointer"))?);
        // `file-service://file-x` and `sediment://file_x`: the name of the file comes last.
        let name = pointer.rsplit('/').find(|name| !name.is_empty());
        name.map(shortened)
    };
    let elsewhere = |kind, value| {
        let name = pointer(value).unwrap_or_else(|| "?".into());
        Some(Piece::Elsewhere { kind, name })
    };
    match kind.as_str() {
        "image_asset_pointer" => elsewhere("image", part),
        "audio_asset_pointer" => elsewhere("audio", part),
        "video_container_asset_pointer" => elsewhere("video", part),
        "real_time_user_audio_video_asset_pointer" => {
            elsewhere("recording", part.get("audio_asset_pointer").unwrap_or(part))
        }
        kind => match BODIES.into_iter().find_map(text_of(part)) {
            Some(text) => Some(Piece::Text(text)),
            None if pointer(part).is_some() => elsewhere("file", part),
            None if kind.is_empty() => Some(Piece::Unknown("part".into())),
            None => Some(Piece::Unknown(shortened(kind))),
        },
    }
}

fn text_of<'v, 't>(value: &'v Value<'t>) -> impl Fn(&str) -> Option<Text<'t>> + use<'v, 't> {
    move |name| said(value.get(name)).cloned()
}

/// Members with the text of contents without parts: code and its output, web pages, errors.
const BODIES: [&str; 5] = ["text", "result", "summary", "content", "snippet"];
