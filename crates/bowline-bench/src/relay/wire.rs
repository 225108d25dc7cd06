//! Minimal WebSocket client code for the generator: upgrade, and frames in batches.
//!
//! The mask is constant. The relay has to unmask all the same and cannot know.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bowline_net::loopback;
use bowline_sbrp::frame::Frame;
use bowline_sbrp::id::SessionId;
use bytes::Bytes;
use socket2::{Domain, Socket, Type};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// Timeout of any step; then the measurement fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) payload: usize,
    /// Bytes of a frame at the receiver.
    pub(super) arrives: usize,
}

impl Shape {
    /// Through a forwarder: unchanged.
    pub(super) fn through(payload: usize) -> Self {
        let message = payload + bowline_sbrp::frame::HEADER_LEN;
        Self { payload, arrives: message + head(message, 0).len() + MASK.len() }
    }

    /// Through a relay: unmasked.
    pub(super) fn relayed(payload: usize) -> Self {
        let message = payload + bowline_sbrp::frame::HEADER_LEN;
        Self { payload, arrives: message + head(message, 0).len() }
    }

    /// One such frame, as a client sends it.
    pub(super) fn frame(self, session: SessionId) -> Vec<u8> {
        let payload = Bytes::from(vec![0xa5; self.payload]);
        masked(&Frame::Data { session, payload }.encode())
    }
}

fn head(length: usize, mask: u8) -> Vec<u8> {
    match length {
        0..=125 => vec![0x82, mask | length as u8],
        126..=0xffff => {
            let [a, b] = (length as u16).to_be_bytes();
            vec![0x82, mask | 126, a, b]
        }
        _ => {
            let mut head = vec![0x82, mask | 127];
            head.extend((length as u64).to_be_bytes());
            head
        }
    }
}

/// A message as a client sends it.
pub(super) fn masked(message: &[u8]) -> Vec<u8> {
    let mut frame = head(message.len(), 0x80);
    frame.extend(MASK);
    frame.extend(message.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// The next message of a server. Pings are not answered: a measurement is too short for a timeout.
pub(super) fn read_message(stream: &mut impl std::io::Read) -> Result<Bytes> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long)?;
                usize::from(u16::from_be_bytes(long))
            }
            127 => bail!("the message is too long for this client"),
            short => usize::from(short),
        };
        let mut message = vec![0; length];
        stream.read_exact(&mut message)?;
        match head[0] {
            0x82 => return Ok(message.into()),
            0x89 => {}
            other => bail!("expected a binary message, received opcode {other:#04x}"),
        }
    }
}

/// Connects and sends the upgrade request.
pub(super) fn connect(address: SocketAddr, token: &str) -> Result<TcpStream> {
    let mut stream = plain(address)?;
    let request = format!(
        "GET /relay HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads the response to an upgrade, and no byte after it.
pub(super) fn upgraded(stream: &mut TcpStream) -> Result<()> {
    let head = read_head(stream)?;
    if !head.starts_with(b"HTTP/1.1 101") {
        bail!("refused: {}", String::from_utf8_lossy(&head));
    }
    Ok(())
}

/// The server side of an upgrade.
pub(super) fn answer_upgrade(stream: &mut TcpStream) -> Result<()> {
    read_head(stream)?;
    stream.write_all(
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
          sec-websocket-accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n",
    )?;
    Ok(())
}

pub(super) fn plain(address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    loopback::without_pacing(&socket, address.ip());
    socket.connect(&address.into())?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A whole HTTP response, with its head.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String> {
    asked(address, path, "")
}

fn asked(address: SocketAddr, path: &str, header: &str) -> Result<String> {
    let mut stream = plain(address)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{header}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits until the relay has registered the daemon, shortly after its upgrade.
pub(super) fn until_online(address: SocketAddr, token: &str) -> Result<()> {
    let patience = Instant::now() + PATIENCE;
    while !asked(address, "/status", &format!("authorization: Bearer {token}\r\n"))?
        .contains("\"online\"")
    {
        if Instant::now() > patience {
            bail!("the relay did not register a daemon in time");
        }
    }
    Ok(())
}

/// Reads the head of a request or response. Peeks first: bytes after the head stay in the socket.
fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = [0; 8 << 10];
    loop {
        let seen = stream.peek(&mut bytes)?;
        let end = bytes[..seen].windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let mut head = vec![0; end + 4];
            stream.read_exact(&mut head)?;
            return Ok(head);
        }
        if seen == 0 || seen == bytes.len() {
            bail!("no HTTP head");
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_long_as_their_shape_says() {
        let session = SessionId::from_wire(1).expect("not zero");
        for (payload, through, relayed) in [(64, 83, 79), (16 << 10, 16_405, 16_401)] {
            assert_eq!(Shape::through(payload).frame(session).len(), through);
            assert_eq!(Shape::through(payload).arrives, through);
            assert_eq!(Shape::relayed(payload).arrives, relayed);
        }
    }

    #[test]
    fn what_a_server_sends_is_read_and_pings_are_passed_over() {
        let sent = [&[0x89, 0][..], &[0x82, 3], b"abc"].concat();
        assert_eq!(read_message(&mut &sent[..]).expect("a message"), "abc");
        assert!(read_message(&mut &[0x88, 0][..]).is_err());
    }
}
