//! PostgreSQL and Redis for tests and measurements: real servers on free ports of 127.0.0.1, with their data
//! in temporary folders, that can be paused, killed and started again.
//!
//! They end with the process that started them, however it ends: a shell beside each server waits for the
//! other end of a pipe to close.

mod port;
mod postgres;
mod redis;
mod server;

pub use port::{quiet_port, quiet_ports};
pub use postgres::{Flush, Postgres};
pub use redis::Redis;
pub use server::Certificate;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_keeps_what_was_committed_through_a_kill() {
        let mut server = Postgres::start(Flush::Off).unwrap();
        server.make_database("one").unwrap();
        server.sql("one", "CREATE TABLE t (x int); INSERT INTO t VALUES (7)").unwrap();
        server.kill().unwrap();
        assert!(server.sql("one", "SELECT 1").is_err());
        server.restart().unwrap();
        assert_eq!(server.sql("one", "SELECT x FROM t").unwrap(), "7");
    }

    #[test]
    fn a_standby_has_what_was_committed_and_takes_over_when_it_is_promoted() {
        let mut primary = Postgres::start(Flush::Off).unwrap();
        primary.make_database("one").unwrap();
        let standby = primary.standby("second").unwrap();
        primary.sql("one", "CREATE TABLE t (x int); INSERT INTO t VALUES (7)").unwrap();
        assert!(standby.sql("one", "CREATE TABLE u (x int)").is_err(), "it cannot be written");
        primary.kill().unwrap();
        standby.promote().unwrap();
        standby.sql("one", "INSERT INTO t VALUES (8)").unwrap();
        assert_eq!(standby.sql("one", "SELECT sum(x) FROM t").unwrap(), "15");
    }

    #[test]
    fn redis_is_empty_after_a_kill_and_answers() {
        use std::io::{Read as _, Write as _};
        let mut server = Redis::start().unwrap();
        let ask = |server: &Redis, command: &str| {
            let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
            socket.write_all(command.as_bytes()).unwrap();
            let mut answer = [0; 4];
            socket.read_exact(&mut answer).unwrap();
            String::from_utf8(answer.to_vec()).unwrap()
        };
        assert_eq!(ask(&server, "SET k v\r\n"), "+OK\r");
        assert_eq!(ask(&server, "EXISTS k\r\n"), ":1\r\n");
        server.kill().unwrap();
        server.restart().unwrap();
        assert_eq!(ask(&server, "EXISTS k\r\n"), ":0\r\n");
    }

    #[test]
    fn a_server_ends_with_whoever_started_it() {
        let server = Redis::start().unwrap();
        let address = server.address();
        drop(server);
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
