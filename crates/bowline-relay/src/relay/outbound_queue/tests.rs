use super::*;

fn queue(role: Role, frames: usize, bytes: usize) -> OutboundQueue {
    OutboundQueue::new(ConnectionId(1), role, QueueLimits { frames, bytes })
}

fn push(queue: &OutboundQueue, payload: &[u8]) -> Pushed {
    queue.push(&mut queue.lock(), Masked::plain(payload))
}

#[test]
fn sbrp_relay_08_a_queue_holds_so_many_messages_and_no_more() {
    let queue = queue(Role::Client, 3, 1 << 20);
    for _ in 0..3 {
        assert_eq!(push(&queue, b"x"), Pushed::Queued);
    }
    assert_eq!(push(&queue, b"x"), Pushed::Full, "its writer has not run yet");
    queue.lock().set_blocked(0);
    assert_eq!(push(&queue, b"x"), Pushed::TooSlow);
    assert_eq!(queue.lock().cause(), Some(CloseCause::Backpressure));
    assert!(!queue.lock().takes_from(ConnectionId(2), Role::Daemon), "it takes nothing more");
}

#[test]
fn sbrp_relay_08_what_is_being_written_still_counts() {
    let queue = queue(Role::Client, 100, 20);
    assert_eq!(push(&queue, &[7; 10]), Pushed::Queued);
    let mut writing = Vec::new();
    assert!(queue.lock().take(&mut writing));
    assert_eq!(writing.len(), 12);
    assert_eq!(push(&queue, &[7; 10]), Pushed::Full);
    assert!(!queue.lock().take(&mut Vec::new()), "written now");
    assert_eq!(push(&queue, &[7; 10]), Pushed::Queued);
    assert_eq!(queue.depth(), (1, 12));
}

#[test]
fn one_message_fits_however_small_the_room() {
    let queue = queue(Role::Client, 1, 1);
    assert_eq!(push(&queue, &[7; 1000]), Pushed::Queued);
    assert_eq!(push(&queue, b"x"), Pushed::Full);
}

#[test]
fn a_slow_daemon_holds_its_clients_back() {
    let queue = queue(Role::Daemon, 1, 1 << 20);
    assert_eq!(push(&queue, b"x"), Pushed::Queued);
    queue.lock().set_blocked(0);
    assert_eq!(push(&queue, b"x"), Pushed::Full);
    assert_eq!(queue.lock().cause(), None);
}

#[test]
fn the_relays_own_words_are_bounded_too() {
    let queue = queue(Role::Client, 1, 1 << 20);
    for _ in 0..10_000 {
        queue.tell(ControlCode::SessionPaused, SessionId::from_wire(1));
    }
    assert_eq!(queue.lock().cause(), Some(CloseCause::Backpressure));
    assert!(queue.depth().0 <= 1 + OWN_MESSAGES);
}

#[test]
fn sbrp_relay_18_a_client_takes_from_the_daemon_it_is_paired_with() {
    let queue = queue(Role::Client, 8, 1 << 20);
    assert!(!queue.lock().takes_from(ConnectionId(9), Role::Client));
    queue.reroute(ClientRoute::Paired(ConnectionId(9)), None, None);
    assert!(queue.lock().takes_from(ConnectionId(9), Role::Client));
    assert!(!queue.lock().takes_from(ConnectionId(8), Role::Client));
    let told = (ControlCode::SessionPaused, SessionId::from_wire(1).unwrap());
    queue.reroute(ClientRoute::Paused, None, Some(told));
    assert!(!queue.lock().takes_from(ConnectionId(9), Role::Client));
    assert_eq!(queue.depth().0, 1, "and it is told");
}

#[test]
fn a_sender_waits_once_for_the_same_room() {
    let queue = queue(Role::Daemon, 1, 1);
    let waker = Waker::noop();
    let mut state = queue.lock();
    let known = state.wait(waker, None);
    assert_eq!(state.wait(waker, Some(known)), known);
    assert_eq!(state.drained().len(), 1);
    assert_ne!(state.wait(waker, Some(known)), known, "a new wait after room was there");
    assert_eq!(state.shut().len(), 1);
}

#[test]
fn sbrp_relay_19_who_is_told_of_a_pause_is_in_one() {
    let queue = queue(Role::Client, 8, 1 << 20);
    let session = SessionId::from_wire(1).unwrap();
    for (route, told) in
        [(ClientRoute::Paused, 1), (ClientRoute::Pending, 1), (ClientRoute::Closed, 0)]
    {
        queue.reroute(route, None, None);
        let before = queue.depth().0;
        assert!(!matches!(queue.route(session, session), Route::To(_)));
        assert_eq!(queue.depth().0 - before, told);
    }
}

#[test]
fn sbrp_relay_06_who_is_closed_for_a_foreign_session_is_told_by_its_own_connection() {
    let queue = queue(Role::Client, 8, 1 << 20);
    let [own, foreign] = [1, 2].map(|id| SessionId::from_wire(id).unwrap());
    queue.reroute(ClientRoute::Paused, None, None);
    let route = queue.route(own, foreign);
    assert!(matches!(route, Route::Refuse(ControlCode::SessionNotFound)));
    assert_eq!(queue.depth().0, 0, "once, as its last word");
}

#[test]
fn sbrp_relay_08_who_waits_for_a_receiver_is_woken_when_its_socket_blocks() {
    let queue = queue(Role::Client, 100, 30);
    assert_eq!(push(&queue, &[7; 20]), Pushed::Queued);
    queue.lock().take(&mut Vec::new());
    assert_eq!(push(&queue, &[7; 20]), Pushed::Full, "its writer has not run yet");
    queue.lock().wait(Waker::noop(), None);
    // Half of it was written, so there is space again.
    assert_eq!(queue.lock().set_blocked(8).len(), 1);
    assert_eq!(push(&queue, &[7; 10]), Pushed::Queued);
    // Nothing moves any more: the sender is not kept waiting, and the receiver is closed.
    queue.lock().wait(Waker::noop(), None);
    assert_eq!(queue.lock().set_blocked(8).len(), 0, "nothing changed since");
    assert_eq!(push(&queue, &[7; 20]), Pushed::TooSlow);
}

#[test]
fn sbrp_relay_08_who_takes_much_may_fall_behind_by_as_much_for_a_moment() {
    let queue = queue(Role::Client, 1000, 1000);
    let mut writing = Vec::new();
    // It takes 3 KB.
    for _ in 0..3 {
        assert_eq!(push(&queue, &[7; 900]), Pushed::Queued);
        assert!(queue.lock().take(&mut writing));
        writing.clear();
        assert!(!queue.lock().take(&mut writing), "all is written");
    }
    // Then nothing: as much may wait for it, and no more.
    assert_eq!(queue.lock().set_blocked(0).len(), 0);
    for _ in 0..3 {
        assert_eq!(push(&queue, &[7; 850]), Pushed::Queued);
    }
    assert_eq!(push(&queue, &[7; 850]), Pushed::TooSlow);
}

#[test]
fn what_was_taken_is_forgotten_after_a_while() {
    let (start, mut taken) = (Instant::now(), RecentlyTaken::default());
    taken.add(700, start);
    assert_eq!(taken.bytes(start + BURST_TIME / 2), 700);
    assert_eq!(taken.bytes(start + BURST_TIME), 700, "of the period before");
    taken.add(100, start + BURST_TIME);
    assert_eq!(taken.bytes(start + 2 * BURST_TIME), 100);
    assert_eq!(taken.bytes(start + 5 * BURST_TIME), 0);
}
