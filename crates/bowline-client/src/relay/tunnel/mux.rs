//! yamux over a pipe: many streams, each with its own flow control.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use futures_util::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use yamux::{Config, Connection, Mode, Stream};

use super::pipe::Pipe;

/// Opens streams over a session; a separate future drives the connection.
#[derive(Debug, Clone)]
pub(super) struct Mux {
    opens: mpsc::Sender<oneshot::Sender<Stream>>,
}

impl Mux {
    /// The client's side: the handle, and the future that drives the connection until the session
    /// ends or no handle is left.
    pub(super) fn client(pipe: Pipe) -> (Self, impl Future<Output = ()>) {
        let (opens, asked) = mpsc::channel(16);
        let connection = Connection::new(pipe, config(), Mode::Client);
        // A daemon has no reason to open streams; a stream it opens is dropped, which resets it.
        (Self { opens }, drive(connection, Some(asked), drop))
    }

    /// Opens a stream and announces it to the daemon at once: yamux alone would wait for the first
    /// bytes. `None` if the session ended.
    pub(super) async fn open(&self) -> Option<Stream> {
        let (reply, stream) = oneshot::channel();
        self.opens.send(reply).await.ok()?;
        let mut stream = stream.await.ok()?;
        stream.write_all(&[OPEN]).await.ok()?;
        Some(stream)
    }
}

/// The daemon's side: accepts streams until the session ends.
pub(super) async fn accept(pipe: Pipe, streams: impl FnMut(Stream)) {
    drive(Connection::new(pipe, config(), Mode::Server), None, streams).await;
}

async fn drive(
    mut connection: Connection<Pipe>,
    mut opens: Option<mpsc::Receiver<oneshot::Sender<Stream>>>,
    mut streams: impl FnMut(Stream),
) {
    let mut waiting: Option<oneshot::Sender<Stream>> = None;
    poll_fn(|cx| {
        loop {
            if let (None, Some(asked)) = (&waiting, &mut opens) {
                match asked.poll_recv(cx) {
                    Poll::Ready(Some(reply)) => waiting = Some(reply),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            if let Some(reply) = waiting.take() {
                match connection.poll_new_outbound(cx) {
                    Poll::Ready(Ok(stream)) => {
                        let _ = reply.send(stream);
                        continue;
                    }
                    Poll::Ready(Err(error)) => return over(&error),
                    Poll::Pending => waiting = Some(reply),
                }
            }
            match connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => streams(stream),
                Poll::Ready(Some(Err(error))) => return over(&error),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// Reads the opening byte of a stream.
pub(super) async fn begin(stream: &mut Stream) -> io::Result<()> {
    let mut first = [0];
    stream.read_exact(&mut first).await?;
    if first == [OPEN] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn over(error: &yamux::ConnectionError) -> Poll<()> {
    tracing::debug!(%error, "tunnel over");
    Poll::Ready(())
}

const OPEN: u8 = 0x00;
/// The most TCP connections over one session. yamux's own limit is twice as high: it also counts
/// closing streams, and exceeding it ends all of them.
pub(super) const MOST_STREAMS: usize = 256;

fn config() -> Config {
    let mut config = Config::default();
    config.set_max_num_streams(2 * MOST_STREAMS);
    // No stream grows past its initial 256 KiB: the pipe's window is the tighter limit anyway.
    config
        .set_max_connection_receive_window(Some(2 * MOST_STREAMS * yamux::DEFAULT_CREDIT as usize));
    config.set_split_send_size(32 << 10);
    config
}
