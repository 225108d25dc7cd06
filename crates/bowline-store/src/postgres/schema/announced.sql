-- Exports of which trackers are told.
ALTER TABLE exports ADD COLUMN announce boolean NOT NULL DEFAULT false;
CREATE INDEX exports_announced ON exports (expires_at) WHERE announce;
