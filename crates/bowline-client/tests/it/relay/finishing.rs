//! The end of a transfer: what a program wrote before it closed its tunnel arrives, or it is told (G2).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_client::relay::tunnel::{
    DeviceIdentity, Forwarding, Pings, Services, TunnelClient, TunnelPeer, TunnelServerConfig,
    TunnelStream,
};
use bowline_sbrp::control::Role;
use bowline_sbrp::tunnel::ResetReason;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::forwarding::Port;
use super::world::{World, identity};
use crate::gateway::within;

/// More than what one window holds.
const MUCH: usize = 1 << 20;
/// What can be written before the daemon answers.
const FIRST_CREDIT: usize = 64 << 10;

/// A target whose connections take little before they are read.
fn narrow_target() -> (String, TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

/// A stream through a tunnel, and the target's end of it.
async fn joined(tunnel: &TunnelClient, target: &TcpListener) -> (TunnelStream, TcpStream) {
    let stream = tunnel.opener().open("tcp", Duration::from_secs(10)).await.unwrap();
    let (tcp, _) = within("a connection", target.accept()).await.unwrap();
    (stream, tcp)
}

/// Writes everything, ends the stream and closes the tunnel, as a program does that is finished.
async fn leave(world: &World, tunnel: TunnelClient, mut stream: TunnelStream) {
    within("the transfer", stream.write_all(&[7; MUCH])).await.unwrap();
    stream.shutdown().await.unwrap();
    within("the daemon", stream.finished()).await.unwrap();
    close(world, tunnel).await;
}

/// Returns when the daemon has heard of it.
async fn close(world: &World, tunnel: TunnelClient) {
    tunnel.close().await;
    let next = world.tunnel();
    let mut pings = within("another tunnel", Pings::open(&next.opener())).await.unwrap();
    within("a ping", pings.once()).await.unwrap();
}

#[tokio::test]
async fn g2_a_slow_target_gets_everything_that_was_sent_before_the_tunnel_was_closed() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let _daemon = world.serving(Some(address)).await;
    let tunnel = world.tunnel();
    let (stream, mut tcp) = joined(&tunnel, &target).await;
    // Also if it talks more than anyone listens to.
    let (mut from, mut to) = tcp.split();
    let talking = async { to.write_all(&[8; MUCH]).await.and(to.shutdown().await) };
    let reading = async {
        leave(&world, tunnel, stream).await;
        let mut heard = Vec::new();
        from.read_to_end(&mut heard).await.map(|_| heard)
    };
    let (talked, heard) = within("the end", async { tokio::join!(talking, reading) }).await;
    talked.unwrap();
    assert!(heard.unwrap() == [7; MUCH]);
}

#[tokio::test]
async fn g2_a_stream_that_was_opened_and_ended_right_before_the_close_is_served() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let _daemon = world.serving(Some(address)).await;
    let tunnel = world.tunnel();
    let mut stream = tunnel.opener().open("tcp", Duration::from_secs(10)).await.unwrap();
    stream.write_all(&[7; FIRST_CREDIT]).await.unwrap();
    stream.shutdown().await.unwrap();
    close(&world, tunnel).await;
    let (mut tcp, _) = within("a connection", target.accept()).await.unwrap();
    let mut heard = Vec::new();
    within("the end", tcp.read_to_end(&mut heard)).await.unwrap();
    assert!(heard == [7; FIRST_CREDIT], "{} bytes", heard.len());
}

/// Hands its streams on, as a gateway does.
#[derive(Debug)]
struct HandsOn(mpsc::UnboundedSender<TunnelStream>);

#[async_trait]
impl Services for HandsOn {
    fn names(&self) -> Vec<String> {
        vec!["tcp".into()]
    }

    async fn run(&self, _: TunnelPeer, _: String, stream: TunnelStream) {
        let _ = self.0.send(stream);
    }
}

#[tokio::test]
async fn g2_a_stream_that_a_service_handed_on_is_served_after_the_close() {
    let world = World::start().await;
    let (hand_on, mut streams) = mpsc::unbounded_channel();
    let mut config = TunnelServerConfig::new(world.book(), Arc::new(HandsOn(hand_on)));
    config.allow_unpaired = true;
    let _daemon = world.serving_with(config).await;
    let tunnel = world.tunnel();
    let mut stream = tunnel.opener().open("tcp", Duration::from_secs(10)).await.unwrap();
    stream.write_all(b"last words").await.unwrap();
    stream.shutdown().await.unwrap();
    close(&world, tunnel).await;
    let mut there = within("the stream", streams.recv()).await.unwrap();
    let mut heard = Vec::new();
    within("the end", there.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"last words");
    // Its server is not interrupted by an answer that nobody reads.
    there.write_all(&[8; MUCH]).await.unwrap();
    there.shutdown().await.unwrap();
    within("the end", there.finished()).await.unwrap();
}

