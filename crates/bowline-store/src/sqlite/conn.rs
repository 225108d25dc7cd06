//! A connection, with the statements that were prepared on it.
//!
//! An own cache, because rusqlite's finds a statement by its whole text: it hashes and compares it
//! several times for each use, which for a small statement is a fifth of what running it takes. The
//! texts here are literals, so the address is enough.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use rusqlite::{Connection, Statement};

/// A connection as one thread has it, for as long as the thread lives.
pub(super) struct Conn<'c> {
    conn: &'c Connection,
    prepared: RefCell<HashMap<Address, Slot<'c>, BuildHasherDefault<Spread>>>,
}

/// Where a literal stands. With its length: one literal may begin where another does.
type Address = (usize, usize);
/// Empty while the statement is in use.
type Slot<'c> = Rc<Cell<Option<Statement<'c>>>>;

/// Addresses are as good as random once they are spread: nobody outside chooses them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        // The odd number nearest to 2^64 over the golden ratio.
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<'c> Conn<'c> {
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, prepared: RefCell::default() }
    }

    /// A statement that is prepared when it is first used. Whoever asks for one that is in use gets
    /// another of the same text.
    pub(super) fn statement(&self, sql: &'static str) -> rusqlite::Result<Prepared<'c>> {
        let address = (sql.as_ptr() as usize, sql.len());
        let slot = Rc::clone(self.prepared.borrow_mut().entry(address).or_default());
        let statement = match slot.take() {
            Some(statement) => statement,
            None => self.conn.prepare(sql)?,
        };
        Ok(Prepared { statement: Some(statement), slot })
    }
}

/// What has no need for speed, or a text of its own each time.
impl Deref for Conn<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}

/// A statement that goes back to its place when it is dropped.
pub(super) struct Prepared<'c> {
    /// Some until then.
    statement: Option<Statement<'c>>,
    slot: Slot<'c>,
}

impl<'c> Deref for Prepared<'c> {
    type Target = Statement<'c>;

    fn deref(&self) -> &Statement<'c> {
        self.statement.as_ref().expect("it is there until it is dropped")
    }
}

impl<'c> DerefMut for Prepared<'c> {
    fn deref_mut(&mut self) -> &mut Statement<'c> {
        self.statement.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(mut statement) = self.statement.take() {
            // What was bound may be long, and somebody's words: it is not kept.
            statement.clear_bindings();
            self.slot.set(Some(statement));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_prepared_once_and_twice_if_it_is_used_within_itself() {
        let connection = Connection::open_in_memory().unwrap();
        let conn = Conn::new(&connection);
        let sql = "SELECT ?1";
        let one = |text: &str| -> String {
            conn.statement(sql).unwrap().query_row([text], |row| row.get(0)).unwrap()
        };
        assert_eq!((one("a"), one("b")), ("a".into(), "b".into()));
        assert_eq!(conn.prepared.borrow().len(), 1);
        let mut outer = conn.statement(sql).unwrap();
        let mut rows = outer.query(["outer"]).unwrap();
        assert_eq!(one("inner"), "inner");
        let row = rows.next().unwrap().unwrap();
        assert_eq!(row.get::<_, String>(0), Ok("outer".into()));
    }

    #[test]
    fn what_was_bound_is_forgotten() {
        let connection = Connection::open_in_memory().unwrap();
        let conn = Conn::new(&connection);
        let sql = "SELECT ?1 IS NULL";
        conn.statement(sql).unwrap().query_row(["secret"], |_| Ok(())).unwrap();
        let null = conn.statement(sql).unwrap().raw_query().next().unwrap().unwrap().get(0);
        assert_eq!(null, Ok(true));
    }
}
