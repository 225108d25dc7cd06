//! The least that can stand between two sockets: copies bytes, both ways, and looks at none. Its
//! sockets are set as the relay's are.

use std::net::SocketAddr;

use anyhow::Result;
use bowline_net::loopback;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpSocket};

/// What is copied at once: as much as the relay reads at once.
const BUFFER: usize = 64 << 10;

/// Serves until it is killed, and says where.
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
