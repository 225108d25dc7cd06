-- Which exports have memory in them. Of older ones it is not known: those that can still be imported are
-- treated as if they had.

ALTER TABLE exports ADD COLUMN with_memory INTEGER NOT NULL DEFAULT 0;
UPDATE exports SET with_memory = 1 WHERE number IN (SELECT export FROM bundles);
