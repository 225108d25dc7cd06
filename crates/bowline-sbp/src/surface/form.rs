//! Chooses the output form for a surface (SBP-L4-03, SBP-L4-04).
//!
//! Invariant: a surface without a usable context gets no form, hence the original text.

use bowline_adapt::{Form, Kind, Language};

use super::SurfaceContext;

/// The token limit for small devices that declare none: two or three sentences.
pub(crate) const SHORT: u32 = 60;

impl SurfaceContext {
    /// The form for this surface; none if the text is sent unchanged.
    pub fn form(&self) -> Option<Form> {
        let device = |name: &str| self.device_type.as_str().eq_ignore_ascii_case(name);
        let can = |name: &str| self.ui_capabilities.iter().any(|c| c.eq_ignore_ascii_case(name));
        let mute = self.ui_capabilities.is_empty();
        let short = device("iot") || device("watch");
        let limit = self.max_output_tokens.or(short.then_some(SHORT));
        let kind = if device("voice") || (can("audio") && !can("text") && !can("markdown")) {
            Kind::Speech { language: Language::of(self.locale.as_deref()) }
        } else if short || !(mute || can("markdown")) {
            Kind::Plain { images: can("images") }
        } else {
            Kind::Markdown { tables: mute || can("tables"), images: mute || can("images") }
        };
        let untouched = kind == Kind::Markdown { tables: true, images: true } && limit.is_none();
        (!untouched).then_some(Form { kind, limit })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn form(surface: Value) -> Option<Form> {
        SurfaceContext::read(Some(&surface)).form()
    }

    fn kind(surface: Value) -> Option<Kind> {
        form(surface).map(|form| form.kind)
    }

    #[test]
    fn sbp_l4_04_bad_or_minimal_context_leaves_the_text_as_it_is() {
        for surface in [
            json!(null),
            json!("voice"),
            json!([1, 2]),
            json!({}),
            json!({ "device_type": 7, "ui_capabilities": "markdown", "max_output_tokens": "many" }),
            json!({ "device_type": "smart-fridge", "ui_capabilities": [] }),
            json!({ "ui_capabilities": [null, 3], "max_output_tokens": 0, "locale": "de" }),
            json!({ "max_output_tokens": -5 }),
        ] {
            assert_eq!(form(surface.clone()), None, "{surface}");
        }
    }

    #[test]
    fn sbp_l4_04_a_surface_that_shows_everything_gets_the_original() {
        for device in ["desktop", "browser", "mobile", "unknown"] {
            let all = json!(["Markdown", "tables", "images", "audio", "streaming"]);
            assert_eq!(form(json!({ "device_type": device, "ui_capabilities": all })), None);
            assert_eq!(form(json!({ "device_type": device })), None);
        }
    }

    #[test]
    fn sbp_l4_03_a_list_without_markdown_means_plain_text() {
        let plain = |images| Some(Kind::Plain { images });
        assert_eq!(kind(json!({ "ui_capabilities": ["text"] })), plain(false));
        assert_eq!(kind(json!({ "ui_capabilities": ["streaming", "images"] })), plain(true));
        assert_eq!(kind(json!({ "ui_capabilities": ["audio", "text"] })), plain(false));
    }

    #[test]
    fn sbp_l4_03_audio_alone_or_a_voice_device_means_speech() {
        let speech = |language| Some(Kind::Speech { language });
        assert_eq!(kind(json!({ "ui_capabilities": ["audio"] })), speech(Language::English));
        assert_eq!(kind(json!({ "device_type": "Voice" })), speech(Language::English));
        for (locale, language) in [
            ("de", Language::German),
            ("de-CH", Language::German),
            ("DE_at", Language::German),
            ("en-GB", Language::English),
            ("fr-FR", Language::Other),
            ("den", Language::Other),
        ] {
            let surface = json!({ "device_type": "voice", "ui_capabilities": ["markdown"], "locale": locale });
            assert_eq!(kind(surface), speech(language), "{locale}");
        }
    }

    #[test]
    fn sbp_l4_03_markdown_without_tables_or_images_loses_only_those() {
        let can = |list: Value| kind(json!({ "ui_capabilities": list }));
        let markdown = |tables, images| Some(Kind::Markdown { tables, images });
        assert_eq!(can(json!(["markdown"])), markdown(false, false));
        assert_eq!(can(json!(["markdown", "tables"])), markdown(true, false));
        assert_eq!(can(json!(["markdown", "images", "audio"])), markdown(false, true));
    }

    #[test]
    fn sbp_l4_03_small_devices_get_short_plain_text() {
        for device in ["iot", "IoT", "watch"] {
            let short = Form { kind: Kind::Plain { images: false }, limit: Some(60) };
            assert_eq!(form(json!({ "device_type": device })), Some(short.clone()));
            let said = json!({ "device_type": device, "max_output_tokens": 12,
                               "ui_capabilities": ["markdown", "tables"] });
            assert_eq!(form(said), Some(Form { limit: Some(12), ..short }));
        }
        let speaker = form(json!({ "device_type": "iot", "ui_capabilities": ["audio"] }));
        let kind = Kind::Speech { language: Language::English };
        assert_eq!(speaker, Some(Form { kind, limit: Some(60) }));
    }

    #[test]
    fn sbp_l4_03_a_limit_alone_leaves_the_markdown() {
        let kind = Kind::Markdown { tables: true, images: true };
        assert_eq!(
            form(json!({ "max_output_tokens": 300 })),
            Some(Form { kind, limit: Some(300) })
        );
    }
}
