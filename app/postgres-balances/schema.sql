CREATE TABLE balances (
    account TEXT PRIMARY KEY,
    position BIGINT NOT NULL, -- the number of the account's last event that the row contains
    balance BIGINT NOT NULL   -- in minor units
);
