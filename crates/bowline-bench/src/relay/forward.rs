//! A minimal TCP forwarder: copies bytes in both directions without parsing them. Its sockets have
//! the same options as the relay's.

use std::net::SocketAddr;

use anyhow::Result;
use bowline_net::loopback;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpSocket};

/// The size of one read: the same as the relay's.
const BUFFER: usize = 64 << 10;

/// Serves until the process is killed; calls `ready` with the address.
pub async fn serve(to: SocketAddr, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    loopback::without_pacing(&listener, to.ip());
    ready(listener.local_addr()?);
    loop {
        let (mut near, _) = listener.accept().await?;
        tokio::spawn(async move {
            let far = TcpSocket::new_v4()?;
            loopback::without_pacing(&far, to.ip());
            let mut far = far.connect(to).await?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await
        });
    }
}
