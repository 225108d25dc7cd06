//! What every bus promises in good weather.

use std::collections::HashMap;

use bowline_bus::Lane;
use bytes::Bytes;

use crate::backends::{Make, backends};
use crate::receiving::{receive, replica};

backends! {
    messages_of_a_sender_arrive_in_order_in_each_lane
    nothing_sent_after_open_is_lost
    messages_of_several_senders_arrive_each_in_order
    large_messages_arrive_whole
    messages_for_others_and_for_nobody_do_not_arrive
    a_replaced_inbox_gets_nothing_more
    cancelled_reads_lose_nothing
    a_full_text_lane_does_not_delay_control
}

fn numbered(lane: Lane, number: usize) -> Bytes {
    format!("{lane:?} {number}").into()
}

async fn messages_of_a_sender_arrive_in_order_in_each_lane(make: Make) {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let mut sent = 0;
    for batch in [1, 2, 700, 40, 257, 0, 1000] {
        for lane in [Lane::Control, Lane::Text] {
            let messages = (sent..sent + batch).map(|number| numbered(lane, number)).collect();
            there.send(me, lane, messages).await.unwrap();
        }
        sent += batch;
    }
    let received = receive(&mut *inbox, 2 * sent).await;
    for lane in [Lane::Control, Lane::Text] {
        let of_lane = received.iter().filter(|(of, _)| *of == lane).map(|(_, message)| message);
        assert!(of_lane.eq(&(0..sent).map(|at| numbered(lane, at)).collect::<Vec<_>>()));
    }
}

async fn nothing_sent_after_open_is_lost(make: Make) {
    let (here, there) = (make().await, make().await);
    for round in 0..20 {
        let me = replica();
        let mut inbox = here.open(me).await.unwrap();
        there.send(me, Lane::Text, vec![numbered(Lane::Text, round)]).await.unwrap();
        there.send(me, Lane::Control, vec![numbered(Lane::Control, round)]).await.unwrap();
        receive(&mut *inbox, 2).await;
    }
}

async fn messages_of_several_senders_arrive_each_in_order(make: Make) {
    let (here, me) = (make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let make = make.clone();
            tokio::spawn(async move {
                let there = make().await;
                for number in 0..200 {
                    let message = Bytes::from(format!("{sender} {number}"));
                    there.send(me, Lane::Control, vec![message]).await.unwrap();
                }
            })
        })
        .collect();
    let mut next = HashMap::<String, usize>::new();
    for (_, message) in receive(&mut *inbox, 4 * 200).await {
        let message = String::from_utf8(message.to_vec()).unwrap();
        let (sender, number) = message.split_once(' ').unwrap();
        let expected = next.entry(sender.to_owned()).or_default();
        assert_eq!(number, expected.to_string(), "of sender {sender}");
        *expected += 1;
    }
    assert_eq!(next.len(), 4);
    for sender in senders {
        sender.await.unwrap();
    }
}

async fn large_messages_arrive_whole(make: Make) {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let large = |seed: usize| (0..1 << 20).map(|at| ((at * 31) ^ seed) as u8).collect::<Bytes>();
    for (seed, lane) in [(1, Lane::Control), (2, Lane::Text), (3, Lane::Text)] {
        there.send(me, lane, vec![large(seed), Bytes::new()]).await.unwrap();
    }
    let received = receive(&mut *inbox, 6).await;
    let mut sizes: Vec<_> = received.iter().map(|(_, message)| message.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 0, 0, 1 << 20, 1 << 20, 1 << 20]);
    for expected in [(Lane::Control, large(1)), (Lane::Text, large(2)), (Lane::Text, large(3))] {
        assert!(received.contains(&expected));
    }
}

async fn messages_for_others_and_for_nobody_do_not_arrive(make: Make) {
    let (here, there, me, other) = (make().await, make().await, replica(), replica());
    let mut inbox = here.open(me).await.unwrap();
    let mut inbox_of_other = there.open(other).await.unwrap();
    for to in [replica(), other, me] {
        there.send(to, Lane::Control, vec![Bytes::from(to.0.to_string())]).await.unwrap();
    }
    let mine = receive(&mut *inbox, 1).await;
    assert_eq!(mine, [(Lane::Control, me.0.to_string().into())]);
    let others = receive(&mut *inbox_of_other, 1).await;
    assert_eq!(others, [(Lane::Control, other.0.to_string().into())]);
}

async fn a_replaced_inbox_gets_nothing_more(make: Make) {
    let (here, there, me) = (make().await, make().await, replica());
    let mut first = here.open(me).await.unwrap();
    there.send(me, Lane::Control, vec!["first".into()]).await.unwrap();
    assert_eq!(receive(&mut *first, 1).await.len(), 1);
    let mut second = here.open(me).await.unwrap();
    there.send(me, Lane::Control, vec!["second".into()]).await.unwrap();
    assert_eq!(receive(&mut *second, 1).await, [(Lane::Control, "second".into())]);
    tokio::select! {
        biased;
        messages = first.next() => panic!("{messages:?}"),
        () = std::future::ready(()) => {}
    }
    drop(first);
    there.send(me, Lane::Text, vec!["third".into()]).await.unwrap();
    assert_eq!(receive(&mut *second, 1).await, [(Lane::Text, "third".into())]);
}

async fn cancelled_reads_lose_nothing(make: Make) {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let sender = tokio::spawn(async move {
        for number in 0..300 {
            there.send(me, Lane::Control, vec![numbered(Lane::Control, number)]).await.unwrap();
        }
    });
    let mut received = Vec::new();
    let all = async {
        while received.len() < 300 {
            tokio::select! {
                messages = inbox.next() => received.extend(messages),
                () = tokio::task::yield_now() => {}
            }
        }
    };
    tokio::time::timeout(crate::receiving::DEADLINE, all).await.unwrap();
    let expected = (0..300).map(|number| (Lane::Control, numbered(Lane::Control, number)));
    assert!(received.into_iter().eq(expected));
    sender.await.unwrap();
}

async fn a_full_text_lane_does_not_delay_control(make: Make) {
    let (here, there, me) = (make().await, make().await, replica());
    let mut inbox = here.open(me).await.unwrap();
    let text = vec![Bytes::from(vec![b'x'; 1024]); 3000];
    there.send(me, Lane::Text, text).await.unwrap();
    there.send(me, Lane::Control, vec!["now".into()]).await.unwrap();
    let received = receive(&mut *inbox, 3001).await;
    let at = received.iter().position(|(lane, _)| *lane == Lane::Control).unwrap();
    assert!(at < 3000, "control came after all text");
}
