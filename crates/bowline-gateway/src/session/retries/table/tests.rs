use bowline_sbp::api::SbpInfo;
use bowline_sbp::error::{Code, Failure};
use uuid::Uuid;

use super::*;

const WINDOW: Duration = Duration::from_secs(600);

/// A table and the time.
struct World {
    table: Table,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self { table: Table::new(WINDOW), now: Instant::now() }
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
    }

    fn arrives(&mut self, request: RequestDigest, turn: TurnId) -> CancellationToken {
        let half_closed = CancellationToken::new();
        self.table.arrived(request, turn, half_closed.clone(), self.now);
        half_closed
    }

    fn accepted(&mut self, request: RequestDigest, ids: (SessionId, TurnId)) {
        self.table.accepted(request, ids, false, false, self.now);
    }

    fn ended(&mut self, request: RequestDigest, turn: TurnId) {
        self.table.ended(request, turn, Some(Arc::new(Ok(done("x")))), self.now);
    }

    fn answered(&mut self, request: RequestDigest, turn: TurnId) {
        self.table.answered(request, turn, false, self.now);
    }

    fn lost(&mut self, request: RequestDigest, turn: TurnId) {
        self.table.lost(request, turn, self.now);
    }

    /// The turn that the request joins.
    fn joined(&self, request: RequestDigest, retried: bool) -> Option<TurnId> {
        self.table.earlier(request, retried, self.now).map(|earlier| earlier.turn)
    }

    /// The turns that a retry and any other request join.
    fn joins(&self, request: RequestDigest) -> [Option<TurnId>; 2] {
        [true, false].map(|retried| self.joined(request, retried))
    }
}

fn names(n: u128) -> (RequestDigest, (SessionId, TurnId)) {
    let id = Uuid::from_u128(n);
    (RequestDigest::of(&[&id.as_bytes()[..]]), (SessionId(id), TurnId(id)))
}

fn done(completion: &str) -> Done {
    let info = serde_json::json!({
        "session_id": Uuid::nil(), "snapshot_id": null, "resume_available": false,
        "resume_prompt": null, "last_checkpoint": null, "step_count": 1, "cost_usd": 0.0,
        "model_routed_to": null, "turn_status": "complete",
    });
    let info: SbpInfo = serde_json::from_value(info).unwrap();
    Done { completion: completion.into(), info, closing: None }
}

#[test]
fn g3_a_request_joins_if_its_client_retries_or_its_first_connection_broke() {
    let mut world = World::new();
    let (request, ids) = names(1);
    assert_eq!(world.joins(request), [None, None]);
    world.table.accepted(request, ids, true, false, world.now);
    assert_eq!(world.joined(request, false), None, "two real requests are two turns");
    let earlier = world.table.earlier(request, true, world.now).unwrap();
    assert_eq!((earlier.session, earlier.turn, earlier.made), (ids.0, ids.1, true));
    world.lost(request, ids.1);
    assert_eq!(world.joined(request, false), Some(ids.1));
    // The next turn of the same words: a late report of the first one does not concern it.
    let next = (ids.0, TurnId(Uuid::from_u128(9)));
    world.accepted(request, next);
    world.lost(request, ids.1);
    assert_eq!(world.joins(request), [Some(next.1), None]);
}

#[test]
fn g3_a_cancelled_turn_is_joined_by_a_retry_and_not_by_a_new_request() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.accepted(request, ids);
    world.lost(request, ids.1);
    let mut cut = done("half an ans");
    cut.info.turn_status = TurnStatus::Cancelled;
    world.table.ended(request, ids.1, Some(Arc::new(Ok(cut))), world.now);
    assert_eq!(world.joins(request), [Some(ids.1), None]);
}

#[test]
fn g3_a_connection_that_broke_before_the_turn_was_accepted_counts() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.arrives(request, ids.1);
    world.lost(request, ids.1);
    assert_eq!(world.joined(request, true), None, "it is not accepted yet");
    world.accepted(request, ids);
    assert_eq!(world.joined(request, false), Some(ids.1));
    let (other, ids) = names(2);
    world.lost(other, ids.1);
    world.accepted(other, ids);
    assert_eq!(world.joined(other, false), Some(ids.1));
}

#[test]
fn g3_a_caller_that_closed_its_side_while_it_waits_is_joined() {
    let mut world = World::new();
    let (request, ids) = names(1);
    let half_closed = world.arrives(request, ids.1);
    world.accepted(request, ids);
    assert_eq!(world.joined(request, false), None);
    half_closed.cancel();
    assert_eq!(world.joined(request, false), Some(ids.1));
}

#[test]
fn g3_an_answered_turn_is_joined_only_by_a_request_that_says_it_is_a_retry() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.arrives(request, ids.1);
    world.accepted(request, ids);
    world.ended(request, ids.1);
    world.answered(request, ids.1);
    assert_eq!(world.joins(request), [Some(ids.1), None], "it may be lost on its way");
    world.passes(WINDOW - Duration::from_secs(1));
    assert_eq!(world.joins(request), [Some(ids.1), None]);
    world.passes(Duration::from_secs(1));
    assert_eq!(world.joins(request), [None, None]);
}

