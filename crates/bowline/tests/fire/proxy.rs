//! A man in the middle that loses turns on their way to a surface, and answers pings itself: to
//! the gateway it looks as if all had arrived.

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::reach::Session;

/// Which turns are lost: the first one of a connection is 1.
pub(crate) type Loses = fn(usize) -> bool;

/// Listens for surfaces of one session; gives the address.
pub(crate) async fn before(gateway: &str, session: &Session, loses: Loses) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("ws://{gateway}/v1/sbp/ws/{}", session.id);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(carry(stream, url.clone(), loses));
        }
    });
    address
}

async fn carry(stream: TcpStream, url: String, loses: Loses) {
    let mut surface = tokio_tungstenite::accept_async(stream).await.unwrap();
    let (mut gateway, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut turns = 0;
    loop {
        tokio::select! {
            packet = gateway.next() => match packet {
                Some(Ok(Packet::Text(text))) => {
                    turns += usize::from(text.contains("\"TETHER_TURN\""));
                    let is_lost = text.contains("\"TETHER_TURN\"") && loses(turns);
                    if !is_lost && surface.send(Packet::Text(text)).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Packet::Ping(_) | Packet::Pong(_))) => {}
                _ => return,
            },
            packet = surface.next() => match packet {
                Some(Ok(Packet::Text(text))) => {
                    if gateway.send(Packet::Text(text)).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Packet::Ping(_) | Packet::Pong(_))) => {}
                _ => return,
            },
        }
    }
}
