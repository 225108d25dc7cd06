//! A way to Redis of which a test can cut a part: what is sent, what is read, or all.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Nothing,
    /// Connections that append messages.
    Sending,
    /// Connections that read them.
    Reading,
    All,
}

pub(crate) struct Way {
    pub(crate) address: String,
    cut: Arc<watch::Sender<Part>>,
}

impl Way {
    pub(crate) async fn to(redis: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(watch::Sender::new(Part::Nothing));
        let is_cut = cut.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&redis).await.unwrap();
                tokio::spawn(carry(near, far, is_cut.clone()));
            }
        });
        Self { address, cut }
    }

    /// From now on that does not pass, and nobody is told. Connections on which it was are dead for good.
    pub(crate) fn cut(&self, part: Part) {
        self.cut.send_replace(part);
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, mut cut: watch::Receiver<Part>) {
    // What was only opened passes unless all is cut.
    let mut is = Part::All;
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            _ = cut.changed() => {}
            asks = near.read(&mut asked) => {
                let asks = &asked[..asks.unwrap_or_default()];
                if asks.is_empty() {
                    return;
                }
                is = part_of(asks).unwrap_or(is);
                if !passes(is, *cut.borrow()) || far.write_all(asks).await.is_err() {
                    break;
                }
            }
            answers = far.read(&mut answered) => {
                let answers = &answered[..answers.unwrap_or_default()];
                let may = passes(is, *cut.borrow());
                if answers.is_empty() || !may || near.write_all(answers).await.is_err() {
                    break;
                }
            }
        }
        if !passes(is, *cut.borrow()) {
            break;
        }
    }
    // Neither side hears of it before it is mended.
    let _ = cut.wait_for(|cut| passes(is, *cut)).await;
}

/// Which part of the traffic a connection carries, by the commands on it; one that is new may be either.
fn part_of(commands: &[u8]) -> Option<Part> {
    let has = |name: &[u8]| commands.windows(name.len()).any(|window| window == name);
    match (has(b"XADD"), has(b"XREAD") || has(b"XREVRANGE")) {
        (true, _) => Some(Part::Sending),
        (false, true) => Some(Part::Reading),
        (false, false) => None,
    }
}

fn passes(is: Part, cut: Part) -> bool {
    cut != Part::All && cut != is
}
