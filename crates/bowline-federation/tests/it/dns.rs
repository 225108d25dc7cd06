//! SRV records, asked of a real DNS server on loopback.

use bowline_federation::{DnsSrv, SrvLookup as _, SrvTarget};
use tokio::net::UdpSocket;

use crate::name_server::NameServer;

#[tokio::test]
async fn sbp_l6_04_srv_records_are_asked_of_a_name_server() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = NameServer::on(
        socket,
        &[
            (10, 5, 443, "one.example.test"),
            (20, 0, 8443, "two.example.test."),
            (30, 0, 443, "."),
            (30, 0, 0, "three.example.test"),
        ],
    );
    let dns = DnsSrv::servers(&[server.address]).unwrap();
    let target = |priority, weight, port, host: &str| SrvTarget {
        priority,
        weight,
        port,
        host: host.into(),
    };
    let mut found = dns.records("example.test").await.unwrap();
    found.sort_by_key(|record| record.priority);
    assert_eq!(
        found,
        [target(10, 5, 443, "one.example.test"), target(20, 0, 8443, "two.example.test")]
    );
    assert_eq!(dns.records("nowhere.test").await, Ok(Vec::new()));
    let asked = server.asked.lock().unwrap().clone();
    assert_eq!(asked[0], "_sbp._tcp.example.test");
    assert!(dns.records("not a domain").await.is_err());
}

#[tokio::test]
async fn sbp_l6_04_a_name_server_that_is_silent_is_not_waited_for_long() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let dns = DnsSrv::servers(&[silent.local_addr().unwrap()]).unwrap();
    let began = std::time::Instant::now();
    assert!(dns.records("example.test").await.is_err());
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
