//! Table tests of the reader.

use super::*;
use bowline_sbp::delivery::{Delivery, LoggedTurn, Mode};
use bowline_sbp::frame::{SessionAttached, TurnStatus};
use bowline_sbp::id::SessionId;
use jiff::Timestamp;
use uuid::Uuid;

pub(super) const SESSION: SessionId = SessionId(Uuid::nil());

pub(super) fn id(n: u64) -> TurnId {
    TurnId(Uuid::from_u128(n.into()))
}

pub(super) fn logged(seq: Seq, content: &str) -> LoggedTurn {
    LoggedTurn {
        seq,
        turn_id: id(seq),
        role: "assistant".into(),
        content: content.into(),
        model: None,
        created_at: Timestamp::UNIX_EPOCH,
        step_count: seq,
        cost_usd: 0.0,
        status: TurnStatus::Complete,
    }
}

pub(super) fn attached() -> ServerFrame {
    ServerFrame::SessionAttached(SessionAttached {
        session_id: SESSION,
        surface_id: None,
        device_type: "desktop".into(),
        queued_turns: 3,
        tether_turns_pending: 3,
        mcp_tools_registered: vec![],
        sbp_version: "1.2".into(),
        sbp_level: "L2".into(),
        session_token: None,
    })
}

fn whole(seq: Seq) -> ServerFrame {
    Delivery::new(SESSION, Mode::Whole, 0, seq).logged(logged(seq, "text")).remove(0)
}

fn chunk(seq: Seq, offset: u64, delta: &str) -> ServerFrame {
    ServerFrame::TurnChunk {
        chunk_id: id(seq),
        delta: delta.into(),
        session_id: SESSION,
        seq,
        offset,
        v0_9: None,
    }
}

fn complete(seq: Seq) -> ServerFrame {
    Delivery::new(SESSION, Mode::Chunks, 0, 0).logged(logged(seq, "text")).remove(1)
}

