//! The statements of [`super::batch`], each for any number of commits.
//!
//! `written_in = pg_current_xact_id()` names the sessions that this transaction was allowed to write.
//!
//! All statements of a transaction are sent at once. If its `BEGIN` failed, each would be a transaction of its own, so
//! the first ones write only where [`BEGIN`] has given the transaction its number.

pub(super) const BEGIN: &str = "BEGIN; SELECT pg_current_xact_id()";

/// Creates sessions, with their first heads. One that is there already is left alone.
pub(super) const MAKE: &str = "
    INSERT INTO sessions (id, commit_id, owner, fence, version, status, step_count, last_seq,
        delivered_seq, tether_last, cost_usd, spent_usd, prompt_tokens, completion_tokens,
        attach_epoch, turns_accepted, snapshot_id, snapshot_seq, snapshot_at, snapshot_kind,
        handed_to, updated_at, title, auto_title, stored_bytes, tether_done, token_hash,
        token_listed, agent_id, metadata, created_at, user_id, written_in)
    SELECT c.session, c.commit_id, c.owner, c.take::int, 1, c.status, c.step_count, c.last_seq,
        c.delivered_seq, c.tether_last, c.cost_usd, c.spent_usd, c.prompt, c.completion,
        c.attach_epoch, c.turns_accepted, c.snapshot_id, c.snapshot_seq, c.snapshot_at,
        c.snapshot_kind, c.handed_to, c.updated_at, c.title, c.auto_title, c.added, c.done,
        c.token_hash, c.listed, c.agent_id, c.metadata, c.created_at, c.user_id,
        pg_current_xact_id()
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bool[], $5::bigint[], $6::bigint[],
        $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::float8[],
        $13::float8[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::uuid[],
        $19::bigint[], $20::bigint[], $21::text[], $22::uuid[], $23::bigint[], $24::text[],
        $25::text[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bytea[], $30::bool[],
        $31::text[], $32::text[], $33::bigint[], $34::uuid[])
        AS c (session, commit_id, owner, take, fence, version, status, step_count, last_seq,
        delivered_seq, tether_last, cost_usd, spent_usd, prompt, completion, attach_epoch,
        turns_accepted, snapshot_id, snapshot_seq, snapshot_at, snapshot_kind, handed_to,
        updated_at, title, auto_title, added, confirmed, done, token_hash, listed, agent_id,
        metadata, created_at, user_id)
    WHERE pg_current_xact_id_if_assigned() IS NOT NULL
      AND EXISTS (SELECT 1 FROM replicas r WHERE r.id = c.owner AND NOT r.dead)
    ON CONFLICT (id) DO NOTHING";

/// Writes heads under the lease of their owner, who is alive, or takes the lease from nobody or a dead one.
pub(super) const HEAD: &str = "
    UPDATE sessions s SET commit_id = c.commit_id, owner = c.owner, fence = s.fence + c.take::int,
        version = s.version + 1, status = c.status, step_count = c.step_count,
        last_seq = c.last_seq, delivered_seq = c.delivered_seq, tether_last = c.tether_last,
        cost_usd = c.cost_usd, spent_usd = c.spent_usd, prompt_tokens = c.prompt,
        completion_tokens = c.completion, attach_epoch = c.attach_epoch,
        turns_accepted = c.turns_accepted, snapshot_id = c.snapshot_id,
        snapshot_seq = c.snapshot_seq, snapshot_at = c.snapshot_at,
        snapshot_kind = c.snapshot_kind, handed_to = c.handed_to, updated_at = c.updated_at,
        title = c.title, auto_title = c.auto_title,
        stored_bytes = least(s.stored_bytes + c.added, 1::bigint << 60),
        tether_done = CASE WHEN c.confirmed IS NULL THEN s.tether_done ELSE
            greatest(s.tether_done, c.done, (
                SELECT e.tether_no FROM entries e
                WHERE e.session = s.id AND e.seq <= c.confirmed AND e.tether_no IS NOT NULL
                ORDER BY e.seq DESC LIMIT 1)) END,
        written_in = pg_current_xact_id()
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bool[], $5::bigint[], $6::bigint[],
        $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::float8[],
        $13::float8[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::uuid[],
        $19::bigint[], $20::bigint[], $21::text[], $22::uuid[], $23::bigint[], $24::text[],
        $25::text[], $26::bigint[], $27::bigint[], $28::bigint[])
        AS c (session, commit_id, owner, take, fence, version, status, step_count, last_seq,
        delivered_seq, tether_last, cost_usd, spent_usd, prompt, completion, attach_epoch,
        turns_accepted, snapshot_id, snapshot_seq, snapshot_at, snapshot_kind, handed_to,
        updated_at, title, auto_title, added, confirmed, done)
    WHERE pg_current_xact_id_if_assigned() IS NOT NULL
      AND s.id = c.session AND s.fence = c.fence AND s.version = c.version
      AND EXISTS (SELECT 1 FROM replicas r WHERE r.id = c.owner AND NOT r.dead)
      AND (s.owner = c.owner OR (c.take AND NOT EXISTS
           (SELECT 1 FROM replicas r WHERE r.id = s.owner AND NOT r.dead)))";

pub(super) const DELETE_TURNS: &str = "
    DELETE FROM turns t USING unnest($1::uuid[], $2::uuid[]) AS c (session, turn), sessions s
    WHERE t.id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const DELETE_KEYS: &str = "
    DELETE FROM keys k USING unnest($1::uuid[], $2::uuid[]) AS c (session, turn), sessions s
    WHERE k.turn_id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const RESULTS: &str = "
    UPDATE keys k SET result = c.result
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS c (session, turn, result), sessions s
    WHERE k.turn_id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const START_TURNS: &str = "
    UPDATE turns t SET started = true, attempt = c.attempt
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS c (session, turn, attempt), sessions s
    WHERE t.id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const LEAVE_OPEN: &str = "
    UPDATE turns t SET open_calls = c.open
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS c (session, turn, open), sessions s
    WHERE t.id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const ADVANCE_TURNS: &str = "
    UPDATE turns t SET advanced = true
    FROM unnest($1::uuid[], $2::uuid[]) AS c (session, turn), sessions s
    WHERE t.id = c.turn AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const INSERT_TURNS: &str = "
    INSERT INTO turns (session, place, id, found, request, started, attempt, advanced, keyed,
                       created_at)
    SELECT c.* FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[], $5::text[],
        $6::bool[], $7::bigint[], $8::bool[], $9::bool[], $10::bigint[])
        AS c (session, place, id, found, request, started, attempt, advanced, keyed, created_at)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const INSERT_KEYS: &str = "
    INSERT INTO keys (session, turn_id, scope, key, body_hash, result, created_at)
    SELECT c.* FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[],
        $6::text[], $7::bigint[]) AS c (session, turn, scope, key, body_hash, result, created_at)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const INSERT_ENTRIES: &str = "
    INSERT INTO entries (session, seq, kind, turn_id, message, model, cost_usd, status, step,
        tether_no, created_at, agent_id, carried, caller, replaces, author)
    SELECT c.* FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::uuid[], $5::text[],
        $6::text[], $7::float8[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[],
        $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::text[])
        AS c (session, seq, kind, turn_id, message, model, cost_usd, status, step, tether_no,
        created_at, agent_id, carried, caller, replaces, author)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const INSTRUCT: &str = "
    INSERT INTO instructions (session, messages)
    SELECT c.* FROM unnest($1::uuid[], $2::text[]) AS c (session, messages)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()
    ON CONFLICT (session) DO UPDATE SET messages = excluded.messages";

