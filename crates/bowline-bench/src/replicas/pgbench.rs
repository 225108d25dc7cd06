//! pgbench as the reference: it writes the rows of a turn in a new session, in one transaction, into tables
//! of the same form.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::pair::{DATABASE, Pair};

/// Clients at once.
const CLIENTS: &str = "32";

/// The same columns and indexes as the gateway's own tables.
const TABLES: &str = "
    DROP TABLE IF EXISTS bench_sessions, bench_entries;
    CREATE TABLE bench_sessions (LIKE sessions INCLUDING ALL);
    CREATE TABLE bench_entries (LIKE entries INCLUDING ALL);
";

/// The row of a session and the two entries of its turn, in one transaction. A gateway writes more: the turn is
/// on disk before the model is asked, and its row goes when it ends.
const TURN: &str = r#"
BEGIN;
INSERT INTO bench_sessions (id, token_hash, token_listed, user_id, agent_id, status, metadata,
    created_at, updated_at, step_count, last_seq, tether_last, cost_usd, spent_usd)
VALUES (gen_random_uuid(), '\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff', false,
    '00000000-0000-0000-0000-000000000000', 'default', 'running', '{}', 1, 1, 1, 2, 1, 0, 0);
INSERT INTO bench_entries (session, seq, kind, turn_id, message, model, cost_usd, status, step, tether_no,
    created_at)
VALUES (gen_random_uuid(), 1, 0, gen_random_uuid(),
    '{"role":"user","content":"Tell me about foxes."}', NULL, 0, 'complete', 0, NULL, 1),
    (gen_random_uuid(), 2, 1, gen_random_uuid(),
    '{"role":"assistant","content":"The quick brown fox jumps over the lazy dog, and then it takes a well-deserved rest."}',
    'bench', 0, 'complete', 1, 1, 1);
COMMIT;
"#;

/// Makes its tables, beside those that the gateways have made.
pub(super) fn prepare(pair: &Pair) -> Result<()> {
    pair.postgres.sql(DATABASE, TABLES)?;
    Ok(())
}

/// Transactions a second. Blocks.
pub(super) fn transactions(pair: &Pair, length: Duration) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("turn.sql");
    std::fs::write(&script, TURN)?;
    let seconds = length.as_secs().max(1).to_string();
    let said = Command::new(pair.postgres.program("pgbench"))
        .args(["--no-vacuum", "--client", CLIENTS, "--jobs", "2", "--protocol", "prepared"])
        .args(["--time", &seconds, "--file"])
        .arg(&script)
        .arg(pair.postgres.url(DATABASE))
        .output()
        .context("pgbench, of the package postgresql, is not there")?;
    ensure!(said.status.success(), "pgbench: {}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let figure = line.and_then(|line| line.split(' ').next()?.parse().ok());
    figure.with_context(|| format!("pgbench says no figure: {text}"))
}