#[test]
fn g3_a_request_that_joins_nothing_replaces_the_earlier_one_when_it_arrives() {
    let mut world = World::new();
    let (request, (session, first)) = names(1);
    let second = TurnId(Uuid::from_u128(2));
    for accepted_late in [false, true] {
        world.arrives(request, first);
        if !accepted_late {
            world.accepted(request, (session, first));
        }
        world.arrives(request, second);
        if accepted_late {
            world.accepted(request, (session, first));
        }
        assert_eq!(world.joined(request, true), None, "the second was not accepted");
        world.lost(request, first);
        world.answered(request, first);
        world.table.refused(request, second);
        assert_eq!(world.joined(request, true), None);
        assert_eq!((world.table.tried.len(), world.table.idle.len()), (0, 0));
    }
}

#[test]
fn g3_once_a_joined_retry_was_answered_the_same_words_are_a_new_turn() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.arrives(request, ids.1);
    world.accepted(request, ids);
    world.lost(request, ids.1);
    assert_eq!(world.joined(request, false), Some(ids.1));
    world.table.joined(request, ids.1, CancellationToken::new());
    world.ended(request, ids.1);
    world.answered(request, ids.1);
    world.lost(request, ids.1);
    assert_eq!(world.joined(request, false), None);
    // A second retry says that the answer did not arrive.
    world.table.joined(request, ids.1, CancellationToken::new());
    world.lost(request, ids.1);
    assert_eq!(world.joined(request, false), Some(ids.1));
}

#[test]
fn g3_a_caller_that_closed_its_side_and_was_answered_is_not_taken_for_lost() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.table.accepted(request, ids, true, false, world.now);
    world.ended(request, ids.1);
    world.table.answered(request, ids.1, true, world.now);
    assert_eq!(world.joins(request), [Some(ids.1); 2], "it may be gone");
    world.passes(IN_FLIGHT);
    assert_eq!(world.joins(request), [Some(ids.1), None]);
}

#[test]
fn g3_an_error_while_the_turn_goes_on_is_no_answer() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.arrives(request, ids.1);
    world.accepted(request, ids);
    world.table.refused(request, ids.1);
    assert_eq!(world.joined(request, true), Some(ids.1));
}

#[test]
fn g3_a_failed_turn_and_an_old_one_are_run_again() {
    let mut world = World::new();
    let (request, ids) = names(1);
    world.table.accepted(request, ids, false, true, world.now);
    let failure = Failure::new(Code::Upstream, "x");
    world.table.ended(request, ids.1, Some(Arc::new(Err(failure))), world.now);
    assert_eq!(world.joins(request), [None, None]);
    world.table.accepted(request, ids, false, true, world.now);
    world.passes(2 * WINDOW);
    assert_eq!(world.joined(request, false), Some(ids.1), "it still runs");
    world.ended(request, ids.1);
    world.passes(WINDOW - Duration::from_secs(1));
    assert_eq!(world.joined(request, false), Some(ids.1), "the window begins at its end");
    world.lost(request, ids.1);
    world.passes(WINDOW - Duration::from_secs(1));
    assert_eq!(world.joined(request, false), Some(ids.1), "or when its caller was lost");
    world.passes(Duration::from_secs(1));
    assert_eq!(world.joins(request), [None, None]);
}

#[test]
fn g11_the_table_is_bounded_and_keeps_running_turns() {
    let mut world = World::new();
    let many = 2 * MOST as u128;
    for n in 0..many {
        let (request, ids) = names(n);
        world.accepted(request, ids);
    }
    assert_eq!(world.joined(names(0).0, true), Some(names(0).1.1), "they run");
    for n in 1..many {
        let (request, ids) = names(n);
        world.ended(request, ids.1);
    }
    let table = &world.table;
    assert_eq!((table.tried.len(), table.idle.len()), (MOST + 1, MOST));
    assert_eq!(world.joined(names(0).0, true), Some(names(0).1.1), "it still runs");
    assert_eq!(world.joined(names(1).0, true), None);
    assert!(world.joined(names(many - 1).0, true).is_some());
    // Its actor ended without it, and will not report its end.
    world.table.stopped(names(0).0, names(0).1.1, world.now);
    world.passes(WINDOW);
    world.lost(names(many).0, names(many).1.1);
    assert_eq!((world.table.tried.len(), world.table.idle.len()), (1, 1));
}

#[test]
fn g11_the_bytes_of_answers_are_bounded() {
    let mut world = World::new();
    let large = "x".repeat(MOST_BYTES / 4);
    for n in 0..10 {
        let (request, ids) = names(n);
        world.accepted(request, ids);
        let outcome = Some(Arc::new(Ok(done(&large))));
        world.table.ended(request, ids.1, outcome, world.now);
        assert!(world.table.bytes <= MOST_BYTES);
    }
    assert_eq!(world.table.tried.len(), 4);
    for n in 0..10 {
        world.arrives(names(n).0, names(n).1.1);
    }
    assert_eq!(world.table.bytes, 0);
}
