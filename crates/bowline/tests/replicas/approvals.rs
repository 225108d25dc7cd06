//! A tool that asks: the device at one replica, the person at another, the turn at a third.

use serde_json::json;

use crate::client::Session;
use crate::installation::{Installation, KEY};

const ASKS: &str = "[tools.policy]\ncamera = \"ask\"";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_a_question_of_an_owner_is_answered_at_another_process() {
    let world = Installation::start(ASKS);
    let [a, b, c] = world.clients();
    for approved in [true, false] {
        let session = a.session().await;
        // The person at this device may approve, and does so elsewhere.
        let shown = Session { token: KEY.to_owned(), ..session.clone() };
        let device = json!({ "surface_id": "phone", "mcp_tools": ["camera"] });
        let mut phone = a.attach(&shown, device).await;
        assert!(world.owns(0, &session).await);
        let asked = tokio::spawn({
            let (c, session) = (c.clone(), session.clone());
            async move { c.say(&session, "call surface tool camera with {}").await }
        });
        let question = phone.until("APPROVAL_REQUEST").await;
        let listed = b.get(&session.path("approvals")).await;
        assert_eq!(listed.body["approvals"][0]["approval_id"], question["approval_id"]);
        let id = question["approval_id"].as_str().unwrap();
        let path = session.path(&format!("approvals/{id}"));
        let decided = b.post(&path, json!({ "approved": approved })).await;
        assert_eq!(decided.status, 200, "{}", decided.text);
        if approved {
            let call = phone.until("TOOL_CALL").await;
            phone.answer(&call, "a cat").await;
        }
        let said = asked.await.unwrap();
        let expected = if approved { "The tool answered: a cat" } else { "does not allow" };
        assert!(said.content().contains(expected), "{}", said.text);
        // The first verdict counts, wherever the second one comes from.
        let again = c.post(&path, json!({ "approved": !approved })).await;
        assert_eq!(again.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", again.text);
    }
}
