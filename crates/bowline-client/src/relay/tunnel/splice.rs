//! One TCP connection joined with one stream of the mux.
//!
//! yamux does not tell a finished stream from an interrupted one, so each direction is a sequence
//! of records with an explicit end record. yamux also does not report a reset to the peer after a
//! half-close; so a stream is closed only when both directions ended, and until then dropping it
//! resets it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::compat::FuturesAsyncReadCompatExt;
use yamux::Stream;

/// Copies both directions to their ends. If either is interrupted, or this future is dropped
/// before, the TCP connections at both endpoints are reset.
pub(super) async fn splice(mut tcp: TcpStream, stream: Stream) -> io::Result<()> {
    // From here on every return resets the connection, until both directions have ended.
    tcp.set_zero_linger()?;
    tcp.set_nodelay(true)?;
    let mut stream = stream.compat();
    {
        let (mut from_near, mut to_near) = tcp.split();
        let (mut from_far, mut to_far) = tokio::io::split(&mut stream);
        tokio::try_join!(send(&mut from_near, &mut to_far), receive(&mut from_far, &mut to_near))?;
    }
    #[expect(deprecated, reason = "a time to linger blocks a thread; none does not")]
    tcp.set_linger(None)?;
    stream.shutdown().await
}

/// Resets the connection, so that its peer sees an error and not an orderly end.
pub(super) fn reset(tcp: TcpStream) {
    let _ = tcp.set_zero_linger();
}

async fn send(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut record = vec![0; HEAD + MOST];
    loop {
        let count = from.read(&mut record[HEAD..]).await?;
        record[..HEAD].copy_from_slice(&(count as u16).to_be_bytes());
        to.write_all(&record[..HEAD + count]).await?;
        if count == 0 {
            return to.flush().await;
        }
    }
}

async fn receive(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut record = vec![0; MOST];
    loop {
        let mut length = [0; HEAD];
        // An end of the stream here, or within a record, is an interruption: `read_exact` fails.
        from.read_exact(&mut length).await?;
        let mut left = usize::from(u16::from_be_bytes(length));
        if left == 0 {
            return to.shutdown().await;
        }
        while left > 0 {
            let most = left.min(MOST);
            let count = from.read(&mut record[..most]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_all(&record[..count]).await?;
            left -= count;
        }
    }
}

const HEAD: usize = 2;
/// With its header a record fills the largest frame that yamux sends.
const MOST: usize = (32 << 10) - HEAD;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_direction_ends_with_its_record_and_is_cut_without() {
        let said = vec![7; 100_000];
        let mut records = Vec::new();
        send(&mut said.as_slice(), &mut records).await.unwrap();
        let mut heard = Vec::new();
        receive(&mut records.as_slice(), &mut heard).await.unwrap();
        assert_eq!(heard, said);
        for length in [0, 1, 2, 50_000, records.len() - 1] {
            let cut = receive(&mut &records[..length], &mut Vec::new()).await;
            assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{length}");
        }
    }
}
