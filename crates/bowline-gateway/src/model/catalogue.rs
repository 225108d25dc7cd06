//! The models that clients may list: those of every upstream, and the built-in agent.
//!
//! Lists of upstreams are cached. While one is asked, others that need the same list wait for that
//! answer instead of asking again. An upstream that does not answer costs its own models only: its
//! last list is served, or the names that the configuration gives it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{LONGEST_NAME, Model, Models, Upstream, offline};

/// After a failure, the list is not asked for again before this, or every caller would wait.
const PAUSE: Duration = Duration::from_secs(30);

/// A model as the upstream describes it.
pub(super) type ModelObject = Map<String, Value>;

/// The last list of one upstream.
#[derive(Debug, Default)]
pub(super) struct CachedList {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    models: Arc<Vec<ModelObject>>,
    /// `None`: never asked.
    ask_at: Option<Instant>,
}

impl CachedList {
    /// The upstream's models, at most `fresh` old unless it does not answer. The lock is held while
    /// it is asked, so that it is asked once.
    async fn of(&self, upstream: &Upstream, fresh: Duration) -> Arc<Vec<ModelObject>> {
        let mut kept = self.kept.lock().await;
        if kept.ask_at.is_some_and(|at| Instant::now() < at) {
            return Arc::clone(&kept.models);
        }
        let wait = match upstream.list().await {
            Ok(models) => {
                kept.models = Arc::new(models);
                fresh
            }
            Err(failure) => {
                // Without its message, which may quote the server.
                let (upstream, status) = (upstream.name(), failure.http_status());
                tracing::warn!(upstream, status, "an upstream does not list its models");
                fresh.min(PAUSE)
            }
        };
        kept.ask_at = Some(Instant::now() + wait);
        Arc::clone(&kept.models)
    }
}

impl Models {
    /// Every model that a client may use, each once: what an upstream lists and would be sent to
    /// it, the configured names, and the built-in agent.
    pub(crate) async fn list(&self) -> Vec<Value> {
        let lists = self.upstreams.iter().filter_map(|one| match &one.model {
            Model::Upstream(upstream) => {
                Some(async { (upstream.name(), one.listed.of(upstream, self.fresh).await) })
            }
            Model::Offline(_) => None,
        });
        let mut seen = HashSet::from([offline::NAME.to_owned()]);
        let mut models = vec![described(named(offline::NAME), "bowline", "offline")];
        for (name, listed) in join_all(lists).await {
            let serves = |id: &str| {
                let routed = self.route(id).is_ok_and(|model| model.name() == name);
                routed && !id.is_empty() && id.len() <= LONGEST_NAME
            };
            for model in listed.iter().cloned().chain(self.configured(name).map(named)) {
                let id = model.get("id").and_then(Value::as_str).unwrap_or_default();
                if serves(id) && seen.insert(id.to_owned()) {
                    models.push(described(model, name, name));
                }
            }
        }
        models
    }

    /// The names that the configuration gives an upstream without wildcards.
    fn configured(&self, upstream: &str) -> impl Iterator<Item = &str> {
        let patterns = self.upstreams.iter().filter(move |one| one.model.name() == upstream);
        let patterns = patterns.flat_map(|one| &one.patterns).map(String::as_str);
        patterns.filter(|pattern| !pattern.contains('*'))
    }
}

fn named(id: &str) -> ModelObject {
    Map::from_iter([("id".to_owned(), json!(id))])
}

/// A model as clients expect it: as the upstream describes it, with the fields of OpenAI's model
/// objects that it lacks, and the name of the upstream.
fn described(mut model: ModelObject, owner: &str, upstream: &str) -> Value {
    for (name, value) in
        [("object", json!("model")), ("created", json!(0)), ("owned_by", json!(owner))]
    {
        model.entry(name).or_insert(value);
    }
    model.insert("upstream".into(), json!(upstream));
    Value::Object(model)
}
