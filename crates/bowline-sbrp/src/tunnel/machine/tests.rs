use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::tunnel::path_window::{LEAST_WINDOW, MOST_WINDOW};
use crate::tunnel::stream::LARGEST_WINDOW;

fn now() -> Instant {
    Instant::now()
}

/// Two ends, and what is on its way between them in the present session.
struct World {
    client: Tunnel,
    daemon: Tunnel,
    to_daemon: VecDeque<Bytes>,
    to_client: VecDeque<Bytes>,
    /// What the daemon was asked to open.
    opened: Vec<(StreamId, String)>,
}

impl World {
    fn new() -> Self {
        Self {
            client: Tunnel::new(TunnelSide::Client),
            daemon: Tunnel::new(TunnelSide::Daemon),
            to_daemon: VecDeque::new(),
            to_client: VecDeque::new(),
            opened: Vec::new(),
        }
    }

    fn send(&mut self) {
        self.to_daemon.extend(std::iter::from_fn(|| self.client.next_message(now())));
        self.to_client.extend(std::iter::from_fn(|| self.daemon.next_message(now())));
    }

    fn deliver(&mut self) {
        if let Some(message) = self.to_daemon.pop_front() {
            for event in self.daemon.receive(&message, now()).unwrap() {
                if let TunnelEvent::Opened(stream, service) = event {
                    self.opened.push((stream, service));
                }
            }
        }
        if let Some(message) = self.to_client.pop_front() {
            self.client.receive(&message, now()).unwrap();
        }
    }

    fn settle(&mut self) {
        loop {
            self.send();
            if self.to_daemon.is_empty() && self.to_client.is_empty() {
                self.client.drained();
                self.daemon.drained();
                self.send();
            }
            if self.to_daemon.is_empty() && self.to_client.is_empty() {
                return;
            }
            self.deliver();
        }
    }

    /// The session is lost with all that was on its way; the next one begins.
    fn reconnect(&mut self) {
        self.to_daemon.clear();
        self.to_client.clear();
        self.client.resume(self.daemon.received()).unwrap();
        self.daemon.resume(self.client.received()).unwrap();
    }
}

fn read_all(tunnel: &mut Tunnel, stream: StreamId) -> Vec<u8> {
    let mut all = Vec::new();
    while let ReadOutcome::Bytes(bytes) = tunnel.read(stream, 10_000) {
        all.extend_from_slice(&bytes);
    }
    all
}

#[test]
fn a_stream_is_opened_written_ended_and_read() {
    let mut world = World::new();
    let id = world.client.open("http").unwrap();
    assert_eq!(world.client.write(id, b"hi"), WriteOutcome::Wrote(2));
    world.client.end(id);
    assert_eq!(world.client.write(id, b"?"), WriteOutcome::Ended);
    world.settle();
    assert_eq!(world.opened, [(id, "http".to_owned())]);
    assert_eq!(read_all(&mut world.daemon, id), b"hi");
    assert_eq!(world.daemon.read(id, 1), ReadOutcome::End);
    assert_eq!(world.daemon.write(id, b"yes"), WriteOutcome::Wrote(3));
    world.daemon.end(id);
    world.daemon.forget(id);
    world.settle();
    assert_eq!(read_all(&mut world.client, id), b"yes");
    assert_eq!(world.client.read(id, 1), ReadOutcome::End, "ended, not reset");
    world.client.forget(id);
    assert_eq!((world.client.streams(), world.daemon.streams()), (0, 0));
}

#[test]
fn a_stream_that_is_dropped_is_reset_and_never_looks_complete() {
    let mut world = World::new();
    let id = world.client.open("tcp").unwrap();
    world.settle();
    world.daemon.write(id, b"half");
    world.daemon.forget(id);
    world.settle();
    let reset = ResetReason::Cancelled;
    assert_eq!(world.client.read(id, 9), ReadOutcome::Reset(reset));
    assert_eq!(world.client.write(id, b"x"), WriteOutcome::Reset(reset));
    let other = world.client.open("tcp").unwrap();
    assert_eq!(world.client.abort().len(), 2);
    let lost = ResetReason::TunnelLost;
    assert_eq!(world.client.read(other, 9), ReadOutcome::Reset(lost));
}