pub(super) const ASK: &str = "
    INSERT INTO approvals (session, id, turn_id, seq, nth, tool, input, state, created_at,
        expires_at, about, definition, decision)
    SELECT c.session, c.id, c.turn_id, c.seq, c.nth, c.tool, c.input, c.state, c.created_at,
        c.expires_at, c.about, c.definition, c.decision
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::text[],
        $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[], $12::text[],
        $13::text[]) WITH ORDINALITY
        AS c (session, id, turn_id, seq, nth, tool, input, state, created_at, expires_at, about,
        definition, decision, place)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()
    ORDER BY c.place";

pub(super) const STEP_APPROVALS: &str = "
    UPDATE approvals a SET state = c.state, decision = coalesce(c.decision, a.decision)
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[])
        AS c (session, id, state, decision), sessions s
    WHERE a.id = c.id AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const GRANT: &str = "
    INSERT INTO grants (session, tool, device, definition, created_at)
    SELECT c.* FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[])
        AS c (session, tool, device, definition, created_at)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()
    ON CONFLICT (session, tool, device) DO UPDATE
    SET definition = excluded.definition, created_at = excluded.created_at";

pub(super) const DETACH: &str = "
    DELETE FROM attachments a USING unnest($1::uuid[], $2::bigint[]) AS c (session, epoch),
        sessions s
    WHERE a.session = c.session AND a.epoch = c.epoch
      AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const ATTACH: &str = "
    INSERT INTO attachments (session, epoch, edge, joined, context, guest)
    SELECT c.* FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bool[], $5::text[],
        $6::bool[]) AS c (session, epoch, edge, joined, context, guest)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const FORGET_DEVICES: &str = "
    DELETE FROM surfaces d USING unnest($1::uuid[], $2::text[]) AS c (session, surface_id),
        sessions s
    WHERE d.session = c.session AND d.surface_id = c.surface_id
      AND s.id = c.session AND s.written_in = pg_current_xact_id()";

