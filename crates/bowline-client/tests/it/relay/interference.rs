//! A relay that flips, repeats, drops and reorders: a repeated message changes nothing, and after
//! anything else the session ends visibly and the next one works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_client::relay::{LossReason, Session, SessionEnd};
use bowline_sbrp::control::{Code, ControlCode, Role, SdkCode};
use bytes::Bytes;

use super::world::{World, established, heard, lost};
use crate::gateway::within;

const DATA: u8 = 0x03;

/// What is done with the third sealed message from one side; the fourth follows as it is.
type Mischief = fn(Bytes) -> Vec<Bytes>;

fn flip(message: Bytes) -> Vec<Bytes> {
    let mut message = message.to_vec();
    *message.last_mut().unwrap() ^= 1;
    vec![message.into()]
}

fn repeat(message: Bytes) -> Vec<Bytes> {
    vec![message.clone(), message]
}

fn lose(_: Bytes) -> Vec<Bytes> {
    vec![]
}

fn meddle(world: &World, side: Role, mischief: Mischief) {
    let count = Arc::new(AtomicUsize::new(0));
    world.relay.meddle(move |role, message| {
        let is_data = role == side && message[0] == DATA;
        match is_data && count.fetch_add(1, Ordering::SeqCst) == 2 {
            true => mischief(message),
            false => vec![message],
        }
    });
}

async fn say(session: &Session) {
    for n in 0..4 {
        // The session may be over by then; that is what the test is about.
        let _ = session.send(vec![n]).await;
    }
}

/// What is heard before the end: never something else than was said, nor in another order.
async fn hear(session: &mut Session) -> Option<SessionEnd> {
    for n in 0..4 {
        match within("a message or the end", session.recv()).await {
            Some(message) => assert_eq!(message, [n]),
            None => return session.end(),
        }
    }
    panic!("all messages came")
}

#[tokio::test]
async fn sbrp_sdk_01_a_repeated_message_is_rejected_and_the_session_goes_on() {
    for side in [Role::Daemon, Role::Client] {
        let world = World::start().await;
        let (_daemon, mut here, _client, mut there) = world.pair().await;
        meddle(&world, side, repeat);
        let (from, to) = match side {
            Role::Daemon => (&here, &mut there),
            Role::Client => (&there, &mut here),
        };
        say(from).await;
        for n in 0..4 {
            assert_eq!(heard(to).await, [n]);
        }
        from.send(vec![4]).await.unwrap();
        assert_eq!(heard(to).await, [4]);
        assert_eq!((from.end(), to.end()), (None, None));
    }
}

#[tokio::test]
async fn sbrp_crypto_07_what_happens_to_the_daemons_messages_ends_the_session_at_the_client() {
    for (mischief, code) in
        [(flip as Mischief, SdkCode::DecryptFailed), (lose, SdkCode::SequenceError)]
    {
        let world = World::start().await;
        let (_daemon, mut here, mut client, mut there) = world.pair().await;
        meddle(&world, Role::Daemon, mischief);
        say(&here).await;
        assert_eq!(hear(&mut there).await, Some(SessionEnd::Lost(LossReason::Sdk(code))));
        assert_eq!(lost(&mut client).await, LossReason::Sdk(code));
        assert_eq!(within("the end", here.recv()).await, None);
        assert_ne!(established(&mut client).await.id(), there.id());
    }
}

#[tokio::test]
async fn sbrp_crypto_07_what_happens_to_the_clients_messages_ends_the_session_at_the_daemon() {
    for (mischief, code) in
        [(flip as Mischief, SdkCode::DecryptFailed), (lose, SdkCode::SequenceError)]
    {
        let world = World::start().await;
        let (_daemon, mut here, mut client, there) = world.pair().await;
        meddle(&world, Role::Client, mischief);
        say(&there).await;
        assert_eq!(hear(&mut here).await, Some(SessionEnd::Lost(LossReason::Sdk(code))));
        assert_eq!(
            lost(&mut client).await,
            LossReason::Told(Code::Known(ControlCode::SessionExpired))
        );
        assert_ne!(established(&mut client).await.id(), there.id());
    }
}

#[tokio::test]
async fn what_happens_to_one_session_leaves_the_others_alone() {
    let world = World::start().await;
    let (mut daemon, mut here, _client, there) = world.pair().await;
    let mut other_client = world.client();
    let mut other_there = established(&mut other_client).await;
    let mut other_here = super::world::opened(&mut daemon).await;
    let spoiled = there.id().to_wire().to_be_bytes();
    world.relay.meddle(move |role, message| {
        match role == Role::Client && message[5..13] == spoiled {
            true => flip(message),
            false => vec![message],
        }
    });
    there.send(vec![1]).await.unwrap();
    assert_eq!(within("the end", here.recv()).await, None);
    other_there.send(vec![2]).await.unwrap();
    assert_eq!(heard(&mut other_here).await, [2]);
    other_here.send(vec![3]).await.unwrap();
    assert_eq!(heard(&mut other_there).await, [3]);
}
