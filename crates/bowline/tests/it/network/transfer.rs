//! Bytes that are sent through a tunnel and compared at its other end.
//!
//! A request is 17 bytes: what is asked for, a seed, a length. A download is that many bytes made from the
//! seed. An upload is answered with its SHA-256 after its last byte.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From home to the phone.
    Down = b'd' as isize,
    /// From the phone to home.
    Up = b'u' as isize,
}

/// The service at home that a daemon offers: sends downloads, and takes uploads.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Bytes of uploads that have arrived.
    pub(crate) received: AtomicU64,
}

impl Service {
    pub(crate) fn start(listener: TcpListener) -> Arc<Self> {
        let service = Arc::new(Self::default());
        let serving = Arc::clone(&service);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let service = Arc::clone(&serving);
                // A failure is seen at the other end.
                std::thread::spawn(move || service.serve(stream));
            }
        });
        service
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut request = [0; 17];
        stream.read_exact(&mut request)?;
        let number = |at: usize| u64::from_be_bytes(request[at..at + 8].try_into().unwrap());
        let (seed, length) = (number(1), number(9));
        if request[0] == Way::Down as u8 {
            pieces(seed, length).try_for_each(|piece| stream.write_all(&piece))?;
            return stream.shutdown(Shutdown::Write);
        }
        let hash = hash_of(&mut stream, &self.received, || Ok(()))?;
        stream.write_all(&hash)?;
        stream.shutdown(Shutdown::Write)
    }
}

/// One transfer, as a program on the phone makes it.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) way: Way,
    pub(crate) length: u64,
    pub(crate) seed: u64,
}

impl Transfer {
    /// Runs it to its end; says what went wrong. `moved` counts bytes of downloads that have arrived.
    pub(crate) fn run(
        &self,
        mut stream: TcpStream,
        patience: Duration,
        moved: &AtomicU64,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let result = self.exchange(&mut stream, begun + patience, moved);
        let Self { way, length, .. } = self;
        let when = begun.elapsed().as_secs_f32();
        match result {
            Ok(got) if got == self.hash() => Ok(()),
            Ok(_) => {
                Err(format!("{way:?}, {length} bytes: other bytes arrived, after {when:.1} s"))
            }
            Err(error) => Err(format!("{way:?}, {length} bytes: {error}, after {when:.1} s")),
        }
    }

    fn exchange(
        &self,
        stream: &mut TcpStream,
        deadline: Instant,
        moved: &AtomicU64,
    ) -> io::Result<[u8; 32]> {
        let mut request = vec![self.way as u8];
        request.extend(self.seed.to_be_bytes());
        request.extend(self.length.to_be_bytes());
        stream.write_all(&request)?;
        let mut reader = stream.try_clone()?;
        let in_time = |stream: &TcpStream| {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::other("it takes too long"));
            }
            stream.set_read_timeout(Some(left))?;
            stream.set_write_timeout(Some(left))
        };
        in_time(stream)?;
        if self.way == Way::Down {
            return hash_of(&mut reader, moved, || in_time(stream));
        }
        for piece in pieces(self.seed, self.length) {
            in_time(stream)?;
            stream.write_all(&piece)?;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        in_time(stream)?;
        reader.read_to_end(&mut answer)?;
        answer.try_into().map_err(|_| io::Error::other("it was not answered whole"))
    }

    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        pieces(self.seed, self.length).for_each(|piece| hash.update(piece));
        hash.finalize().into()
    }
}

/// Reads to the end; the hash of all that came.
fn hash_of(
    stream: &mut impl Read,
    count: &AtomicU64,
    before_each: impl Fn() -> io::Result<()>,
) -> io::Result<[u8; 32]> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        before_each()?;
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&piece[..read]);
        count.fetch_add(read as u64, Relaxed);
    }
}

/// The bytes of a transfer. No two places look alike, so that what is lost or repeated is noticed.
fn pieces(seed: u64, length: u64) -> impl Iterator<Item = Vec<u8>> {
    const PIECE: u64 = 8 << 10;
    (0..length.div_ceil(PIECE)).map(move |number| {
        let room = (length - number * PIECE).min(PIECE) as usize;
        let mut state = seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut piece = Vec::with_capacity(room + 8);
        while piece.len() < room {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            piece.extend((state >> 16).to_le_bytes());
        }
        piece.truncate(room);
        piece
    })
}
