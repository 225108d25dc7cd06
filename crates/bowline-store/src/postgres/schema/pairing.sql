-- Codes that wait for a device. The code itself is derived from the id, and not stored.
CREATE TABLE pairing_codes (
    id                  uuid PRIMARY KEY,
    user_id             uuid NOT NULL,
    scopes              text NOT NULL,
    expires_at          bigint NOT NULL
);

-- Until when the tries that were made use up what may be tried.
CREATE TABLE pairing_tries (
    only_row            boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    used_until          bigint NOT NULL
);
INSERT INTO pairing_tries (used_until) VALUES (0);
