//! Throughput and latency between one sender and one receiver, through a server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bowline_sbrp::id::SessionId;

use super::issuer::{self, Issuer};
use super::nginx;
use super::server::MeasuredServer;
use super::wire::{self, Shape, plain};

/// Frames are written in batches of about this many bytes.
const BATCH: usize = 128 << 10;

#[derive(Debug)]
pub(super) struct Path {
    sender: TcpStream,
    receiver: TcpStream,
    session: SessionId,
}

impl Path {
    /// Through a forwarder, or directly to the listener.
    pub(super) fn through(address: SocketAddr, behind: &TcpListener) -> Result<Self> {
        let sender = plain(address)?;
        let (receiver, _) = behind.accept()?;
        receiver.set_nodelay(true)?;
        Ok(Self { sender, receiver, session: issuer::session(1)? })
    }

    pub(super) fn proxied(address: SocketAddr, behind: &TcpListener) -> Result<Self> {
        let mut sender = wire::connect(address, "none")?;
        let receiver = nginx::accept(behind)?;
        wire::upgraded(&mut sender)?;
        Ok(Self { sender, receiver, session: issuer::session(1)? })
    }

    /// From a client to its own daemon, through the relay.
    pub(super) fn relay(relay: &MeasuredServer, issuer: &Issuer, session: u64) -> Result<Self> {
        let daemon = format!("daemon-{session}");
        let session = issuer::session(session)?;
        let token = issuer.daemon(&daemon);
        let mut receiver = wire::connect(relay.address, &token)?;
        wire::upgraded(&mut receiver)?;
        wire::until_online(relay.address, &token)?;
        let mut sender = wire::connect(relay.address, &issuer.client(&daemon, session))?;
        wire::upgraded(&mut sender)?;
        Ok(Self { sender, receiver, session })
    }
}

/// The number of frames through all paths, and the time from the first byte sent to the last
/// received.
pub(super) fn flood(paths: &[Path], shape: Shape, length: Duration) -> Result<(usize, Duration)> {
    let begun = Instant::now();
    let frames: Result<usize> = thread::scope(|scope| {
        let mut running = Vec::new();
        for path in paths {
            // Set before the last batch is sent, so that the receiver knows when it is done.
            let total = Arc::new(AtomicUsize::new(usize::MAX));
            let told = Arc::clone(&total);
            running.push(scope.spawn(move || send(path, shape, begun + length, &told)));
            running.push(scope.spawn(move || receive(&path.receiver, shape, &total)));
        }
        let mut frames = 0;
        for task in running {
            frames += task.join().ok().context("a thread of the generator panicked")??;
        }
        Ok(frames)
    });
    Ok((frames?, begun.elapsed()))
}

/// Sends until the deadline. Only received frames are counted.
fn send(path: &Path, shape: Shape, until: Instant, total: &AtomicUsize) -> Result<usize> {
    let frame = shape.frame(path.session);
    let count = (BATCH / frame.len()).max(1);
    let batch = frame.repeat(count);
    let mut batches = 0;
    let mut last = false;
    while !last {
        batches += 1;
        last = Instant::now() >= until;
        if last {
            total.store(batches * count, Ordering::Release);
        }
        (&path.sender).write_all(&batch)?;
    }
    Ok(0)
}

/// The number of received frames, computed from bytes: all frames have the same size.
fn receive(mut stream: &TcpStream, shape: Shape, total: &AtomicUsize) -> Result<usize> {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => bail!("the connection was closed after {bytes} bytes"),
            read => bytes += read,
        }
        let frames = total.load(Ordering::Acquire);
        if frames.checked_mul(shape.arrives).is_some_and(|all| bytes >= all) {
            ensure!(bytes == frames * shape.arrives, "more bytes were received than sent");
            return Ok(frames);
        }
    }
}

/// The latency of each frame, one in flight at a time; sorted.
pub(super) fn one_at_a_time(path: Path, shape: Shape, frames: usize) -> Result<Vec<Duration>> {
    let Path { mut sender, mut receiver, session } = path;
    let frame = shape.frame(session);
    let mut arrived = vec![0; shape.arrives];
    let mut times = Vec::with_capacity(frames);
    for _ in 0..frames {
        let begun = Instant::now();
        sender.write_all(&frame)?;
        receiver.read_exact(&mut arrived)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}
