mod memory;
mod signature;

use super::*;
use bowline_pyjson::Value;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn contents() -> Contents {
    let message = |kind, message| MessagePart {
        kind,
        message,
        model: None,
        cost_usd: 0.0,
        created_at: at("2026-03-14T08:00:01.5Z"),
        status: TurnStatus::Complete,
        agent_id: None,
        replaces: None,
        carried: None,
    };
    Contents {
        export_id: "e".into(),
        exported_at: at("2026-03-14T09:00:00Z"),
        label: Some("é".into()),
        session: SessionPart {
            id: "s".into(),
            agent: "a".into(),
            status: "running".into(),
            last_task: None,
            created_at: at("2026-03-14T08:00:00Z"),
            step_count: 1,
            metadata: Some(r#"{"colour":"red"}"#.into()),
            instruction: None,
        },
        messages: vec![
            message(EntryKind::Message, Message::text("user", "hi")),
            MessagePart {
                status: TurnStatus::Cancelled,
                model: Some("m".into()),
                cost_usd: 0.25,
                agent_id: Some("critic".parse().unwrap()),
                ..message(EntryKind::Turn, Message::text("assistant", "ho"))
            },
            message(EntryKind::Note, Message::text("system", "gone")),
        ],
        memory: Some(vec![MemoryPart {
            kind: "episodic".into(),
            text: "we met".into(),
            created_at: at("2026-03-01T00:00:00Z"),
        }]),
        snapshot: Some(SnapshotPart {
            id: "x".into(),
            kind: "checkpoint".into(),
            seq: 3,
            at: at("2026-03-14T08:00:02Z"),
        }),
        carried: None,
    }
}

fn canonical(text: &str) -> String {
    Value::parse(text).unwrap().to_canonical()
}

/// A foreign bundle, with the right content id.
fn sealed(text: &str) -> String {
    let mut bundle = Value::parse(text).unwrap();
    let cid = Cid::of_bundle(&bundle);
    bundle.as_object_mut().unwrap().insert("bundle_cid", cid.to_string());
    bundle.to_json()
}

#[test]
fn sbp_l3_03_a_bundle_has_the_protocols_shape() {
    let sealed = contents().seal();
    let bundle = Value::parse(&sealed.text).unwrap();
    let text = |path: &[&str]| {
        let at = path.iter().try_fold(&bundle, |value, name| value.get(name));
        at.map(Value::to_canonical).unwrap_or_default()
    };
    assert_eq!(text(&["sbp_version"]), "\"1.0\"");
    assert_eq!(text(&["bundle_cid"]), format!("\"{}\"", sealed.cid));
    assert_eq!(text(&["session", "agent_external_id"]), "\"a\"");
    assert_eq!(text(&["session", "step_count"]), "1");
    assert_eq!(text(&["memory", "schema_id"]), format!("\"{MEMORY_SCHEMA}\""));
    assert_eq!(text(&["metadata", "message_count"]), "3");
    assert_eq!(text(&["metadata", "total_cost_usd"]), "0.25");
    let first = &bundle.get("messages").unwrap().as_array().unwrap()[0];
    assert_eq!(
        first.to_canonical(),
        r#"{"content": "hi", "cost_usd": 0.0, "created_at": "2026-03-14T08:00:01.5Z", "model_used": null, "role": "user"}"#
    );
}

#[test]
fn sbp_l3_03_a_session_without_messages_costs_zero() {
    let sealed = Contents { messages: Vec::new(), ..contents() }.seal();
    assert!(sealed.text.contains(r#""total_cost_usd":0.0"#), "{}", sealed.text);
}

#[test]
fn sbp_l3_05_opening_and_sealing_again_loses_nothing() {
    let first = contents().seal();
    let (opened, cid) = Contents::open(&first.text).unwrap();
    assert_eq!(cid, first.cid);
    assert_eq!(opened.carried, None);
    assert_eq!(opened.messages[1].agent_id.as_ref().unwrap().as_str(), "critic");
    assert_eq!(opened.messages[2].kind, EntryKind::Note);
    assert_eq!(opened.session.metadata, contents().session.metadata);
    assert_eq!(opened.memory, contents().memory);
    assert_eq!(opened.seal(), first);
}

#[test]
fn sbp_l1_12_memory_of_every_kind_travels() {
    let part = |kind: &str| MemoryPart {
        kind: kind.into(),
        text: format!("a {kind} one"),
        created_at: at("2026-03-01T00:00:00Z"),
    };
    let all = ["semantic", "episodic", "procedural"].map(part).to_vec();
    let sealed = Contents { memory: Some(all.clone()), ..contents() }.seal();
    let (opened, _) = Contents::open(&sealed.text).unwrap();
    assert_eq!(opened.memory, Some(all));
    assert_eq!(opened.seal(), sealed);
    assert!(!contents().seal().text.contains("procedural"), "said only where there is some");
}

#[test]
fn sbp_l3_08_what_has_no_place_here_is_carried() {
    let text = sealed(
        r#"{"sbp_version": "1.7", "future": [1e400, "\ud800"], "exported_at": "x", "label": null,
        "session": {"id": "ses_1", "step_count": 4, "colour": -0, "status": "idle",
                    "agent_external_id": "q", "last_task": "t", "created_at": "2026-03-14T08:00:00Z"},
        "messages": [{"role": "user", "content": "\udfff", "cost_usd": 0, "tokens": 12345678901234567890123,
                      "created_at": "2026-03-14T08:00:01.123456+00:00", "model_used": ["?"]},
                     {"role": "tool", "content": [NaN], "tool_call_id": "c", "created_at": null,
                      "model_used": null, "cost_usd": 0.0}],
        "memory": {"schema_id": "their.memory", "payload": {"x": 1.0}},
        "state_snapshot": {"cursor": 18446744073709551615},
        "metadata": {"export_id": "exp_1", "message_count": 9, "trace": true}}"#,
    );
    let (opened, _) = Contents::open(&text).unwrap();
    assert_eq!(opened.memory, None);
    assert_eq!(opened.session.id, "ses_1");
    assert_eq!(opened.export_id, "exp_1");
    assert_eq!(opened.messages[0].message.as_json(), r#"{"role":"user","content":"\udfff"}"#);
    assert_eq!(opened.messages[0].created_at, at("2026-03-14T08:00:01.123456Z"));
    assert_eq!(opened.messages[1].message.as_json(), r#"{"role":"tool","tool_call_id":"c"}"#);
    let again = opened.seal().text;
    let (before, after) = (Value::parse(&text).unwrap(), Value::parse(&again).unwrap());
    for same in ["future", "messages", "memory", "state_snapshot", "session"] {
        assert_eq!(
            after.get(same).map(Value::to_canonical),
            before.get(same).map(Value::to_canonical),
            "{same}"
        );
    }
    assert_eq!(after.get("metadata").unwrap().get("trace"), Some(&Value::Bool(true)));
    assert_eq!(canonical(&Contents::open(&again).unwrap().0.seal().text), canonical(&again));
    // New messages in this session do not remove it.
    let mut grown = opened.clone();
    grown.memory = contents().memory;
    grown.session.last_task = Some("new".into());
    grown.messages.push(contents().messages[0].clone());
    let (grown, _) = Contents::open(&grown.seal().text).unwrap();
    assert_eq!(grown.session.last_task.as_deref(), Some("new"));
    assert_eq!(grown.memory, contents().memory);
    let alone = Contents { memory: None, ..grown }.seal().text;
    assert_eq!(Value::parse(&alone).unwrap().get("memory"), before.get("memory"));
}

#[test]
fn sbp_l3_06_every_changed_byte_is_found() {
    let text = contents().seal().text;
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        // A change of whitespace between tokens does not change the content.
        let same = Value::parse(&changed).is_ok_and(|v| v.to_canonical() == canonical(&text));
        assert!(same || Contents::open(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn what_is_no_bundle_is_refused_and_named() {
    let refused = |text: &str| Contents::open(text).unwrap_err();
    assert!(matches!(refused("{"), OpenError::NotJson(_)));
    assert_eq!(refused("{}"), OpenError::NoCid);
    assert_eq!(refused("[]"), OpenError::NoCid);
    assert_eq!(refused(r#"{"bundle_cid":"0"}"#), OpenError::WrongCid);
    assert_eq!(refused(&sealed("{}")), OpenError::Version(String::new()));
    assert_eq!(refused(&sealed(r#"{"sbp_version":"2.0"}"#)), OpenError::Version("2.0".into()));
    for (text, why) in [
        (r#"{"sbp_version":"1.0"}"#, "`messages`"),
        (r#"{"sbp_version":"1.0","messages":[]}"#, "`session`"),
        (r#"{"sbp_version":"1.0","messages":[],"session":{}}"#, "`id`"),
        (r#"{"sbp_version":"1.0","messages":[7]}"#, "messages[0]"),
        (r#"{"sbp_version":"1.0","messages":[{}]}"#, "`role`"),
    ] {
        let error = refused(&sealed(text)).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn g11_what_a_bundle_claims_is_bounded_and_nothing_is_lost() {
    let long = "x".repeat(5000);
    let text = sealed(&format!(
        r#"{{"sbp_version": "1.0", "label": "{long}", "metadata": {{"export_id": "{long}"}},
        "session": {{"id": "s", "agent_external_id": "{long}",
                     "bowline": {{"metadata": {{"a": "{}"}}}}}},
        "messages": [{{"role": "user", "content": "a", "cost_usd": -1}},
                     {{"role": "user", "content": "b", "cost_usd": 1.7e308}}],
        "memory": {{"schema_id": "{MEMORY_SCHEMA}", "payload": {{"semantic": [{{"text": "{long}"}}]}}}}}}"#,
        "y".repeat(20_000)
    ));
    let (opened, _) = Contents::open(&text).unwrap();
    assert_eq!(opened.label.as_ref().unwrap().len(), 120);
    assert_eq!((opened.export_id.len(), opened.session.agent.as_str()), (256, ""));
    assert_eq!((opened.session.metadata.clone(), opened.memory.clone()), (None, None));
    assert_eq!(opened.messages.iter().map(|m| m.cost_usd).sum::<f64>(), 0.0);
    let again = opened.seal().text;
    for kept in ["1.7e+308", "yyyy", &long] {
        assert!(again.contains(kept), "{}", &kept[..8]);
    }
}

#[test]
fn a_message_that_python_cannot_read_goes_along_as_text() {
    let raw = format!(r#"{{"role":"user","content":"hi","n":{}}}"#, "9".repeat(5000));
    let raw = serde_json::value::RawValue::from_string(raw).unwrap();
    let mut contents = contents();
    contents.messages[0].message = Message::read(raw).unwrap();
    let (opened, _) = Contents::open(&contents.seal().text).unwrap();
    assert_eq!(opened.messages[0].message.as_json(), r#"{"role":"user","content":"hi"}"#);
    assert!(opened.messages[0].carried.as_ref().unwrap().contains("99999"));
}

#[test]
fn sbp_l3_03_an_instruction_and_superseded_answers_travel_with_their_session() {
    let mut sent = contents();
    sent.session.instruction = Some(vec![Message::text("system", "be brief")]);
    let newer = MessagePart { replaces: Some(2), ..sent.messages[1].clone() };
    sent.messages.push(newer);
    let Sealed { text, cid, .. } = sent.seal();
    let (opened, _) = Contents::open(&text).unwrap();
    assert_eq!(opened.session.instruction, sent.session.instruction);
    let replaces: Vec<_> = opened.messages.iter().map(|part| part.replaces).collect();
    assert_eq!(replaces, [None, None, None, Some(2)]);
    assert_eq!(opened.carried, None);
    assert_eq!(opened.seal().cid, cid, "and on, as it came");
    // What is no system message is no instruction, and no answer supersedes a later one.
    sent.session.instruction = Some(vec![Message::text("user", "be mine")]);
    sent.messages[1].replaces = Some(2);
    let (opened, _) = Contents::open(&sent.seal().text).unwrap();
    assert_eq!((opened.session.instruction, opened.messages[1].replaces), (None, None));
}
