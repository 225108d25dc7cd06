//! Somebody who stops the agent of a session now and then, at any replica.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use crate::process::DEADLINE;
use crate::reach::{Reach, Session};
use crate::seed::Dice;

pub(crate) async fn cancels(
    reach: Reach,
    session: Session,
    mut dice: Dice,
    stop: watch::Receiver<bool>,
) {
    let http = reqwest::Client::new();
    reach.record.with(|history| history.cancelling(&session.id));
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(20 + dice.below(400) as u64)).await;
        let url = &reach.replica_urls[dice.below(reach.replica_urls.len())];
        let url = format!("{url}/v1/sessions/{}/cancel", session.id);
        let cancelled = http.post(url).json(&json!({})).timeout(DEADLINE).send().await;
        if let Err(error) = cancelled {
            assert!(!error.is_timeout(), "a cancel hangs");
        }
    }
}
