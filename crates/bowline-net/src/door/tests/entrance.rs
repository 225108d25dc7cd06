//! Connections of devices, which come from inside the process.

use tokio::io::DuplexStream;

use super::*;
use crate::peer::DeviceEntry;

fn device(id: &str) -> DeviceEntry {
    DeviceEntry { id: id.into(), programs: false }
}

/// The device's end of a stream, and the server's.
fn stream() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(4096)
}

impl Server {
    fn enter(&self, entry: DeviceEntry) -> Result<DuplexStream, EntryRefused> {
        let (near, far) = stream();
        self.entrance.enter(far, entry).map(|()| near)
    }

    /// Waits until the permits of a connection are released.
    async fn has_room_for(&self, id: &str) {
        let freed = async {
            while self.enter(device(id)).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, freed).await.expect("the permits are released");
    }

    async fn talk_as(&self, entry: DeviceEntry, text: &str) -> String {
        let mut stream = self.enter(entry).unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        rest(stream).await
    }
}

/// Reads until that came.
async fn until(stream: &mut DuplexStream, end: &str) -> String {
    let mut all = Vec::new();
    while !all.ends_with(end.as_bytes()) {
        let read = tokio::time::timeout(LONG, stream.read_buf(&mut all)).await;
        assert!(read.expect("it comes").unwrap() > 0, "{}", String::from_utf8_lossy(&all));
    }
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn a_device_is_answered_and_is_never_local_whatever_it_says() {
    let trusted = vec!["0.0.0.0/0".parse().unwrap()];
    let server = Server::start_with(None, trusted, |_| {}).await;
    let forwarded = "x-forwarded-for: 127.0.0.1\r\nforwarded: for=127.0.0.1\r\n";
    for programs in [false, true] {
        let entry = DeviceEntry { id: "d1".into(), programs };
        let expected = format!("device:d1 0.0.0.0 {:?} false false", Some(&entry));
        let answer = server.talk_as(entry, &get("/peer", forwarded)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&expected), "{answer}");
    }
    let answer = server.talk(&get("/peer", "")).await;
    assert!(answer.ends_with("127.0.0.1 127.0.0.1 None false true"), "{answer}");
}

#[tokio::test]
async fn a_device_needs_no_tls_where_the_listener_has_it() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let server = Server::start_with(Some(files(folder.path())), Vec::new(), |_| {}).await;
    assert!(server.talk_as(device("a"), &get("/", "")).await.ends_with("0.0.0.0"));
}

#[tokio::test]
async fn a_devices_connection_stays_open_between_requests() {
    let server = Server::start(|_| {}).await;
    let mut stream = server.enter(device("a")).unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        until(&mut stream, "\r\n\r\n0.0.0.0").await;
    }
}

#[tokio::test]
async fn a_devices_connection_is_upgraded_and_taken_over() {
    let server = Server::start(|limits| limits.connections_per_address = 1).await;
    let mut stream = server.enter(device("a")).unwrap();
    let head = "GET /upgrade HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: \
                echo\r\n\r\nearly";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "early").await.starts_with("HTTP/1.1 101"));
    stream.write_all(b"later").await.unwrap();
    until(&mut stream, "later").await;
    assert_eq!(server.enter(device("a")).unwrap_err(), EntryRefused::DeviceFull, "it is open");
    drop(stream);
    server.has_room_for("a").await;
}

#[tokio::test]
async fn g11_a_device_has_its_own_cap_and_all_share_one() {
    let server = Server::start(|limits| {
        (limits.connections, limits.connections_per_address) = (4, 2);
    })
    .await;
    let _first = server.enter(device("a")).unwrap();
    let second = server.enter(device("a")).unwrap();
    let programs = DeviceEntry { programs: true, ..device("a") };
    assert_eq!(server.enter(programs).unwrap_err(), EntryRefused::DeviceFull);
    let _other = server.enter(device("b")).unwrap();
    // The listener keeps the last one for itself.
    assert!(server.talk(&get("/", "")).await.ends_with("127.0.0.1"));
    let refused = server.enter(device("b")).err();
    assert_eq!(refused, Some(EntryRefused::Full));
    let (mut near, far) = stream();
    assert!(server.entrance.enter(far, device("c")).is_err());
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0, "what is refused is dropped");
    drop(second);
    server.has_room_for("a").await;
}

#[tokio::test]
async fn g11_a_devices_head_and_idle_time_have_deadlines() {
    let server = Server::start(|limits| {
        (limits.header_timeout, limits.keep_alive) = (SOON, SOON);
    })
    .await;
    for begun in ["", "GET / HTTP/1.1\r\nhost: "] {
        let answer = server.talk_as(device("a"), begun).await;
        assert!(!answer.contains("200"), "{answer}");
    }
    let answer = server.talk_as(device("a"), "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.ends_with("0.0.0.0"), "closed when it was idle: {answer}");
}

#[tokio::test]
async fn g12_a_device_that_does_not_read_loses_its_connection() {
    let server = Server::start(|limits| {
        (limits.connections_per_address, limits.write_timeout) = (1, SOON);
    })
    .await;
    let mut deaf = server.enter(device("a")).unwrap();
    deaf.write_all(get("/much", "").as_bytes()).await.unwrap();
    server.has_room_for("a").await;
    assert!(rest(deaf).await.len() < 16 << 20, "what was left is not sent");
}

#[tokio::test]
async fn g16_a_stop_lets_a_devices_answer_end_and_takes_no_more() {
    let server = Server::start(|_| {}).await;
    let idle = server.enter(device("a")).unwrap();
    let mut asking = server.enter(device("a")).unwrap();
    asking.write_all(get("/wait", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    server.stop.cancel();
    let connections = server.serving.await.unwrap();
    assert_eq!(server.entrance.enter(stream().1, device("a")).unwrap_err(), EntryRefused::Stopped);
    assert!(!connections.ended(SOON).await, "one is still answered");
    server.let_go.notify_one();
    assert!(rest(asking).await.ends_with("let go"));
    assert_eq!(rest(idle).await, "", "idle ones are closed");
    assert!(connections.ended(LONG).await);
}

#[tokio::test]
async fn what_enters_early_is_served_with_the_door_or_dropped_with_it() {
    let here = DoorConfig::plain("127.0.0.1:0".parse().unwrap());
    for is_served in [true, false] {
        let door = Door::open(here.clone(), limits()).await.unwrap();
        let (entrance, stop) = (door.entrance(), CancellationToken::new());
        let (mut near, far) = stream();
        entrance.enter(far, device("a")).unwrap();
        near.write_all(get("/", "").as_bytes()).await.unwrap();
        let service = tower::service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("served"))))
        });
        match is_served {
            true => drop(tokio::spawn(door.serve(service, stop.clone()))),
            false => drop(door),
        }
        assert_eq!(rest(near).await.ends_with("served"), is_served);
        let refused = entrance.enter(stream().1, device("a")).err();
        assert_eq!(refused, (!is_served).then_some(EntryRefused::Stopped));
        stop.cancel();
    }
}
