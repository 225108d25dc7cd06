//! How often the keys of gateways are fetched because somebody says to be one.
//!
//! Whoever asks names the address at which its key is. Without limits anybody could have this gateway flood any host
//! of the internet, and wait for as many of them as there are connections.

use std::time::{Duration, Instant};

use bowline_federation::{Reach, Target};
use bowline_net::PeerName;
use bowline_net::rate::{Beyond, Rate, Throttle, TooOften};
use bowline_sbp::error::{Code, Failure};
use tokio::sync::{Semaphore, SemaphorePermit};

/// For each network that asks. A gateway that moves a session takes one or two.
const PER_NETWORK: Rate = Rate { burst: 20, every: Duration::from_secs(3) };
/// For each host that is asked, whoever makes us ask.
const PER_HOST: Rate = Rate { burst: 3, every: Duration::from_secs(10) };
/// The most networks, or hosts, that have their own limit.
const MOST: usize = 10_000;
/// Keys of strangers that are fetched at once.
const AT_ONCE: usize = 32;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct KeyFetches {
    networks: Throttle<PeerName>,
    hosts: Throttle<String>,
    at_once: Semaphore,
    patience: Duration,
}

impl KeyFetches {
    pub(super) fn new() -> Self {
        Self {
            networks: Throttle::new(PER_NETWORK, MOST, Beyond::Share),
            hosts: Throttle::new(PER_HOST, MOST, Beyond::Share),
            at_once: Semaphore::new(AT_ONCE),
            patience: PATIENCE,
        }
    }

    /// A permit to fetch the key that is at `target`, because of a request of that network; none: of this machine.
    /// A gateway of the configuration needs none: it waits for no stranger.
    pub(super) async fn permit(
        &self,
        from: Option<&PeerName>,
        target: &Target,
    ) -> Result<Option<SemaphorePermit<'_>>, Failure> {
        let is_stranger = target.reach == Reach::Public;
        if let Some(network) = from.filter(|_| is_stranger) {
            self.networks.take(network.network(), Instant::now()).map_err(too_often)?;
        }
        self.hosts.take(target.host(), Instant::now()).map_err(too_often)?;
        if !is_stranger {
            return Ok(None);
        }
        match tokio::time::timeout(self.patience, self.at_once.acquire()).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(too_often(TooOften(self.patience))),
        }
    }
}

fn too_often(TooOften(wait): TooOften) -> Failure {
    let why = "too many gateways that are not known here ask at once; try again later";
    Failure { retry_after: Some(wait.as_secs() + 1), ..Failure::new(Code::RateLimited, why) }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bowline_federation::StaticPeer;

    use super::*;

    fn from(address: [u8; 4]) -> PeerName {
        PeerName::Address(IpAddr::from(address))
    }

    fn stranger(n: usize) -> Target {
        Target::stranger(None, format!("https://gw{n}.example").parse().unwrap())
    }

    #[tokio::test]
    async fn g11_a_network_makes_us_fetch_so_many_keys_and_a_host_is_asked_so_often() {
        let fetches = KeyFetches::new();
        for n in 0..PER_NETWORK.burst as usize {
            fetches.permit(Some(&from([192, 0, 2, 1])), &stranger(n)).await.unwrap();
        }
        let refused = fetches.permit(Some(&from([192, 0, 2, 1])), &stranger(99)).await.unwrap_err();
        assert_eq!(refused.code, Code::RateLimited);
        assert!(refused.retry_after.is_some_and(|seconds| (1..=4).contains(&seconds)));
        fetches.permit(Some(&from([192, 0, 2, 2])), &stranger(99)).await.unwrap();
        // One host, whatever its port and path, and whoever asks.
        for n in 0..PER_HOST.burst {
            let target = format!("https://victim.example:{}/{n}", 1000 + n).parse().unwrap();
            let target = Target::stranger(None, target);
            fetches.permit(Some(&from([198, 51, 100, n as u8])), &target).await.unwrap();
        }
        let victim = Target::stranger(None, "https://victim.example".parse().unwrap());
        let refused = fetches.permit(Some(&from([198, 51, 100, 99])), &victim).await.unwrap_err();
        assert_eq!(refused.code, Code::RateLimited);
    }

    #[tokio::test]
    async fn g11_only_so_many_strangers_are_asked_at_once_and_no_peer_waits_for_them() {
        let fetches = KeyFetches { patience: Duration::ZERO, ..KeyFetches::new() };
        let mut open = Vec::new();
        for n in 0..AT_ONCE {
            open.push(
                fetches.permit(Some(&from([192, 0, 2, n as u8])), &stranger(n)).await.unwrap(),
            );
        }
        let asks = async || fetches.permit(Some(&from([192, 0, 2, 99])), &stranger(99)).await;
        assert_eq!(asks().await.unwrap_err().code, Code::RateLimited);
        let (id, url) = ("work".parse().unwrap(), "https://work.example".parse().unwrap());
        let named = Target::named(&StaticPeer { id, url, key: None });
        assert!(fetches.permit(Some(&from([192, 0, 2, 99])), &named).await.unwrap().is_none());
        open.pop();
        assert!(asks().await.unwrap().is_some());
    }
}
