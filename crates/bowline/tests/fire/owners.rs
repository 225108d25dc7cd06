//! Who wrote to the sessions, as PostgreSQL itself saw it: triggers that write down every commit of an owner.

use bowline_checker::{OwnersWrite, Written};
use bowline_servers::Postgres;

use crate::installation::DATABASE;
use crate::record::Record;

/// A write counts for the owner that its session has at the end of the statement. Whoever only gives a session
/// away, or imports one that nobody owns yet, writes nothing as an owner.
const TRIGGERS: &str = "
    CREATE SCHEMA fire;
    CREATE TABLE fire.writes (
        id bigserial PRIMARY KEY, session uuid, owner uuid, fence bigint,
        what text, turn uuid, attempt bigint);
    CREATE FUNCTION fire.of_session() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO fire.writes (session, owner, fence, what)
        VALUES (NEW.id, NEW.owner, NEW.fence, 'session');
        RETURN NULL;
    END $$;
    CREATE FUNCTION fire.of_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO fire.writes (session, owner, fence, what, turn, attempt)
        SELECT s.id, s.owner, s.fence, 'started', NEW.id, NEW.attempt
        FROM sessions s WHERE s.id = NEW.session AND s.owner IS NOT NULL;
        RETURN NULL;
    END $$;
    CREATE FUNCTION fire.of_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO fire.writes (session, owner, fence, what, turn)
        SELECT s.id, s.owner, s.fence, 'answered', NEW.turn_id
        FROM sessions s WHERE s.id = NEW.session AND s.owner IS NOT NULL;
        RETURN NULL;
    END $$;
    CREATE TRIGGER made AFTER INSERT ON sessions FOR EACH ROW
        WHEN (NEW.owner IS NOT NULL) EXECUTE FUNCTION fire.of_session();
    CREATE TRIGGER written AFTER UPDATE ON sessions FOR EACH ROW
        WHEN (NEW.owner IS NOT NULL AND NEW.version <> OLD.version)
        EXECUTE FUNCTION fire.of_session();
    CREATE TRIGGER begun AFTER INSERT ON turns FOR EACH ROW
        WHEN (NEW.started) EXECUTE FUNCTION fire.of_turn();
    CREATE TRIGGER begun_again AFTER UPDATE ON turns FOR EACH ROW
        WHEN (NEW.started AND (NOT OLD.started OR NEW.attempt <> OLD.attempt))
        EXECUTE FUNCTION fire.of_turn();
    CREATE TRIGGER answered AFTER INSERT ON entries FOR EACH ROW
        WHEN (NEW.kind = 1) EXECUTE FUNCTION fire.of_entry();";

/// From now on every write is written down.
pub(crate) fn watch(postgres: &Postgres) {
    postgres.sql(DATABASE, TRIGGERS).unwrap();
}

/// How much that replica has written so far.
pub(crate) fn writes_of(postgres: &Postgres, replica: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM fire.writes WHERE owner = '{replica}'");
    postgres.sql(DATABASE, &sql).unwrap().parse().unwrap()
}

/// Puts all that was written down into the history.
pub(crate) fn tell(postgres: &Postgres, record: &Record) {
    let sql = "SELECT session, owner, fence, what, turn, attempt FROM fire.writes ORDER BY id";
    let rows = postgres.sql(DATABASE, sql).unwrap();
    for row in rows.lines() {
        let [session, owner, fence, what, turn_id, attempt] =
            <[&str; 6]>::try_from(row.split('|').collect::<Vec<_>>()).unwrap();
        let turn_id = turn_id.to_owned();
        let what = match what {
            "session" => Written::Session,
            "started" => Written::Started { turn_id, attempt: attempt.parse().unwrap() },
            "answered" => Written::Answered { turn_id },
            other => panic!("a write of kind {other}"),
        };
        let (session, owner) = (session.to_owned(), owner.to_owned());
        let write = OwnersWrite { session, owner, fence: fence.parse().unwrap(), what };
        record.with(|history| history.wrote(write));
    }
}