/// The steps as short text for the tables.
fn short(steps: Result<Vec<Step>, Ending>) -> String {
    let steps = match steps {
        Ok(steps) => steps,
        Err(ending) => return format!("{ending:?}"),
    };
    let name = |step| match step {
        Step::Give(Event::Attached { pending, reconnected, .. }) => {
            format!("attached {pending} {reconnected}")
        }
        Step::Give(Event::Turn(turn)) => format!("turn {}", turn.seq),
        Step::Give(Event::Chunk { text, restarted: false, .. }) => format!("+{text}"),
        Step::Give(Event::Chunk { text, restarted: true, .. }) => format!("={text}"),
        Step::Give(Event::Complete(done)) => format!("complete {}", done.seq),
        Step::Give(Event::Accepted { client_turn_id, .. }) => format!("accepted {client_turn_id}"),
        Step::Give(Event::Failed { client_turn_id, code, .. }) => {
            format!("failed {client_turn_id:?} {code}")
        }
        Step::Give(other) => format!("{other:?}"),
        Step::Say(ClientFrame::Ack { seq }) => format!("ack {seq}"),
        Step::Say(frame) => format!("{frame:?}"),
        Step::Settle(id) => format!("settle {id}"),
        Step::Open(_) => "open".into(),
    };
    steps.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Each row: a frame, and its steps after all rows above.
fn table<const N: usize>(rows: [(ServerFrame, &str); N]) {
    let mut reader = Reader::default();
    for (n, (frame, expected)) in rows.into_iter().enumerate() {
        assert_eq!(short(reader.read(frame)), expected, "row {n}");
    }
}

#[test]
fn sbp_l2_06_a_repeated_turn_is_dropped_and_acknowledged_again() {
    table([
        (attached(), "attached 3 false, open"),
        (whole(2), "turn 2, ack 2"),
        (chunk(4, 0, "text"), "+text"),
        (complete(4), "complete 4, ack 4"),
        (attached(), "attached 3 true, open"),
        (whole(2), "ack 2"),
        (whole(4), "ack 4"),
        (whole(6), "turn 6, ack 6"),
        (chunk(4, 0, "text"), ""),
        (complete(4), "ack 4"),
    ]);
}

#[test]
fn sbp_l2_08_a_turn_in_flight_goes_on_where_the_program_is() {
    table([
        (chunk(2, 0, "Hel"), "+Hel"),
        (attached(), "attached 3 false, open"),
        (chunk(2, 0, "Hello"), "+lo"),
        (attached(), "attached 3 true, open"),
        (chunk(2, 0, "Help"), "=Help"),
        (attached(), "attached 3 true, open"),
        (chunk(2, 0, "He"), ""),
        (complete(2), "=He, complete 2, ack 2"),
    ]);
}

#[test]
fn g18_the_text_of_a_turn_that_is_run_again_is_void() {
    let restarted = |seq| ServerFrame::TurnRestarted {
        chunk_id: id(seq),
        turn_id: id(seq),
        session_id: SESSION,
    };
    table([
        (restarted(2), ""),
        (chunk(2, 0, "Hel"), "+Hel"),
        (attached(), "attached 3 false, open"),
        (restarted(2), "="),
        (chunk(2, 0, "Hello"), "+Hello"),
        (complete(2), "complete 2, ack 2"),
        (chunk(4, 0, "te"), "+te"),
        (whole(4), "turn 4, ack 4"),
        (restarted(4), ""),
    ]);
}

#[test]
fn a_whole_turn_comes_though_chunks_showed_part_of_it() {
    table([
        (chunk(2, 0, "te"), "+te"),
        (whole(2), "turn 2, ack 2"),
        (chunk(4, 0, "next"), "+next"),
        (complete(4), "complete 4, ack 4"),
    ]);
}

#[test]
fn text_that_is_missing_ends_the_connection_before_the_turn_is_acknowledged() {
    table([
        (complete(2), "Skipped"),
        (chunk(2, 5, "late"), "Skipped"),
        (attached(), "attached 3 false, open"),
        (whole(2), "turn 2, ack 2"),
        (chunk(4, 0, ""), ""),
        (complete(4), "complete 4, ack 4"),
    ]);
}

#[test]
fn messages_are_settled_by_either_answer_and_pings_answered() {
    let failed = |client_turn_id: Option<&str>| ServerFrame::TurnFailed {
        client_turn_id: client_turn_id.map(Into::into),
        turn_id: None,
        session_id: SESSION,
        code: "SBP_UPSTREAM".into(),
        message: "m".into(),
    };
    let (client_turn_id, turn_id, session_id) = ("a".into(), id(2), SESSION);
    table([
        (ServerFrame::TurnAccepted { client_turn_id, turn_id, session_id }, "settle a, accepted a"),
        (failed(Some("b")), "settle b, failed Some(\"b\") SBP_UPSTREAM"),
        (failed(None), "failed None SBP_UPSTREAM"),
        (ServerFrame::Ping {}, "Pong"),
        (ServerFrame::Pong {}, ""),
        (ServerFrame::Unknown, ""),
    ]);
}

#[test]
fn sbp_l2_03_refusals_are_known_from_the_frame_already() {
    let detail = String::from("d");
    table([
        (ServerFrame::Forbidden { detail: detail.clone() }, "Closed(4003)"),
        (
            ServerFrame::SessionNotFound { session_id: "s".into(), detail: detail.clone() },
            "Closed(4004)",
        ),
        (ServerFrame::ProtocolError { detail }, ""),
    ]);
    let mut reader = Reader::default();
    reader.read(ServerFrame::ProtocolError { detail: "no `type`".into() }).unwrap();
    assert_eq!(reader.complaint().as_deref(), Some("no `type`"));
    assert_eq!(reader.complaint(), None);
}

#[test]
fn turns_too_long_ago_to_be_remembered_are_known_by_position() {
    let mut reader = Reader::default();
    let last = REMEMBERED as u64 + 10;
    for seq in 1..=last {
        assert_eq!(short(reader.read(whole(seq))), format!("turn {seq}, ack {seq}"));
    }
    for seq in 1..=last {
        assert_eq!(short(reader.read(whole(seq))), format!("ack {seq}"));
    }
    assert_eq!(reader.given.recent.len(), REMEMBERED);
}

#[test]
fn a_new_turn_at_an_old_position_is_not_swallowed() {
    let mut reader = Reader::default();
    reader.read(whole(8)).unwrap();
    assert_eq!(short(reader.read(whole(6))), "turn 6, ack 6");
}
