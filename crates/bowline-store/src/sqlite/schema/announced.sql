-- Exports of which trackers are told.

ALTER TABLE exports ADD COLUMN announce INTEGER NOT NULL DEFAULT 0;
CREATE INDEX exports_announced ON exports (expires_at) WHERE announce = 1;
