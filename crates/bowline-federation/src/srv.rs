//! Gateways of a domain, by its SRV records: `_sbp._tcp.<domain>` (RFC 2782).
//!
//! What the records say is a stranger's word: the hosts are checked as any other before they are
//! dialled.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// The most records of one domain that count.
const MOST_RECORDS: usize = 16;
/// How long a question may take, retries included.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long one name server may take for one try.
const TRY: Duration = Duration::from_secs(2);

/// One SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrvTarget {
    pub priority: u16,
    pub weight: u16,
    pub host: String,
    pub port: u16,
}

/// Why there is no answer; that a domain has no records is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SrvError {
    #[error("`{0}` is no name of a domain")]
    Name(String),
    #[error("the name servers cannot be used: {0}")]
    Config(String),
    #[error("the name servers did not answer: {0}")]
    Unanswered(String),
}

/// Who knows the SRV records of a domain.
#[async_trait]
pub trait SrvLookup: fmt::Debug + Send + Sync {
    async fn records(&self, domain: &str) -> Result<Vec<SrvTarget>, SrvError>;
}

/// The name servers of this system, or those that the operator named.
pub struct DnsSrv(TokioResolver);

impl fmt::Debug for DnsSrv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DnsSrv")
    }
}

impl DnsSrv {
    /// As the system resolves names.
    pub fn system() -> Result<Self, SrvError> {
        let builder = TokioResolver::builder_tokio();
        let mut builder = builder.map_err(|error| SrvError::Config(error.to_string()))?;
        builder.options_mut().timeout = TRY;
        let built = builder.build().map_err(|error| SrvError::Config(error.to_string()))?;
        Ok(Self(built))
    }

    /// By these name servers.
    pub fn servers(servers: &[SocketAddr]) -> Result<Self, SrvError> {
        let servers = servers.iter().map(|server| {
            let at = |mut connection: ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
            NameServerConfig::new(server.ip(), true, connections)
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let runtime = TokioRuntimeProvider::default();
        let mut builder = TokioResolver::builder_with_config(config, runtime);
        builder.options_mut().timeout = TRY;
        let built = builder.build().map_err(|error| SrvError::Config(error.to_string()))?;
        Ok(Self(built))
    }
}

#[async_trait]
impl SrvLookup for DnsSrv {
    async fn records(&self, domain: &str) -> Result<Vec<SrvTarget>, SrvError> {
        if !is_domain(domain) {
            return Err(SrvError::Name(domain.chars().take(64).collect()));
        }
        // With a dot at the end: never below the domains of this machine.
        let name = format!("_sbp._tcp.{}.", domain.trim_end_matches('.'));
        let asking = tokio::time::timeout(PATIENCE, self.0.srv_lookup(name)).await;
        let found = match asking {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if error.is_no_records_found() => return Ok(Vec::new()),
            Ok(Err(error)) => return Err(SrvError::Unanswered(error.to_string())),
            Err(_) => return Err(SrvError::Unanswered("they took too long".into())),
        };
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(srv) => Some(SrvTarget {
                priority: srv.priority,
                weight: srv.weight,
                host: srv.target.to_ascii().trim_end_matches('.').to_owned(),
                port: srv.port,
            }),
            _ => None,
        });
        // A dot as the host says that there is no such service.
        let records = records.filter(|record| is_domain(&record.host) && record.port != 0);
        Ok(records.take(MOST_RECORDS).collect())
    }
}

/// Letters, digits and hyphens between dots, as host names have them.
fn is_domain(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(fits)
    };
    name.len() <= 240 && name.split('.').all(is_label)
}

/// The order in which the targets are asked: by priority, and among those of one priority by a draw
/// in which the weight counts. `random` gives each draw a number.
pub fn in_order(mut records: Vec<SrvTarget>, mut random: impl FnMut() -> u32) -> Vec<SrvTarget> {
    // Those without weight first: the draw gives them a small chance.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(priority) = records.first().map(|record| record.priority) {
        let same = records.iter().take_while(|record| record.priority == priority);
        let weights: Vec<u64> = same.map(|record| record.weight.into()).collect();
        let sum: u64 = weights.iter().sum();
        let drawn = (u64::from(random()) * (sum + 1)) >> 32;
        let mut passed = 0;
        let at = weights.iter().position(|weight| {
            passed += weight;
            passed >= drawn
        });
        ordered.push(records.remove(at.unwrap_or(0)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, host: &str) -> SrvTarget {
        SrvTarget { priority, weight, host: host.into(), port: 443 }
    }

    fn hosts(records: &[SrvTarget]) -> Vec<&str> {
        records.iter().map(|record| record.host.as_str()).collect()
    }

    #[test]
    fn sbp_l6_04_the_lowest_priority_is_asked_first_and_weights_are_chances() {
        let records =
            vec![record(20, 0, "d"), record(10, 300, "a"), record(10, 100, "b"), record(5, 0, "c")];
        let lowest = in_order(records.clone(), || 0);
        assert_eq!(hosts(&lowest), ["c", "b", "a", "d"]);
        let highest = in_order(records.clone(), || u32::MAX);
        assert_eq!(hosts(&highest), ["c", "a", "b", "d"]);
        let (mut n, mut first) = (0u32, 0);
        for _ in 0..1_000 {
            let ordered = in_order(records.clone(), || {
                n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                n
            });
            first += usize::from(ordered[1].host == "a");
        }
        assert!((650..850).contains(&first), "about three times as often: {first}");
        assert_eq!(in_order(Vec::new(), || 0), []);
    }

    #[test]
    fn sbp_l6_04_only_names_of_hosts_are_asked_for() {
        for good in ["example", "a.example.", "xn--bcher-kva.example", "_x.example"] {
            assert!(is_domain(good), "{good}");
        }
        for bad in ["", ".", "a..b", "a b", "a/b", "a:1", "bücher.example", &"a".repeat(64)] {
            assert!(!is_domain(bad), "{bad}");
        }
    }
}
