-- Calls that a device had not answered when the owner of their turn stopped in good order: JSON.
ALTER TABLE turns ADD COLUMN open_calls text;
