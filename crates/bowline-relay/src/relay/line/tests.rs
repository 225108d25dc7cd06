use super::*;

fn line(role: Role, frames: usize, bytes: usize) -> Line {
    Line::new(Link(1), role, Room { frames, bytes })
}

fn push(line: &Line, payload: &[u8]) -> Pushed {
    line.push(&mut line.lock(), Masked::plain(payload))
}

#[test]
fn sbrp_relay_08_a_queue_holds_so_many_messages_and_no_more() {
    let line = line(Role::Client, 3, 1 << 20);
    for _ in 0..3 {
        assert_eq!(push(&line, b"x"), Pushed::Queued);
    }
    assert_eq!(push(&line, b"x"), Pushed::Full, "its writer has not run yet");
    line.lock().set_blocked();
    assert_eq!(push(&line, b"x"), Pushed::TooSlow);
    assert_eq!(line.lock().ending(), Some(Ending::Backpressure));
    assert!(!line.lock().takes_from(Link(2), Role::Daemon), "it takes nothing more");
}

#[test]
fn sbrp_relay_08_what_is_being_written_still_counts() {
    let line = line(Role::Client, 100, 20);
    assert_eq!(push(&line, &[7; 10]), Pushed::Queued);
    let mut writing = Vec::new();
    assert!(line.lock().take(&mut writing));
    assert_eq!(writing.len(), 12);
    assert_eq!(push(&line, &[7; 10]), Pushed::Full);
    assert!(!line.lock().take(&mut Vec::new()), "written now");
    assert_eq!(push(&line, &[7; 10]), Pushed::Queued);
    assert_eq!(line.depth(), (1, 12));
}

#[test]
fn one_message_fits_however_small_the_room() {
    let line = line(Role::Client, 1, 1);
    assert_eq!(push(&line, &[7; 1000]), Pushed::Queued);
    assert_eq!(push(&line, b"x"), Pushed::Full);
}

#[test]
fn a_slow_daemon_holds_its_clients_back() {
    let line = line(Role::Daemon, 1, 1 << 20);
    assert_eq!(push(&line, b"x"), Pushed::Queued);
    line.lock().set_blocked();
    assert_eq!(push(&line, b"x"), Pushed::Full);
    assert_eq!(line.lock().ending(), None);
}

#[test]
fn the_relays_own_words_are_bounded_too() {
    let line = line(Role::Client, 1, 1 << 20);
    for _ in 0..10_000 {
        line.tell(ControlCode::SessionPaused, SessionId::from_wire(1));
    }
    assert_eq!(line.lock().ending(), Some(Ending::Backpressure));
    assert!(line.depth().0 <= 1 + OWN_WORDS);
}

#[test]
fn sbrp_relay_18_a_client_takes_from_the_daemon_it_is_paired_with() {
    let line = line(Role::Client, 8, 1 << 20);
    assert!(!line.lock().takes_from(Link(9), Role::Client));
    line.reroute(ClientRoute::Paired(Link(9)), None, None);
    assert!(line.lock().takes_from(Link(9), Role::Client));
    assert!(!line.lock().takes_from(Link(8), Role::Client));
    let told = (ControlCode::SessionPaused, SessionId::from_wire(1).unwrap());
    line.reroute(ClientRoute::Paused, None, Some(told));
    assert!(!line.lock().takes_from(Link(9), Role::Client));
    assert_eq!(line.depth().0, 1, "and it is told");
}

#[test]
fn a_sender_waits_once_for_the_same_room() {
    let line = line(Role::Daemon, 1, 1);
    let waker = Waker::noop();
    let mut queue = line.lock();
    let known = queue.wait(waker, None);
    assert_eq!(queue.wait(waker, Some(known)), known);
    assert_eq!(queue.drained().len(), 1);
    assert_ne!(queue.wait(waker, Some(known)), known, "a new wait after room was there");
    assert_eq!(queue.shut().len(), 1);
}

#[test]
fn sbrp_relay_19_who_is_told_of_a_pause_is_in_one() {
    let line = line(Role::Client, 8, 1 << 20);
    let session = SessionId::from_wire(1).unwrap();
    for (route, told) in
        [(ClientRoute::Paused, 1), (ClientRoute::Pending, 1), (ClientRoute::Closed, 0)]
    {
        line.reroute(route, None, None);
        let before = line.depth().0;
        assert!(!matches!(line.route(session, session), Route::To(_)));
        assert_eq!(line.depth().0 - before, told);
    }
}

#[test]
fn sbrp_relay_06_who_is_closed_for_a_foreign_session_is_told_by_its_own_connection() {
    let line = line(Role::Client, 8, 1 << 20);
    let [own, foreign] = [1, 2].map(|id| SessionId::from_wire(id).unwrap());
    line.reroute(ClientRoute::Paused, None, None);
    let route = line.route(own, foreign);
    assert!(matches!(route, Route::Refuse(ControlCode::SessionNotFound)));
    assert_eq!(line.depth().0, 0, "once, as its last word");
}