#[test]
fn what_was_sent_before_the_end_is_read_although_a_reset_follows() {
    let mut world = World::new();
    let id = world.client.open("http").unwrap();
    world.client.write(id, b"request");
    world.settle();
    // A server that answers, ends and closes, while the client keeps its own direction open.
    world.daemon.write(id, b"answer");
    world.daemon.end(id);
    world.daemon.forget(id);
    world.settle();
    assert_eq!(read_all(&mut world.client, id), b"answer");
    assert_eq!(world.client.read(id, 1), ReadOutcome::End);
    let reset = WriteOutcome::Reset(ResetReason::Cancelled);
    assert_eq!(world.client.write(id, b"more"), reset);
}

#[test]
fn an_end_after_a_reset_does_not_make_a_stream_look_complete() {
    let mut client = Tunnel::new(TunnelSide::Client);
    let id = client.open("http").unwrap();
    let reset = Record::Reset { stream: id, reason: ResetReason::Cancelled };
    for (number, record) in
        [Record::Data { stream: id, bytes: "half".into() }, reset, Record::End { stream: id }]
            .iter()
            .enumerate()
    {
        client.receive(&record.message(number as u64), now()).unwrap();
    }
    assert_eq!(client.read(id, 9), ReadOutcome::Reset(ResetReason::Cancelled));
}

#[test]
fn a_writer_is_bounded_by_credit_and_by_what_is_unacknowledged() {
    let mut world = World::new();
    let id = world.client.open("tcp").unwrap();
    // The open record has a weight, too.
    let mut sent = 0;
    while let WriteOutcome::Wrote(count) = world.client.write(id, &[7; 5000]) {
        sent += count;
    }
    assert_eq!(sent, 65_000, "the window");
    world.settle();
    world.client.write(id, &[7; 5000]);
    assert_eq!(world.client.write(id, &[7; 5000]), WriteOutcome::Blocked, "the first credit");
    world.settle();
    let mut wrote = 0;
    for _ in 0..100 {
        let id = world.client.open("tcp").unwrap();
        while let WriteOutcome::Wrote(count) = world.client.write(id, &[7; 5000]) {
            wrote += count;
        }
    }
    assert!(wrote <= MOST_WINDOW + 5000, "{wrote}");
    world.settle();
    assert_eq!(world.client.write(StreamId(90), b"x"), WriteOutcome::Wrote(1), "acknowledged");
}

