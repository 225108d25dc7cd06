//! TCP through a sealed session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_client::relay::tunnel::{
    ForwardNotice, Forwarding, Pings, TunnelClient, TunnelNotice, forward,
};
use bowline_sbrp::control::Role;
use bowline_sbrp::tunnel::{ResetReason, TunnelBudget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::world::{World, until};
use crate::gateway::within;

/// A port here that leads to the daemon's target.
pub(super) struct Port {
    address: String,
    events: mpsc::UnboundedReceiver<&'static str>,
    pub(super) refusals: mpsc::UnboundedReceiver<Option<ResetReason>>,
    _task: JoinHandle<()>,
}

impl Port {
    pub(super) async fn open(world: &World, forwarding: Forwarding) -> Self {
        Self::over(world.tunnel(), forwarding).await
    }

    pub(super) async fn over(mut tunnel: TunnelClient, forwarding: Forwarding) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tell, events) = mpsc::unbounded_channel();
        let held = tell.clone();
        let (refused, refusals) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let noticed = |notice| match notice {
                ForwardNotice::Failed(error) => drop(refused.send(error.reason())),
                _ => drop(held.send("held")),
            };
            let forwarding = forward(&listener, tunnel.opener(), "tcp", forwarding, noticed);
            let telling = async {
                while let Some(notice) = tunnel.next().await {
                    let _ = tell.send(match notice {
                        TunnelNotice::Connected(connected) if connected.resumed => "continued",
                        TunnelNotice::Connected(_) => "connected",
                        TunnelNotice::Paused => "paused",
                        TunnelNotice::Pending => "pending",
                        TunnelNotice::Resumed => "resumed",
                        TunnelNotice::Refused(_) => "refused",
                        TunnelNotice::Lost { .. } => "lost",
                        TunnelNotice::StreamsLost(_) => "streams lost",
                        TunnelNotice::NotPinned(_) => "not pinned",
                        TunnelNotice::Closed(_) => "closed",
                        _ => "other",
                    });
                }
            };
            tokio::join!(forwarding, telling);
        });
        Self { address, events, refusals, _task: task }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    pub(super) async fn told(&mut self, what: &str) {
        let looking = async { while self.events.recv().await.unwrap() != what {} };
        within(what, looking).await;
    }
}

/// Sends everything back as it comes, then ends.
pub(super) async fn echo() -> String {
    serve(|mut tcp| async move {
        let (mut from, mut to) = tcp.split();
        tokio::io::copy(&mut from, &mut to).await?;
        to.shutdown().await
    })
    .await
}

async fn serve<F: Future<Output = io::Result<()>> + Send>(
    work: impl Fn(TcpStream) -> F + Send + Sync + Clone + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut tasks = JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let work = work.clone();
            tasks.spawn(async move { work(tcp).await });
        }
    });
    address
}

pub(super) async fn round_trip(tcp: &mut TcpStream, text: &[u8]) {
    tcp.write_all(text).await.unwrap();
    let mut heard = vec![0; text.len()];
    within("the echo", tcp.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, text);
}

