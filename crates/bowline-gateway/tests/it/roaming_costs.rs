//! The costs of a session and its related sessions in its lineage (SBP-L3-12).

use bowline_gateway::config::Price;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, list, turn};
use crate::locked::{by_key, by_token, lock};
use crate::roaming::{forked, made, of};
use crate::upstream::MockUpstream;

/// The costs of a session and its branch, as a number of turns of the scripted upstream: 0.001 USD,
/// 1000 prompt and 100 completion tokens each.
fn spent(lineage: &Value, session: &Session) -> (u64, u64, u64) {
    let costs = list(&lineage["sessions"]);
    let cost = costs.iter().find(|cost| cost["session_id"] == session.id.as_str());
    let cost = cost.unwrap_or_else(|| panic!("no {} in {lineage}", session.id));
    let turns = |cost: &Value| {
        let turns = (cost["cost_usd"].as_f64().unwrap() * 1000.0).round() as u64;
        assert_eq!(cost["prompt_tokens"], turns * 1000, "{cost}");
        assert_eq!(cost["completion_tokens"], turns * 100, "{cost}");
        turns
    };
    let branch = &cost["branch"];
    assert_eq!(branch["complete"], true, "{branch}");
    (turns(cost), turns(branch), branch["sessions"].as_u64().unwrap())
}

#[tokio::test]
async fn sbp_l3_12_each_session_and_branch_has_its_costs_and_nothing_counts_twice() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        lock(config);
        config.prices.insert("*".into(), Price { input: 1.0, output: 0.0 });
    })
    .await;
    let say = async |session: &Session, turns: usize| {
        for _ in 0..turns {
            let body = turn(session, "m", "hi");
            let said = by_key(&bench, Method::POST, "/v1/chat/completions", body).await;
            assert_eq!(said.status, 200, "{}", said.text);
        }
    };
    let first = Session::of(&by_key(&bench, Method::POST, "/v1/sessions", json!({})).await.body);
    say(&first, 2).await;
    let fork = forked(&by_key(&bench, Method::POST, &of(&first, "fork"), json!({})).await);
    say(&fork, 3).await;
    let exported = by_key(&bench, Method::POST, &of(&fork, "export"), json!({})).await;
    let token = json!({ "roaming_token": exported.body["roaming_token"] });
    let import = made(&by_key(&bench, Method::POST, "/v1/sessions/import", token).await);
    say(&import, 1).await;
    let to = json!({ "to_agent_id": "cook" });
    let next = made(&by_key(&bench, Method::POST, &of(&first, "handoff"), to).await);
    say(&next, 4).await;
    for member in [&first, &fork, &import, &next] {
        let lineage = by_key(&bench, Method::GET, &of(member, "lineage"), Value::Null).await.body;
        assert_eq!(lineage["sessions"][0]["session_id"], member.id.as_str(), "this one first");
        assert_eq!(list(&lineage["sessions"]).len(), 4);
        assert_eq!(spent(&lineage, &first), (2, 10, 4), "own turns, and all below");
        assert_eq!(spent(&lineage, &fork), (3, 4, 2), "from its point on");
        assert_eq!(spent(&lineage, &import), (1, 1, 1), "from its arrival on");
        assert_eq!(spent(&lineage, &next), (4, 4, 1));
    }
    // Its token alone shows what it cost itself.
    let alone = by_token(&bench, &fork, Method::GET, &of(&fork, "lineage")).await;
    let costs = list(&alone.body["sessions"]);
    assert_eq!(costs.len(), 1, "{}", alone.text);
    assert_eq!((&costs[0]["session_id"], &costs[0]["branch"]), (&json!(fork.id), &Value::Null));
    assert_eq!(costs[0]["prompt_tokens"], 3000);
}
