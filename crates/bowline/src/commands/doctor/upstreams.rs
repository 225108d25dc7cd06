//! The upstreams: those of the settings, and those of the running gateway, which may have been
//! started with other ones.

use std::time::Duration;

use bowline_gateway::model::Models;
use bowline_net::outbound;

use super::Finding;
use crate::local::Running;
use crate::settings::Settings;

const CHECK: &str = "upstream";
const PATIENCE: Duration = Duration::from_secs(10);

/// Do the upstreams answer, and do they accept our keys?
pub(super) async fn findings(settings: &Settings, running: Option<&Running>) -> Vec<Finding> {
    let models = match Models::new(&settings.gateway) {
        Ok(models) => models,
        Err(error) => return vec![Finding::fail(CHECK, error.to_string())],
    };
    let mut findings = Vec::new();
    let mut probed = Vec::new();
    for upstream in models.upstreams() {
        let (name, at) = (upstream.name(), upstream.address());
        findings.push(match upstream.probe().await {
            Ok(401 | 403) => {
                let detail = format!("{name} at {at} refuses the key; check key_env or key_file");
                Finding::fail(CHECK, detail)
            }
            Ok(200..=299) => Finding::ok(CHECK, format!("{name} at {at} answers")),
            Ok(status) => {
                Finding::warn(CHECK, format!("{name} at {at} answers {status} to GET /models"))
            }
            Err(failure) => Finding::fail(CHECK, failure.to_string()),
        });
        probed.push(at);
    }
    for (name, at) in running.iter().flat_map(|running| &running.upstreams) {
        if !probed.contains(at) {
            findings.push(of_the_gateway(name, at).await);
        }
    }
    if findings.is_empty() {
        let detail = "none configured; the built-in offline agent answers";
        findings.push(Finding::ok(CHECK, detail));
    }
    findings
}

/// An upstream that only the running gateway knows. Its key is not known here, so that any answer is
/// a good one.
async fn of_the_gateway(name: &str, at: &str) -> Finding {
    let Ok(url) = format!("{}/models", at.trim_end_matches('/')).parse::<url::Url>() else {
        return Finding::warn(CHECK, format!("{name} of the gateway has no usable address"));
    };
    let asked = match outbound::client(&url).timeout(PATIENCE).build() {
        Ok(http) => http.get(url).send().await,
        Err(error) => Err(error),
    };
    match asked {
        Ok(_) => Finding::ok(CHECK, format!("{name} of the gateway, at {at}, answers")),
        Err(error) => {
            let why = outbound::reason(error);
            let detail = format!("{name} of the gateway, at {at}, cannot be reached: {why}");
            Finding::fail(CHECK, detail)
        }
    }
}
