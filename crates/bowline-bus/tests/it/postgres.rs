//! What the bus does when its PostgreSQL fails.

use bowline_bus::{Bus as _, BusError, Lane, Postgres};
use bowline_servers::{Flush, Postgres as Server};

use crate::receiving::{
    becomes_degraded, becomes_good, receive, receive_until, replica, send_until_taken,
};
use crate::servers::config;

fn server() -> Server {
    let server = Server::start(Flush::Off).unwrap();
    server.make_database("bus").unwrap();
    server
}

#[tokio::test]
async fn a_killed_postgresql_is_waited_for() {
    let mut server = server();
    let here = Postgres::connect(&config(&server)).await.unwrap();
    let there = Postgres::connect(&config(&server)).await.unwrap();
    let me = replica();
    let mut inbox = here.open(me).await.unwrap();
    there.send(me, Lane::Control, vec!["before".into()]).await.unwrap();
    receive(&mut *inbox, 1).await;

    server.kill().unwrap();
    becomes_degraded(&here).await;
    becomes_degraded(&there).await;
    let refused = there.send(me, Lane::Control, vec!["lost".into()]).await;
    assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");

    server.restart().unwrap();
    send_until_taken(&there, me, Lane::Control, "after").await;
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Control, "after".into())]);
    becomes_good(&here).await;
    becomes_good(&there).await;
}

/// One lane is not answered in time, while the other one is: a database that hung for a moment.
#[tokio::test]
async fn a_lane_that_is_not_answered_in_time_is_read_again() {
    let server = server();
    let bus = Postgres::connect(&config(&server)).await.unwrap();
    let me = replica();
    let mut inbox = bus.open(me).await.unwrap();
    // A little longer than a reader waits.
    let slow = "
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_sleep(5.05);
            RETURN OLD;
        END $$;
        CREATE TRIGGER slow BEFORE DELETE ON bowline_bus FOR EACH ROW
            WHEN (OLD.body = 'slow') EXECUTE FUNCTION slow();";
    server.sql("bus", slow).unwrap();
    send_until_taken(&bus, me, Lane::Control, "slow").await;
    becomes_degraded(&bus).await;
    becomes_good(&bus).await;
    send_until_taken(&bus, me, Lane::Control, "after").await;
    receive_until(&mut *inbox, "after").await;
}

#[tokio::test]
async fn rows_without_a_notification_are_found_and_old_ones_are_deleted() {
    let server = server();
    let bus = Postgres::connect(&config(&server)).await.unwrap();
    let (me, other) = (replica(), replica());
    let row = |to: bowline_store::ReplicaId, at: &str| {
        let columns = "(replica, lane, sender, number, body, at)";
        let values = format!("'{}', 1, gen_random_uuid(), 1, 'quiet', {at}", to.0);
        server.sql("bus", &format!("INSERT INTO bowline_bus {columns} VALUES ({values})")).unwrap();
    };
    row(other, "now() - interval '2 minutes'");
    row(me, "now()");
    let mut inbox = bus.open(me).await.unwrap();
    row(me, "now()");
    assert_eq!(receive(&mut *inbox, 1).await, [(Lane::Text, "quiet".into())]);
    let left = "SELECT count(*) FROM bowline_bus";
    let deadline = tokio::time::Instant::now() + crate::receiving::DEADLINE;
    while server.sql("bus", left).unwrap() != "0" {
        assert!(tokio::time::Instant::now() < deadline, "old rows stay");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn many_processes_make_the_table_at_once() {
    let server = server();
    let config = config(&server);
    let made: Vec<_> = (0..8)
        .map(|_| {
            let config = config.clone();
            tokio::spawn(async move { Postgres::connect(&config).await.map(drop) })
        })
        .collect();
    for made in made {
        made.await.unwrap().unwrap();
    }
}
