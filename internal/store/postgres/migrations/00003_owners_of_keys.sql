-- +goose NO TRANSACTION
-- +goose Up

-- Each owner that a key names is an owner since its first key. There may be a million keys, which nodes go on using: some
-- of them are written in each transaction, and no other change waits for more than one of these. If it is interrupted, it
-- goes on with the keys that are left.
-- +goose StatementBegin
DO $$
DECLARE
    done    bigint := -1;
    next    bigint;
BEGIN
    LOOP
        PERFORM number FROM change_head FOR NO KEY UPDATE;
        SELECT max(n) INTO next FROM (SELECT n FROM keys WHERE n > done ORDER BY n LIMIT 1000) AS page;
        EXIT WHEN next IS NULL;
        INSERT INTO owners (id, account_id, external_id, created_at)
        SELECT new_owner_id(at), account_id, owner, at
        FROM (SELECT account_id, owner, min(created_at) AS at FROM keys WHERE n > done AND n <= next AND owner IS NOT NULL AND owner_id IS NULL GROUP BY account_id, owner) AS named
        WHERE NOT EXISTS (SELECT FROM owners o WHERE o.account_id = named.account_id AND o.external_id = named.owner);
        UPDATE keys k SET owner_id = o.id FROM owners o
        WHERE k.n > done AND k.n <= next AND k.owner IS NOT NULL AND k.owner_id IS NULL AND o.account_id = k.account_id AND o.external_id = k.owner;
        COMMIT;
        done := next;
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE INDEX IF NOT EXISTS keys_plan ON keys (account_id, plan_id, phase, id) WHERE plan_id IS NOT NULL;
