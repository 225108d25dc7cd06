//! One TCP connection, or standard input and output, joined with one stream of a tunnel.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stream::TunnelStream;

/// Copies both directions to their ends, and waits until the peer has received them. If either is interrupted, or this future is dropped before,
/// the TCP connections at both ends are reset: a truncated download never looks complete.
pub(super) async fn splice(mut tcp: TcpStream, stream: TunnelStream) -> io::Result<()> {
    // From here on every return resets the connection, until both directions have ended.
    tcp.set_zero_linger()?;
    tcp.set_nodelay(true)?;
    let (from, to) = tcp.split();
    copy_both(from, to, stream).await?;
    #[expect(deprecated, reason = "a time to linger blocks a thread; none does not")]
    tcp.set_linger(None)
}

/// The same for any reader and writer.
pub(super) async fn copy_both(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    stream: TunnelStream,
) -> io::Result<()> {
    let there = async {
        let mut buffer = vec![0; PIECE];
        loop {
            match from.read(&mut buffer).await? {
                0 => {
                    stream.end()?;
                    return stream.finished().await;
                }
                count => stream.write_whole(&buffer[..count]).await?,
            }
        }
    };
    let back = async {
        while let Some(bytes) = stream.next_piece().await? {
            to.write_all(&bytes).await?;
            to.flush().await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(there, back).map(|_| ())
}

/// Resets the connection, so that its peer sees an error and not an orderly end.
pub(super) fn reset(tcp: TcpStream) {
    let _ = tcp.set_zero_linger();
}

/// How much is read at once: about the data of one record.
const PIECE: usize = 64 << 10;
