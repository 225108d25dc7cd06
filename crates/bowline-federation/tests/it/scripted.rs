//! Test fixture: a server on a real socket that answers as a script says, whatever that is.
//!
//! Also used by the tests of the gateway.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// What a scripted peer does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// An answer with this status and JSON.
    Json(u16, String),
    /// These bytes, and then the end of the connection.
    Raw(Vec<u8>),
    /// These bytes, and then these ones again and again, with a pause.
    Endless { head: Vec<u8>, again: Vec<u8>, pause: Duration },
}

impl Reply {
    /// A head with these lines, and a body.
    pub(crate) fn raw(head: &str, body: &[u8]) -> Self {
        let mut bytes = head.replace('\n', "\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(body);
        Self::Raw(bytes)
    }
}

/// The request line and headers, names in lower case; and the body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// A peer on loopback.
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Peer {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (script, seen): (Script, _) = (Arc::new(script), Arc::clone(&asked));
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
        Self { url, asked, _serving: AbortOnDropHandle::new(serving) }
    }

    /// The paths that were asked for, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.path.clone()).collect()
    }
}

/// One request after the other, until one is answered with anything but an ordinary answer.
async fn serve(mut socket: TcpStream, script: Script, seen: Arc<Mutex<Vec<Asked>>>) -> Option<()> {
    loop {
        let asked = request(&mut socket).await?;
        seen.lock().unwrap().push(asked.clone());
        match script(&asked) {
            Reply::Json(status, text) => {
                let mut head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n");
                write!(head, "content-length: {}\r\n\r\n{text}", text.len()).unwrap();
                socket.write_all(head.as_bytes()).await.ok()?;
            }
            Reply::Raw(bytes) => {
                socket.write_all(&bytes).await.ok()?;
                socket.shutdown().await.ok()?;
                return None;
            }
            Reply::Endless { head, again, pause } => {
                socket.write_all(&head).await.ok()?;
                loop {
                    socket.write_all(&again).await.ok()?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

async fn request(socket: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    };
    let headers: HashMap<_, _> = lines.filter_map(header).collect();
    let length: usize = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if socket.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { path, headers, body })
}