#[test]
fn windows_grow_for_readers_that_keep_up_and_only_for_them() {
    let mut world = World::new();
    let fast = world.client.open("tcp").unwrap();
    let slow = world.client.open("tcp").unwrap();
    let fill = |world: &mut World, id| {
        let mut count = 0;
        loop {
            match world.client.write(id, &[7; 40_000]) {
                WriteOutcome::Wrote(wrote) => count += wrote,
                WriteOutcome::Blocked => {
                    world.settle();
                    if world.client.write(id, &[7; 1]) == WriteOutcome::Blocked {
                        return count;
                    }
                    count += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(fill(&mut world, slow), 64 << 10);
    let mut rounds = Vec::new();
    for _ in 0..8 {
        rounds.push(fill(&mut world, fast));
        read_all(&mut world.daemon, fast);
        world.settle();
    }
    assert_eq!(rounds[0], 64 << 10);
    assert!(rounds[7] >= 1 << 20 && rounds[7] <= LARGEST_WINDOW, "{rounds:?}");
}

#[test]
fn a_peer_that_breaks_the_rules_is_not_listened_to() {
    let open = |stream, number| {
        Record::Open { stream: StreamId(stream), service: "x".into() }.message(number)
    };
    let data = |stream, size, number| record::data(number, StreamId(stream), &vec![0; size]);
    let cases: [(&[Bytes], TunnelFault); 6] = [
        (&[open(2, 0), open(2, 1)], TunnelFault::Opened),
        (&[open(2, 0), open(1, 1)], TunnelFault::Opened),
        (&[open(1, 0), data(2, 1, 1)], TunnelFault::UnknownStream),
        (&[open(1, 0), data(1, 40_000, 1), data(1, 40_000, 2)], TunnelFault::Overrun),
        (&[open(1, 1)], TunnelFault::Gap),
        (&[open(1, 0), Message::ack(1, 0)], TunnelFault::Positions),
    ];
    for (messages, fault) in cases {
        let mut daemon = Tunnel::new(TunnelSide::Daemon);
        let (last, before) = messages.split_last().unwrap();
        before.iter().for_each(|message| drop(daemon.receive(message, now()).unwrap()));
        assert_eq!(daemon.receive(last, now()), Err(fault));
        // A stream that lost a record to a fault must not go on as if it were whole.
        let resumed = daemon.resume(0).map(drop);
        assert_eq!(resumed, if fault == TunnelFault::Gap { Ok(()) } else { Err(fault) });
    }
    let mut client = Tunnel::new(TunnelSide::Client);
    assert_eq!(client.resume(1), Err(TunnelFault::Positions));
    assert_eq!(client.receive(&open(1, 0), now()), Err(TunnelFault::Opened));
    assert_eq!(client.receive(&Message::ack(0, 0), now()), Err(TunnelFault::Opened));
}

#[test]
fn a_peer_that_acknowledges_nothing_cannot_make_records_pile_up() {
    let mut daemon = Tunnel::new(TunnelSide::Daemon);
    let mut received = 0;
    let fault = loop {
        let stream = StreamId(received as u32 + 1);
        match daemon.receive(&Record::Open { stream, service: "x".into() }.message(received), now())
        {
            Ok(_) => daemon.forget(stream),
            Err(fault) => break fault,
        }
        received += 1;
    };
    assert_eq!((fault, received), (TunnelFault::Unacknowledged, 2048));
    assert_eq!(daemon.received(), received, "the last one is not counted");
    // It goes on as soon as the peer says what it has.
    let answers = std::iter::from_fn(|| daemon.next_message(now())).count() as u64;
    daemon.receive(&Message::ack(2000, received), now()).unwrap();
    let open = Record::Open { stream: StreamId(u32::MAX), service: "x".into() };
    assert_eq!(daemon.receive(&open.message(received), now()).map(|events| events.len()), Ok(1));
    assert!(answers > 2000);

    let mut client = Tunnel::new(TunnelSide::Client);
    let opened = std::iter::from_fn(|| {
        let id = client.open("x")?;
        client.forget(id);
        Some(id)
    });
    assert_eq!(opened.count(), 768, "an open and a reset each");
}

#[test]
fn what_an_earlier_session_brought_late_is_not_sent_again() {
    let mut world = World::new();
    let id = world.client.open("tcp").unwrap();
    world.client.write(id, b"one");
    world.client.write(id, b"two");
    world.send();
    // The peer said that it has none, and then the rest of the old session was handed to it.
    world.client.resume(0).unwrap();
    world.client.receive(&Message::ack(3, 0), now()).unwrap();
    assert!(!world.client.has_message());
    world.client.resume(3).unwrap();
    assert_eq!(world.client.resume(2), Err(TunnelFault::Positions), "acknowledged before");
    assert_eq!(world.client.resume(4), Err(TunnelFault::Positions), "never sent");
}

#[test]
fn a_loss_in_a_session_that_tolerates_gaps_is_noticed() {
    let mut world = World::new();
    let id = world.client.open("tcp").unwrap();
    world.settle();
    world.client.write(id, b"one");
    world.send();
    world.to_daemon.clear();
    world.client.write(id, b"two");
    world.send();
    let two = world.to_daemon.pop_front().unwrap();
    assert_eq!(world.daemon.receive(&two, now()), Err(TunnelFault::Gap));
    // Also if nothing more is sent but the acknowledgement after a pause.
    world.client.acknowledge();
    let ack = world.client.next_message(now()).unwrap();
    assert_eq!(world.daemon.receive(&ack, now()), Err(TunnelFault::Gap));
    world.reconnect();
    world.settle();
    assert_eq!(read_all(&mut world.daemon, id), b"onetwo");
}

#[test]
fn writers_are_told_of_the_room_that_a_new_session_makes() {
    let mut world = World::new();
    let id = world.client.open("tcp").unwrap();
    world.client.receive(&Record::Credit { stream: id, bytes: 1 << 20 }.message(0), now()).unwrap();
    while let WriteOutcome::Wrote(_) = world.client.write(id, &[7; 60_000]) {}
    // All of it arrives, and the session is lost before it is acknowledged.
    let sent = std::iter::from_fn(|| world.client.next_message(now())).count() as u64;
    assert_eq!(world.client.resume(sent), Ok(vec![TunnelEvent::Room]));
    assert_eq!(world.client.write(id, b"x"), WriteOutcome::Wrote(1));
    assert_eq!(world.client.resume(sent), Ok(vec![]));
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut world = World::new();
    let ids: Vec<_> = std::iter::from_fn(|| world.client.open("tcp")).collect();
    assert_eq!(ids.len(), MOST_STREAMS);
    world.settle();
    world.client.forget(ids[0]);
    let late = world.client.open("tcp").unwrap();
    world.settle();
    assert_eq!(world.client.read(late, 1), ReadOutcome::Blocked, "it has the place of the other");
    assert_eq!(world.client.open("tcp"), None);
}

/// Takes what one end has to send to the other.
fn pass(from: &mut Tunnel, to: &mut Tunnel) -> Vec<TunnelEvent> {
    let messages: Vec<_> = std::iter::from_fn(|| from.next_message(now())).collect();
    messages.iter().flat_map(|message| to.receive(message, now()).unwrap()).collect()
}

#[test]
fn g2_an_end_is_acknowledged_at_once_and_then_all_before_it_is_delivered() {
    let World { mut client, mut daemon, .. } = World::new();
    let id = client.open("tcp").unwrap();
    client.write(id, b"all of it");
    pass(&mut client, &mut daemon);
    assert!(daemon.owes_ack() && !daemon.has_message(), "data alone is acknowledged later");
    assert_eq!(client.delivery(id), EndDelivery::Waiting, "not ended");
    client.end(id);
    assert_eq!(client.delivery(id), EndDelivery::Waiting, "not sent");
    pass(&mut client, &mut daemon);
    daemon.write(id, b"an answer waits behind the acknowledgement");
    let ack = daemon.next_message(now()).unwrap();
    assert_eq!(client.receive(&ack, now()), Ok(vec![TunnelEvent::Delivered(id)]));
    assert_eq!(client.delivery(id), EndDelivery::Delivered);
    client.abort();
    assert_eq!(client.delivery(id), EndDelivery::Delivered, "what is delivered stays so");
}

#[test]
fn g2_an_end_whose_acknowledgement_was_lost_is_delivered_by_the_next_session() {
    let World { mut client, mut daemon, .. } = World::new();
    let id = client.open("tcp").unwrap();
    client.end(id);
    pass(&mut client, &mut daemon);
    assert_eq!(client.resume(daemon.received()), Ok(vec![TunnelEvent::Delivered(id)]));
    assert_eq!(client.resume(daemon.received()), Ok(vec![]), "told once");
}

#[test]
fn g2_what_the_peer_throws_away_is_not_delivered() {
    let World { mut client, mut daemon, .. } = World::new();
    let id = client.open("tcp").unwrap();
    pass(&mut client, &mut daemon);
    client.write(id, b"nobody reads this");
    client.end(id);
    // The daemon drops the stream, and then acknowledges what it ignores.
    daemon.forget(id);
    pass(&mut daemon, &mut client);
    assert!(client.has_message());
    assert_eq!(
        client.next_message(now()).unwrap()[0],
        0x20,
        "a reset is acknowledged at once, too"
    );
    pass(&mut client, &mut daemon);
    pass(&mut daemon, &mut client);
    assert_eq!(client.delivery(id), EndDelivery::Reset(ResetReason::Cancelled));
    client.forget(id);
    assert_eq!(client.delivery(id), EndDelivery::Reset(ResetReason::TunnelLost));
}

#[test]
fn g2_after_a_close_the_daemon_goes_on_with_the_streams_that_were_ended() {
    let World { mut client, mut daemon, .. } = World::new();
    let (ended, open) = (client.open("tcp").unwrap(), client.open("tcp").unwrap());
    for id in [ended, open] {
        client.write(id, b"last words");
    }
    client.end(ended);
    client.close();
    let events = pass(&mut client, &mut daemon);
    assert_eq!(events.last(), Some(&TunnelEvent::Closed));
    assert!(daemon.peer_has_closed());
    assert!(daemon.peer_has_ended(ended) && !daemon.peer_has_ended(open));
    assert_eq!(read_all(&mut daemon, ended), b"last words");
    assert_eq!(daemon.read(ended, 1), ReadOutcome::End);
    // Nobody reads the answer. It does not stop the service, however long it is.
    let long = vec![7; 4 * LEAST_WINDOW];
    assert_eq!(daemon.write(ended, &long), WriteOutcome::Wrote(long.len()));
    daemon.end(ended);
    assert_eq!(daemon.delivery(ended), EndDelivery::Delivered);
    let reset = ResetReason::Cancelled;
    assert_eq!(daemon.read(open, 9), ReadOutcome::Reset(reset));
    assert_eq!(daemon.write(open, b"x"), WriteOutcome::Reset(reset));
    daemon.forget(ended);
    daemon.forget(open);
    let sent: Vec<_> = std::iter::from_fn(|| daemon.next_message(now())).collect();
    assert!(sent.iter().all(|message| message[0] == 0x20), "{sent:?}");
}

#[test]
fn g2_a_daemon_that_closes_cannot_make_a_client_believe_that_it_has_everything() {
    let mut client = Tunnel::new(TunnelSide::Client);
    let id = client.open("tcp").unwrap();
    client.receive(&Record::End { stream: id }.message(0), now()).unwrap();
    client.receive(&Message::close(), now()).unwrap();
    let reset = ResetReason::Cancelled;
    assert_eq!(client.write(id, b"x"), WriteOutcome::Reset(reset));
    client.end(id);
    assert_eq!(client.delivery(id), EndDelivery::Reset(reset));
}

#[derive(Debug, Clone)]
enum Op {
    Open,
    Write { stream: usize, size: usize },
    Echo,
    Read { stream: usize },
    End { stream: usize },
    Send,
    Deliver(usize),
    Acknowledge,
    Reconnect,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        1 => Just(Op::Open),
        8 => (0..4usize, 1..90_000usize).prop_map(|(stream, size)| Op::Write { stream, size }),
        6 => Just(Op::Echo),
        4 => (0..4usize).prop_map(|stream| Op::Read { stream }),
        1 => (0..4usize).prop_map(|stream| Op::End { stream }),
        6 => Just(Op::Send),
        8 => (1..6usize).prop_map(Op::Deliver),
        1 => Just(Op::Acknowledge),
        2 => Just(Op::Reconnect),
    ];
    prop::collection::vec(op, 1..120)
}

#[test]
fn a_close_follows_what_was_written_before() {
    let mut world = World::new();
    let id = world.client.open("http").unwrap();
    world.client.write(id, b"last words");
    world.client.close();
    world.send();
    assert!(world.client.has_said_close() && !world.client.has_message());
    let last = world.to_daemon.pop_back().unwrap();
    while !world.to_daemon.is_empty() {
        world.deliver();
    }
    assert_eq!(read_all(&mut world.daemon, id), b"last words");
    let events = world.daemon.receive(&last, now()).unwrap();
    assert_eq!(events.last(), Some(&TunnelEvent::Closed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is lost, whenever: each stream's bytes come back whole and in order.
    #[test]
    fn g2_streams_survive_any_schedule_of_lost_sessions(ops in ops()) {
        let mut world = World::new();
        let mut said: Vec<(StreamId, Vec<u8>, bool)> = Vec::new();
        let mut heard: HashMap<StreamId, Vec<u8>> = HashMap::new();
        let mut pending: HashMap<StreamId, VecDeque<u8>> = HashMap::new();
        let mut byte = 0u8;
        let echo = |world: &mut World, pending: &mut HashMap<StreamId, VecDeque<u8>>| {
            for (stream, _) in world.opened.clone() {
                let queue = pending.entry(stream).or_default();
                queue.extend(read_all(&mut world.daemon, stream));
                while !queue.is_empty()
                    && let WriteOutcome::Wrote(count) = world.daemon.write(stream, queue.make_contiguous())
                {
                    queue.drain(..count);
                }
                if queue.is_empty() && world.daemon.read(stream, 1) == ReadOutcome::End {
                    world.daemon.end(stream);
                }
            }
        };
        for op in ops {
            match op {
                Op::Open if said.len() < 4 => {
                    said.push((world.client.open("echo").unwrap(), Vec::new(), false));
                }
                Op::Write { stream, size } => {
                    if let Some((id, bytes, ended)) = said.get_mut(stream) && !*ended {
                        byte = byte.wrapping_add(1);
                        if let WriteOutcome::Wrote(count) = world.client.write(*id, &vec![byte; size]) {
                            bytes.extend(std::iter::repeat_n(byte, count));
                        }
                    }
                }
                Op::Echo => echo(&mut world, &mut pending),
                Op::Read { stream } => {
                    if let Some((id, ..)) = said.get(stream) {
                        let more = read_all(&mut world.client, *id);
                        heard.entry(*id).or_default().extend(more);
                    }
                }
                Op::End { stream } => {
                    if let Some((id, _, ended)) = said.get_mut(stream) {
                        *ended = true;
                        world.client.end(*id);
                    }
                }
                Op::Send => world.send(),
                Op::Deliver(count) => (0..count).for_each(|_| world.deliver()),
                Op::Acknowledge => world.client.acknowledge(),
                Op::Reconnect => world.reconnect(),
                Op::Open => {}
            }
        }
        world.reconnect();
        for (id, ..) in &said {
            world.client.end(*id);
        }
        for _ in 0..200 {
            world.settle();
            echo(&mut world, &mut pending);
            for (id, ..) in &said {
                let more = read_all(&mut world.client, *id);
                heard.entry(*id).or_default().extend(more);
            }
        }
        for (id, bytes, _) in &said {
            prop_assert!(&heard[id] == bytes, "{} of {} bytes", heard[id].len(), bytes.len());
            prop_assert_eq!(world.client.read(*id, 1), ReadOutcome::End);
        }
    }
}

#[test]
fn what_is_sent_again_keeps_to_the_window_of_the_new_session() {
    let mut client = Tunnel::new(TunnelSide::Client);
    let id = client.open("tcp").unwrap();
    client.receive(&Record::Credit { stream: id, bytes: 8 << 20 }.message(0), now()).unwrap();
    // A fast path: the window has grown when the session is lost.
    let start = now();
    let (mut sent, mut number) = (0, 0);
    for round in 0..40 {
        while let WriteOutcome::Wrote(count) = client.write(id, &[7; 60_000]) {
            sent += count;
        }
        let at = start + std::time::Duration::from_millis(100 * round);
        number += std::iter::from_fn(|| client.next_message(at)).count() as u64;
        if sent > 3 << 20 {
            break;
        }
        let ack = Message::ack(number, 1);
        client.receive(&ack, at + std::time::Duration::from_millis(100)).unwrap();
    }
    let kept = client.positions.number() - client.positions.acked();
    assert!(kept > 20, "{kept} records are not acknowledged");
    let received = client.positions.acked();
    client.resume(received).unwrap();
    let again: Vec<_> = std::iter::from_fn(|| client.next_message(now())).collect();
    let bytes: usize = again.iter().map(Bytes::len).sum();
    assert!((LEAST_WINDOW..2 * LEAST_WINDOW).contains(&bytes), "{bytes} bytes at once");
    // The rest follows as it is acknowledged, and then what is new.
    let mut has = received + again.len() as u64;
    for _ in 0..200 {
        client.receive(&Message::ack(has, 1), now()).unwrap();
        has += std::iter::from_fn(|| client.next_message(now())).count() as u64;
    }
    assert_eq!(has, number, "all of them, each once");
    assert_eq!(client.write(id, b"x"), WriteOutcome::Wrote(1));
    assert!(client.next_message(now()).is_some());
}

#[test]
fn a_stream_that_is_over_takes_no_place_at_the_daemon() {
    let mut daemon = Tunnel::new(TunnelSide::Daemon);
    let mut number = 0;
    let mut receive = |record: &Record| {
        number += 1;
        daemon.receive(&record.message(number - 1), now()).unwrap()
    };
    let open = |stream| Record::Open { stream: StreamId(stream), service: "x".into() };
    for stream in 1..=MOST_STREAMS as u32 {
        assert_eq!(receive(&open(stream)).len(), 1);
    }
    assert_eq!(receive(&open(300)), vec![], "one more is refused");
    // The client dropped one, and opens another at once. The program there has not noticed yet.
    receive(&Record::Reset { stream: StreamId(1), reason: ResetReason::Cancelled });
    assert_eq!(receive(&open(301)).len(), 1);
    assert_eq!(receive(&open(302)), vec![]);
}
