//! A panic in a connection's task, which cannot be caused from outside.

use std::sync::Arc;

use bowline_net::Stream;
use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, PingPayload};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::token::{Admission, ClientPass, DaemonPass};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Connection;
use crate::relay::config::RelayConfig;
use crate::relay::issuer::Issuer;
use crate::relay::membership::Membership;
use crate::relay::ws::encode;
use crate::relay::{Shared, meters::Gauges};

/// A ping that makes a connection panic, in tests of this module only.
pub(super) const BOMB: &[u8] = b"\xffpanic!";

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

fn shared() -> Arc<Shared> {
    let config = RelayConfig::default();
    let issuer = Issuer::new(&config.issuer, &config.keys).unwrap();
    Arc::new(Shared::new(config, issuer))
}

/// Serves a connection; returns the peer's socket.
async fn serve(shared: &Arc<Shared>, session: Option<SessionId>) -> TcpStream {
    let (near, far) = sockets().await;
    let daemon = DaemonId::new("d_1");
    let admission = match session {
        None => Admission::Daemon(DaemonPass {
            daemon,
            owner: None,
            epoch: 0,
            issued_at: 0,
            expires_at: 0,
            resumable: true,
            concurrent_sessions: None,
        }),
        Some(session) => Admission::Client(ClientPass {
            daemon,
            user: "u_1".into(),
            session,
            epoch: 0,
            issued_at: 0,
            concurrent_sessions: None,
        }),
    };
    let membership = Membership::join(shared, admission);
    let shared = Arc::clone(shared);
    tokio::spawn(Connection::new(Stream::Plain(near), &[], membership, shared).run());
    far
}

async fn expect(socket: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    socket.read_exact(&mut read).await.unwrap();
    assert_eq!(read, bytes);
}

fn framed(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    encode::binary(&frame.encode(), &mut out);
    out
}

#[tokio::test]
async fn sbrp_relay_17_a_panic_is_told_counted_and_ends_one_connection() {
    let shared = shared();
    let sid = SessionId::from_wire(7).unwrap();
    let mut daemon = serve(&shared, None).await;
    let mut client = serve(&shared, Some(sid)).await;
    let mut other = serve(&shared, SessionId::from_wire(8)).await;
    let bomb = Frame::Ping(PingPayload::new(BOMB).unwrap()).encode();
    client.write_all(&encode::as_from_client(&bomb)).await.unwrap();
    let mut last = framed(&Frame::control(ControlCode::InternalError, None));
    encode::close(Some(1011), &mut last);
    expect(&mut client, &last).await;
    // The daemon is told that this session ended, and its other session continues.
    expect(&mut daemon, &framed(&Frame::control(ControlCode::SessionEnded, Some(sid)))).await;
    let data = Frame::Data { session: SessionId::from_wire(8).unwrap(), payload: "x".into() };
    other.write_all(&encode::as_from_client(&data.encode())).await.unwrap();
    expect(&mut daemon, &framed(&data)).await;
    let page = shared.meters.render(&Gauges::default());
    assert!(page.contains("bowline_relay_panics_total 1\n"), "{page}");
    assert!(page.contains("bowline_relay_told_total{code=\"internal_error\"} 1\n"), "{page}");
}
