//! A TCP passage that a test can cut: the load balancer before replicas, and the network to their servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Listens at an address, and passes each connection on to one of several targets in turn, past those that
/// refuse it.
#[derive(Clone)]
pub(crate) struct Passage {
    pub(crate) address: String,
    open: Arc<watch::Sender<bool>>,
}

impl Passage {
    pub(crate) async fn to(targets: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(watch::Sender::new(true));
        let next = AtomicUsize::new(0);
        let is_open = open.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let first = next.fetch_add(1, Ordering::Relaxed);
                let order =
                    (0..targets.len()).map(|n| targets[(first + n) % targets.len()].clone());
                tokio::spawn(carry(near, order.collect(), is_open.clone()));
            }
        });
        Self { address, open }
    }

    /// From now on nothing passes, and nobody is told; connections that were open are dead for good.
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(mut near: TcpStream, targets: Vec<String>, mut open: watch::Receiver<bool>) {
    let _ = near.set_nodelay(true);
    // A connection that comes while it is cut hangs until it is mended.
    if open.wait_for(|open| *open).await.is_err() {
        return;
    }
    for target in targets {
        let Ok(mut far) = TcpStream::connect(&target).await else { continue };
        let _ = far.set_nodelay(true);
        let is_cut = tokio::select! {
            _ = copy_bidirectional(&mut near, &mut far) => false,
            cut = open.wait_for(|open| !*open) => cut.is_ok(),
        };
        if is_cut {
            // Neither side hears of it until the network is back, and then the connection is dead.
            let _ = open.wait_for(|open| *open).await;
        }
        return;
    }
}