pub(super) const DEVICES: &str = "
    INSERT INTO surfaces (session, surface_id, context, first_seen, last_seen, token_hash,
                          token_expires_at, delivered_seq)
    SELECT c.* FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
        $6::bytea[], $7::bigint[], $8::bigint[])
        AS c (session, surface_id, context, first_seen, last_seen, token_hash, token_expires_at,
        delivered_seq)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()
    ON CONFLICT (session, surface_id) DO UPDATE SET context = excluded.context,
        last_seen = excluded.last_seen, token_hash = excluded.token_hash,
        token_expires_at = excluded.token_expires_at, delivered_seq = excluded.delivered_seq";

/// Each process has rows of its own (`writer`, the last parameter), and their order is that of their key.
pub(super) const SPEND: &str = "
    INSERT INTO spending AS t (day, user_id, user_key, writer, turns, model_calls, prompt_tokens,
        completion_tokens, usd_micros, exports)
    SELECT c.day, c.user_id, c.user_key, ($11::uuid[])[1], sum(c.turns)::bigint,
        sum(c.model_calls)::bigint, sum(c.prompt)::bigint, sum(c.completion)::bigint,
        sum(c.usd)::bigint, sum(c.exports)::bigint
    FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
        AS c (session, day, user_id, user_key, turns, model_calls, prompt, completion, usd,
        exports)
    JOIN sessions s ON s.id = c.session AND s.written_in = pg_current_xact_id()
    GROUP BY c.day, c.user_id, c.user_key ORDER BY c.day, c.user_id, c.user_key
    ON CONFLICT (day, user_id, user_key, writer) DO UPDATE SET
        turns = least(t.turns + excluded.turns, 1::bigint << 60),
        model_calls = least(t.model_calls + excluded.model_calls, 1::bigint << 60),
        prompt_tokens = least(t.prompt_tokens + excluded.prompt_tokens, 1::bigint << 60),
        completion_tokens =
            least(t.completion_tokens + excluded.completion_tokens, 1::bigint << 60),
        usd_micros = least(t.usd_micros + excluded.usd_micros, 1::bigint << 60),
        exports = least(t.exports + excluded.exports, 1::bigint << 60)";

/// Which commits are the last ones of their sessions, and which of them this transaction wrote.
///
/// A transaction that writes nothing is not waited for, neither by the disk nor by a synchronous standby. One that
/// only finds what an earlier copy has written puts a message into the log instead, so that its own `COMMIT` is
/// answered when that copy is safe, too.
pub(super) const APPLIED: &str = "
    SELECT c.session, CASE
               WHEN s.commit_id IS DISTINCT FROM c.commit_id THEN false
               WHEN s.written_in = pg_current_xact_id() THEN true
               ELSE pg_logical_emit_message(true, 'bowline', ''::text) IS NOT NULL
           END AS applied,
           coalesce(s.written_in = pg_current_xact_id(), false) AS now
    FROM unnest($1::uuid[], $2::uuid[]) AS c (session, commit_id)
    LEFT JOIN sessions s ON s.id = c.session";
