//! Resolves the name of a peer, and checks every address that it has.
//!
//! Resolved once for each connection: what was checked is what is dialled, so a name that has another
//! address a moment later (rebinding) gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;

use crate::address::{self, NotPublic};
use crate::target::Reach;

/// The most addresses of one name that are tried.
pub(crate) const MOST_ADDRESSES: usize = 8;

/// Who knows the addresses of a name.
#[async_trait]
pub trait Lookup: fmt::Debug + Send + Sync {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// This system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.take(64).collect())
    }
}

/// Why there is no address to dial.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("its name has no address")]
    NoAddress,
    #[error("its name cannot be resolved: {0}")]
    Failed(#[from] io::Error),
    #[error("its name leads to {0}, and only peers of the configuration may have one")]
    NotPublic(#[from] NotPublic),
}

/// The addresses to dial. If one of a stranger's addresses is not public, none is dialled.
pub async fn checked(
    lookup: &dyn Lookup,
    host: &str,
    port: u16,
    reach: Reach,
) -> Result<Vec<SocketAddr>, LookupError> {
    let mut addresses = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => lookup.addresses(host, port).await?,
    };
    if reach == Reach::Public {
        for address in &addresses {
            address::check(address.ip())?;
        }
    }
    addresses.truncate(MOST_ADDRESSES);
    if addresses.is_empty() { Err(LookupError::NoAddress) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Gives these answers one after the other.
    #[derive(Debug)]
    struct Script(Mutex<Vec<Vec<&'static str>>>, AtomicUsize);

    #[async_trait]
    impl Lookup for Script {
        async fn addresses(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let answer = self.0.lock().unwrap().remove(0);
            Ok(answer.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
        }
    }

    fn script(answers: &[&[&'static str]]) -> Script {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Script(Mutex::new(answers), AtomicUsize::new(0))
    }

    #[tokio::test]
    async fn sbp_l6_06_a_name_that_changes_its_address_gains_nothing() {
        let names = script(&[&["1.1.1.1"], &["127.0.0.1"]]);
        let first = checked(&names, "rebind.example", 443, Reach::Public).await.unwrap();
        assert_eq!(first, ["1.1.1.1:443".parse().unwrap()], "what was checked is returned");
        assert_eq!(names.1.load(Ordering::Relaxed), 1, "and asked for once");
        let again = checked(&names, "rebind.example", 443, Reach::Public).await;
        assert!(matches!(again, Err(LookupError::NotPublic(NotPublic::Loopback))), "{again:?}");
    }

    #[tokio::test]
    async fn sbp_l6_06_one_address_that_is_not_public_spoils_all() {
        let names = script(&[
            &["1.1.1.1", "10.0.0.1"],
            &["2606:4700::1111", "::ffff:169.254.169.254"],
            &[],
            &["10.0.0.1"],
        ]);
        let refused = checked(&names, "x", 1, Reach::Public).await;
        assert!(matches!(refused, Err(LookupError::NotPublic(NotPublic::Private))));
        let refused = checked(&names, "x", 1, Reach::Public).await;
        assert!(matches!(refused, Err(LookupError::NotPublic(NotPublic::Embedded))));
        let none = checked(&names, "x", 1, Reach::Public).await;
        assert!(matches!(none, Err(LookupError::NoAddress)));
        let named = checked(&names, "x", 1, Reach::Static).await.unwrap();
        assert_eq!(named, ["10.0.0.1:1".parse().unwrap()]);
    }

    #[tokio::test]
    async fn sbp_l6_06_an_address_in_place_of_a_name_is_checked_as_well() {
        let names = script(&[]);
        let refused = checked(&names, "169.254.169.254", 80, Reach::Public).await;
        assert!(matches!(refused, Err(LookupError::NotPublic(NotPublic::Metadata))));
        // Spellings that only the system's resolver reads come back as addresses.
        let refused = checked(&SystemLookup, "0x7f.1", 80, Reach::Public).await;
        assert!(
            matches!(refused, Err(LookupError::NotPublic(_) | LookupError::Failed(_))),
            "{refused:?}"
        );
    }
}
