//! The default model of a gateway that was given an upstream and no model: the first one that the
//! upstream lists. Without it, messages that name no model would go to the built-in agent.

use bowline_gateway::model::Models;

use crate::settings::Settings;
use crate::terminal::one_line;

/// What became of the question.
#[derive(Debug)]
pub(super) enum FirstModel {
    /// A model is set, or there is no upstream to ask.
    NotAsked,
    Found(String),
    /// The upstream did not say; the gateway starts anyway.
    Unknown(String),
}

impl FirstModel {
    pub(super) async fn ask(settings: &Settings) -> Self {
        // Only the upstream of --upstream and BOWLINE_UPSTREAM_URL, which serves every model: which
        // of several is meant is for the user to say.
        let default = settings.gateway.upstream.get("default");
        let serves_all = default.is_some_and(|upstream| upstream.models.is_empty());
        if !settings.is_default("default_model") || !serves_all {
            return Self::NotAsked;
        }
        // A configuration that cannot be used is reported by the start.
        let Ok(models) = Models::new(&settings.gateway) else { return Self::NotAsked };
        let Some(upstream) = models.upstreams().find(|upstream| upstream.name() == "default")
        else {
            return Self::NotAsked;
        };
        match upstream.models().await {
            Ok(models) => match models.into_iter().next() {
                // Text of another server.
                Some(first) => Self::Found(one_line(&first)),
                None => Self::Unknown("the upstream lists no models".into()),
            },
            Err(failure) => Self::Unknown(one_line(&failure.message)),
        }
    }

    /// What to tell the user about the default model.
    pub(super) fn sentence(&self) -> Option<String> {
        match self {
            Self::NotAsked => None,
            Self::Found(_) => {
                Some("the upstream's first model, --model NAME chooses another".into())
            }
            Self::Unknown(why) => Some(format!(
                "the built-in agent answers messages that name no model, because {why}; --model \
                 NAME chooses one"
            )),
        }
    }
}
