-- Paired devices, as keys of users.

-- The public key of a device. A revoked row keeps it, so that a list still says what it was.
ALTER TABLE user_keys ADD COLUMN device BLOB;
CREATE UNIQUE INDEX user_keys_device ON user_keys (device)
    WHERE device IS NOT NULL AND revoked_at IS NULL;