#[tokio::test]
async fn a_target_that_does_not_read_is_cut_off_after_a_while() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let mut config = world.tunnels(Some(address));
    (config.allow_unpaired, config.linger) = (true, Duration::from_millis(50));
    let _daemon = world.serving_with(config).await;
    let tunnel = world.tunnel();
    let (stream, mut tcp) = joined(&tunnel, &target).await;
    leave(&world, tunnel, stream).await;
    // It can be written to until then.
    let cut_off = async { while tcp.write_all(b"x").await.is_ok() {} };
    within("the reset", cut_off).await;
}

#[tokio::test]
async fn services_of_a_closed_tunnel_end_with_their_server() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let daemon = world.serving(Some(address)).await;
    let tunnel = world.tunnel();
    let (stream, mut tcp) = joined(&tunnel, &target).await;
    leave(&world, tunnel, stream).await;
    daemon.abort();
    let cut_off = async { while tcp.write_all(b"x").await.is_ok() {} };
    within("the reset", cut_off).await;
}

#[tokio::test]
async fn sbrp_peer_01_services_of_a_closed_tunnel_end_when_their_device_is_revoked() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let book = world.book();
    let code = book.offer(vec![]).unwrap();
    let mut config = world.tunnels(Some(address));
    config.allow_unpaired = true;
    let _daemon = world.serving_with(config).await;
    let (device, name) = (Arc::new(identity(7)), "phone".into());
    let phone = DeviceIdentity::Pairing { device, code, name };
    let tunnel = TunnelClient::connect(world.client_config(), phone);
    let (stream, mut tcp) = joined(&tunnel, &target).await;
    leave(&world, tunnel, stream).await;
    assert!(book.revoke("phone").unwrap().is_some());
    let cut_off = async { while tcp.write_all(b"x").await.is_ok() {} };
    within("the reset", cut_off).await;
}

#[tokio::test]
async fn g2_a_stream_is_finished_when_the_daemon_has_all_of_it() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let _daemon = world.serving(Some(address)).await;
    let tunnel = world.tunnel();
    let (mut stream, mut tcp) = joined(&tunnel, &target).await;
    // What the client says from now on is lost.
    world.relay.meddle(|role, message| match (role, message[0]) {
        (Role::Client, 0x03) => vec![],
        _ => vec![message],
    });
    stream.write_all(b"last words").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut finished = Box::pin(stream.finished());
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut finished).await.is_err());
    world.relay.meddle(|_, message| vec![message]);
    world.relay.cut(Role::Client);
    within("the next session", finished).await.unwrap();
    assert!(stream.finished().now_or_never().is_some(), "it stays so");
    let mut heard = [0; 10];
    within("the words", tcp.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"last words");
}

#[tokio::test]
async fn g2_a_connection_whose_last_words_did_not_arrive_is_not_forwarded_to_its_end() {
    let world = World::start().await;
    let (address, target) = narrow_target();
    let daemon = world.serving(Some(address.clone())).await;
    let tunnel = TunnelClient::connect(world.client_config(), DeviceIdentity::Plain);
    let mut port = Port::over(tunnel, Forwarding::default()).await;
    let mut local = port.connect().await;
    let (mut tcp, _) = within("a connection", target.accept()).await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(within("the end", local.read(&mut [0; 1])).await.unwrap(), 0);
    world.relay.meddle(|role, message| match (role, message[0]) {
        (Role::Client, 0x03) => vec![],
        _ => vec![message],
    });
    local.write_all(b"last words").await.unwrap();
    local.shutdown().await.unwrap();
    // The daemon is started again, and has forgotten the tunnel.
    daemon.abort();
    let _ = daemon.await;
    world.relay.meddle(|_, message| vec![message]);
    let _daemon = world.serving(Some(address)).await;
    let reason = within("the failure", port.refusals.recv()).await.unwrap();
    assert_eq!(reason, Some(ResetReason::TunnelLost));
}
