-- Tokens of sessions that can be replaced.

-- How often the token was replaced, and when it was made; null: with the session.
ALTER TABLE sessions ADD COLUMN token_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN token_at INTEGER;
