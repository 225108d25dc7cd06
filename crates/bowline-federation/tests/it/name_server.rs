//! Test fixture: a DNS server on loopback. The gateway's tests use it, too.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio_util::task::AbortOnDropHandle;

/// A name server over UDP. It knows the SRV records of `_sbp._tcp.example.test`; other names do not
/// exist.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    /// The names that were asked for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl NameServer {
    pub(crate) fn on(socket: UdpSocket, records: &[(u16, u16, u16, &str)]) -> Self {
        let address = socket.local_addr().unwrap();
        let records: Vec<_> = records
            .iter()
            .map(|(priority, weight, port, host)| {
                let mut data = Vec::new();
                [priority, weight, port].iter().for_each(|n| data.extend(n.to_be_bytes()));
                data.extend(labels(host));
                data
            })
            .collect();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let (name, reply) = answered(&buffer[..length], &records);
                seen.lock().unwrap().push(name);
                let _ = socket.send_to(&reply, from).await;
            }
        });
        Self { address, asked, _serving: AbortOnDropHandle::new(serving) }
    }
}

/// A name as its labels.
fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The name in a question, and the reply (RFC 1035, section 4).
fn answered(query: &[u8], records: &[Vec<u8>]) -> (String, Vec<u8>) {
    const SRV: u16 = 33;
    let mut at = 12;
    let mut name = Vec::new();
    while query[at] != 0 {
        let length = usize::from(query[at]);
        name.push(String::from_utf8(query[at + 1..=at + length].to_vec()).unwrap());
        at += length + 1;
    }
    let question = &query[12..at + 5];
    let name = name.join(".").to_lowercase();
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let known = name == "_sbp._tcp.example.test" && kind == SRV;
    let records = if known { records } else { &[] };
    // An answer with authority; of another name, that it does not exist.
    let flags: u16 = 0x8580 | if known { 0 } else { 3 };
    let mut reply = query[..2].to_vec();
    reply.extend(flags.to_be_bytes());
    for count in [1, records.len() as u16, 0, 0] {
        reply.extend(count.to_be_bytes());
    }
    reply.extend_from_slice(question);
    for record in records {
        // The name is that of the question; class IN, a minute.
        reply.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
        reply.extend((record.len() as u16).to_be_bytes());
        reply.extend_from_slice(record);
    }
    (name, reply)
}
