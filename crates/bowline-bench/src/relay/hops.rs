//! The least that a tunnel has to do: bytes are sealed, copied by a server in between, and opened.
//!
//! No relay protocol, no WebSocket, no acknowledgements and no asynchronous runtime: three small programs
//! with blocking sockets. A tunnel beside a forwarder can only be as fast as these are beside it, because
//! it crosses as many sockets and seals as many bytes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Result, anyhow};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use bowline_net::loopback;
use socket2::{Domain, Socket, Type};

use super::cores;
use super::server::Process;

/// The plaintext of one piece, and its tag.
const PIECE: usize = 64 << 10;
const TAG: usize = 16;

/// What a hop does with bytes on their way from the near side to the far one. The way back is the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    Seal,
    Open,
}

impl Hop {
    fn reverse(self) -> Self {
        match self {
            Self::Seal => Self::Open,
            Self::Open => Self::Seal,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Seal => "--seal",
            Self::Open => "--open",
        }
    }
}

/// The three programs.
#[derive(Debug)]
pub(super) struct Hops {
    _processes: [Process; 3],
    pub(super) port: SocketAddr,
    /// Connections through them arrive here.
    pub(super) behind: TcpListener,
}

impl Hops {
    pub(super) fn start() -> Result<Self> {
        let behind = TcpListener::bind("127.0.0.1:0")?;
        let (opens, at) = hop(behind.local_addr()?, Some(Hop::Open))?;
        let (copies, at) = hop(at, None)?;
        let (seals, port) = hop(at, Some(Hop::Seal))?;
        Ok(Self { _processes: [opens, copies, seals], port, behind })
    }
}

fn hop(to: SocketAddr, work: Option<Hop>) -> Result<(Process, SocketAddr)> {
    let mut command = cores::anywhere(&std::env::current_exe()?);
    command.args(["bench", "forward", "--to", &to.to_string()]).args(work.map(Hop::name));
    let (process, line) = Process::start(command)?;
    Ok((process, line.trim().parse()?))
}

/// Serves until the process is killed; calls `ready` with the address. Blocks.
pub fn serve(to: SocketAddr, work: Hop, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    loopback::without_pacing(&listener, to.ip());
    ready(listener.local_addr()?);
    for near in listener.incoming() {
        let far = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        loopback::without_pacing(&far, to.ip());
        far.connect(&to.into())?;
        let (near, far) = (near?, TcpStream::from(far));
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let back = (far.try_clone()?, near.try_clone()?);
        thread::spawn(move || pass_on(near, far, work));
        thread::spawn(move || pass_on(back.0, back.1, work.reverse()));
    }
    Ok(())
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, work: Hop) -> Result<()> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).map_err(|_| anyhow!("no cipher"))?;
    let (key, mut buffer) = (LessSafeKey::new(key), vec![0; PIECE + TAG]);
    let wanted = if work == Hop::Seal { PIECE } else { PIECE + TAG };
    for number in 0u64.. {
        let mut length = 0;
        while length < wanted {
            match from.read(&mut buffer[length..wanted])? {
                0 => break,
                read => length += read,
            }
        }
        if length == 0 {
            break;
        }
        let length = in_place(&key, number, work, &mut buffer, length)?;
        to.write_all(&buffer[..length])?;
    }
    Ok(to.shutdown(Shutdown::Write)?)
}

/// Seals or opens the first `length` bytes; returns how many there are then.
fn in_place(
    key: &LessSafeKey,
    number: u64,
    work: Hop,
    buffer: &mut [u8],
    length: usize,
) -> Result<usize> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let broke = |_| anyhow!("the cipher failed");
    match work {
        Hop::Seal => {
            let text = &mut buffer[..length];
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), text).map_err(broke)?;
            buffer[length..length + TAG].copy_from_slice(tag.as_ref());
            Ok(length + TAG)
        }
        Hop::Open => {
            let sealed = &mut buffer[..length];
            Ok(key.open_in_place(nonce, Aad::empty(), sealed).map_err(broke)?.len())
        }
    }
}
