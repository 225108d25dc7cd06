//! Manifest, health and shutdown.

use bowline_sbp::federation::{Manifest, Role};

use crate::world::{Running, id, identity};

#[tokio::test]
async fn sbp_l6_03_a_tracker_says_what_it_is_and_signs_it() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = Running::start(folder.path(), &[], |_| ()).await;
    let (status, shown) = tracker.get("/.well-known/sbp").await;
    assert_eq!((status, &shown["role"]), (200, &"tracker".into()));
    assert_eq!(shown["endpoints"].as_object().unwrap().len(), 1, "a registry, and no session");
    let manifest = Manifest::read(shown.to_string().as_bytes()).unwrap();
    assert_eq!((manifest.role, manifest.gateway_id), (Role::Tracker, id("t")));
    assert_eq!((manifest.key, &manifest.url), (identity(200).public(), &tracker.url));
    let registry = tracker.url.join("/v1/sbp/registry");
    assert_eq!(manifest.endpoints.registry.as_deref(), Some(registry.as_str()));
    assert_eq!(tracker.get("/healthz").await.1["status"], "ok");
    assert_eq!(tracker.get("/readyz").await.1["status"], "ready");
    for path in ["/", "/v1/sessions", "/v1/chat/completions", "/v1/sbp/bundles/x", "/v1/models"] {
        assert_eq!(tracker.get(path).await.0, 404, "{path}: it has no sessions");
    }
    tracker.stop().await;
}
