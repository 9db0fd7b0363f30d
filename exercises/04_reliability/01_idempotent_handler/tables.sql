-- What the database holds when a run begins. `payments` is the effect that is counted.
CREATE TABLE payments (payment_id TEXT NOT NULL, customer TEXT NOT NULL, amount BIGINT NOT NULL);

-- Yours: the ids of messages that are done, and what came with them.
CREATE TABLE processed (message_id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL);