/// How a connection that is cut off ends: by a reset, not by an end.
async fn assert_reset(tcp: &mut TcpStream) {
    let end = within("the end", tcp.read(&mut [0; 10])).await;
    assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_connections_at_once_each_get_their_own_bytes_back() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tasks = JoinSet::new();
    for n in 0..100u32 {
        let tcp = port.connect().await;
        tasks.spawn(async move {
            let (mut from, mut to) = tcp.into_split();
            // Of 1 MiB, none the same as another's.
            let said: Vec<u8> =
                (0..256 * 1024u32).flat_map(|k| (k ^ (n << 24)).to_le_bytes()).collect();
            let expected = said.clone();
            let writing = tokio::spawn(async move {
                to.write_all(&said).await.unwrap();
                to.shutdown().await.unwrap();
            });
            let mut heard = Vec::new();
            from.read_to_end(&mut heard).await.unwrap();
            writing.await.unwrap();
            assert!(heard == expected, "connection {n} got {} bytes", heard.len());
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap()
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("all of them come back");
    assert_eq!(world.relay.clients_seen.load(Ordering::SeqCst), 1, "over one session");
}

#[tokio::test]
async fn a_half_closed_connection_still_gets_its_answer() {
    let world = World::start().await;
    // Answers only after it has heard everything.
    let target = serve(|mut tcp| async move {
        let mut heard = Vec::new();
        tcp.read_to_end(&mut heard).await?;
        heard.reverse();
        tcp.write_all(&heard).await
    });
    let _daemon = world.serving(Some(target.await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    tcp.write_all(b"one two").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut heard = Vec::new();
    within("the answer", tcp.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"owt eno");
}

#[tokio::test]
async fn sbrp_daemon_05_connections_outlive_the_loss_of_the_daemons_connection() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    for _ in 0..2 {
        world.relay.cut(Role::Daemon);
        port.told("paused").await;
        // What is said meanwhile waits.
        round_trip(&mut tcp, b"during").await;
        port.told("resumed").await;
    }
    round_trip(&mut tcp, &[7; 300_000][..100_000]).await;
    assert_eq!(world.relay.clients_seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connections_go_on_after_the_relay_was_restarted() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    world.relay.restart();
    port.told("lost").await;
    // One arrives while there is no session, and waits for one.
    let mut next = port.connect().await;
    round_trip(&mut next, b"new").await;
    round_trip(&mut tcp, b"after").await;
    port.told("continued").await;
}

#[tokio::test]
async fn sbrp_crypto_07_a_lost_message_costs_a_session_and_no_bytes() {
    for side in [Role::Client, Role::Daemon] {
        let world = World::start().await;
        let _daemon = world.serving(Some(echo().await)).await;
        let mut port = Port::open(&world, Forwarding::default()).await;
        let mut tcp = port.connect().await;
        round_trip(&mut tcp, b"before").await;
        let count = AtomicUsize::new(0);
        world.relay.meddle(move |role, message| {
            let drop = role == side && count.fetch_add(1, Ordering::SeqCst) == 1;
            if drop { vec![] } else { vec![message] }
        });
        let said: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
        let mut heard = vec![0; said.len()];
        let (mut from, mut to) = tcp.split();
        let (read, wrote) = within("the end", async {
            tokio::join!(from.read_exact(&mut heard), to.write_all(&said))
        })
        .await;
        read.and(wrote.map(|()| 0)).unwrap();
        assert!(heard == said, "{side:?}");
        port.told("continued").await;
    }
}

#[tokio::test]
async fn sbrp_daemon_05_a_last_word_lost_in_a_pause_is_said_again() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    // The echo is lost, and nobody has more to say: only the pause makes both look.
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    world.relay.meddle(move |role, message| {
        if role == Role::Daemon && message[0] == 0x03 {
            counted.fetch_add(1, Ordering::SeqCst);
            return vec![];
        }
        vec![message]
    });
    tcp.write_all(b"lost").await.unwrap();
    until("the loss", || lost.load(Ordering::SeqCst) > 0).await;
    world.relay.meddle(|_, message| vec![message]);
    world.relay.cut(Role::Daemon);
    let mut heard = [0; 4];
    within("the echo", tcp.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"lost");
    port.told("continued").await;
    round_trip(&mut tcp, b"after").await;
}

/// Whatever was on its way when a connection broke: every byte comes, once and in order.
#[tokio::test]
async fn g2_a_loss_in_the_middle_of_a_transfer_costs_no_bytes() {
    for (after, role) in [
        (100_000, Role::Daemon),
        (1_000_000, Role::Client),
        (3_000_000, Role::Daemon),
        (3_000_000, Role::Client),
    ] {
        let world = World::start().await;
        let _daemon = world.serving(Some(echo().await)).await;
        let port = Port::open(&world, Forwarding::default()).await;
        let said: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        let (mut from, mut to) = port.connect().await.into_split();
        let sending = said.clone();
        let writing = tokio::spawn(async move {
            to.write_all(&sending).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let relay = Arc::clone(&world.relay);
        let cutting = tokio::spawn(async move {
            until("the transfer", || relay.passed.lock().unwrap().len() > after).await;
            relay.cut(role);
        });
        let mut heard = Vec::new();
        within("the end", from.read_to_end(&mut heard)).await.unwrap();
        assert!(heard == said, "an end after {} bytes", heard.len());
        cutting.await.unwrap();
        writing.await.unwrap();
        round_trip(&mut port.connect().await, b"after").await;
    }
}

#[tokio::test]
async fn a_target_that_is_not_there_resets_the_connection() {
    let world = World::start().await;
    let _daemon = world.serving(Some("127.0.0.1:1".into())).await;
    let port = Port::open(&world, Forwarding::default()).await;
    assert_reset(&mut port.connect().await).await;
}

#[tokio::test]
async fn a_target_that_resets_is_felt_at_the_other_end_and_the_other_way_round() {
    let world = World::start().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let target = serve(move |mut tcp| {
        let tell = tell.clone();
        async move {
            let mut first = [0];
            tcp.read_exact(&mut first).await?;
            if first == [b'r'] {
                tcp.write_all(b"some").await?;
                tcp.set_zero_linger()?;
                return Ok(());
            }
            // Has ended its own side; hears that the other is cut off all the same.
            tcp.shutdown().await?;
            let error = tcp.read_to_end(&mut Vec::new()).await.unwrap_err();
            let _ = tell.send(error.kind());
            Ok(())
        }
    });
    let _daemon = world.serving(Some(target.await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    tcp.write_all(b"r").await.unwrap();
    let mut heard = Vec::new();
    let end = within("the reset", tcp.read_to_end(&mut heard)).await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);

    let mut tcp = port.connect().await;
    tcp.write_all(b"x").await.unwrap();
    assert_eq!(within("the end", tcp.read(&mut [0; 1])).await.unwrap(), 0);
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    assert_eq!(within("the reset", told.recv()).await, Some(io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_connection_without_a_session_waits_for_its_time_and_is_reset() {
    let world = World::start().await;
    world.daemon().await.stop().await;
    let mut forwarding = Forwarding::default();
    forwarding.patience = Duration::from_millis(100);
    let port = Port::open(&world, forwarding).await;
    assert_reset(&mut port.connect().await).await;
    assert!(!port._task.is_finished(), "the port stays open");
}

#[tokio::test]
async fn a_service_that_is_not_offered_is_refused_with_its_reason() {
    let world = World::start().await;
    let _daemon = world.serving(None).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    assert_reset(&mut port.connect().await).await;
    let reason = within("the refusal", port.refusals.recv()).await.unwrap();
    assert_eq!(reason, Some(ResetReason::NotOffered));
}

#[tokio::test]
async fn pings_go_to_the_daemon_and_back() {
    let world = World::start().await;
    let _daemon = world.serving(None).await;
    let tunnel = world.tunnel();
    let mut pings = within("the service", Pings::open(&tunnel.opener())).await.unwrap();
    for _ in 0..10 {
        assert!(within("a ping", pings.once()).await.unwrap() > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_service_whose_first_words_were_lost_in_a_pause_is_asked_for_again() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    // The first message that is sealed is lost, as if it had been on its way.
    let (mut lost, lose) = (false, Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&lose);
    world.relay.meddle(move |_, message| {
        if message[0] != 0x03 || std::mem::replace(&mut lost, true) {
            return vec![message];
        }
        counted.fetch_add(1, Ordering::SeqCst);
        vec![]
    });
    let mut port = Port::open(&world, Forwarding::default()).await;
    until("the loss", || lose.load(Ordering::SeqCst) == 1).await;
    world.relay.cut(Role::Daemon);
    port.told("resumed").await;
    // Within the patience of a connection, which is a third of that of a hello.
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"after all").await;
}

#[tokio::test]
async fn a_connection_past_the_limit_is_held_and_said_to_be() {
    let world = World::start().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut forwarding = Forwarding::default();
    forwarding.most = 2;
    let mut port = Port::open(&world, forwarding).await;
    let (mut first, mut second) = (port.connect().await, port.connect().await);
    round_trip(&mut first, b"first").await;
    round_trip(&mut second, b"second").await;
    let mut third = port.connect().await;
    port.told("held").await;
    third.write_all(b"third").await.unwrap();
    drop(first);
    let mut heard = [0; 5];
    within("the echo", third.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"third", "it went on when there was room");
    round_trip(&mut second, b"still there").await;
}

#[tokio::test]
async fn g11_all_tunnels_of_a_daemon_share_one_budget() {
    let world = World::start().await;
    let mut config = world.tunnels(Some(echo().await));
    config.allow_unpaired = true;
    // Enough for the first credit of two streams.
    config.budget = TunnelBudget::new(130 << 10);
    let budget = config.budget.clone();
    let _daemon = world.serving_with(config).await;
    let (one, other) = (world.tunnel(), world.tunnel());
    let open = async |tunnel: &TunnelClient| {
        within("a stream", tunnel.opener().open("tcp", Duration::from_secs(10))).await.unwrap()
    };
    let (mut first, mut second) = (open(&one).await, open(&other).await);
    for stream in [&mut first, &mut second] {
        stream.write_all(b"x").await.unwrap();
        assert_eq!(within("the echo", stream.read_u8()).await.unwrap(), b'x');
    }
    let mut third = open(&one).await;
    let refused = within("the refusal", third.read_u8()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
    drop((first, second, third));
    // What they took comes back.
    until("the budget", || budget.left() >= 128 << 10).await;
    let mut fourth = open(&one).await;
    fourth.write_all(b"y").await.unwrap();
    assert_eq!(within("the echo", fourth.read_u8()).await.unwrap(), b'y');
}

#[tokio::test]
async fn a_daemon_with_as_many_sessions_as_it_serves_says_so() {
    let world = World::start().await;
    let mut config = world.tunnels(Some(echo().await));
    config.allow_unpaired = true;
    config.most_sessions = 1;
    let _daemon = world.serving_with(config).await;
    let mut first = world.tunnel();
    within("the first", first.connected()).await.unwrap();
    let mut second = world.tunnel();
    let refused = async {
        loop {
            if let TunnelNotice::Refused(why) = second.next().await.unwrap() {
                return why.to_string();
            }
        }
    };
    let why = within("the refusal", refused).await;
    assert_eq!(why, "the daemon has as many connections as it may have");
    first.close().await;
    within("its place", second.connected()).await.unwrap();
}
