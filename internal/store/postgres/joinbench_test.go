package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// BenchmarkJoin measures how the number of keys affects the start of a node, and each change of a key, from its
// transaction to the moment at which another node has it in force. The server syncs to the disk. A million keys
// take a minute to make:
//
//	go test ./internal/store/postgres -run '^$' -bench Join -benchtime 200x
func BenchmarkJoin(b *testing.B) {
	for _, keys := range []int{10, 1_000_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) { benchJoin(b, keys) })
	}
}

func benchJoin(b *testing.B, keys int) {
	server := postgrestest.Start(b, postgrestest.Config{Durable: true})
	db := openWith(b, Config{URL: server.Database(b, "")})
	for _, statement := range []string{
		`INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_1', 'a', 'scale', 0)`,
		fmt.Sprintf(`INSERT INTO keys (id, account_id, digest, prefix, level, phase, word, owner, rate_limit, created_at, version, name)
			SELECT 'key_' || lpad(to_hex(i), 26, '0'), 'acct_1', sha256(i::text::bytea), 'kg_' || substr(md5(i::text), 1, 6), 1, 0, 1,
				'owner' || i %% 5000, CASE WHEN i %% 2 = 0 THEN '100/s' END, 0, 1, 'name ' || i FROM generate_series(1, %d) AS i`, keys),
		`VACUUM ANALYZE keys`,
	} {
		if _, err := db.writer.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	if err := server.Admin(b.Context(), `CHECKPOINT`); err != nil { // otherwise the changes wait for the rows that were just inserted
		b.Fatal(err)
	}
	f := newFollower(b, db)
	began := time.Now()
	if err := f.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	joined := time.Since(began)
	k, err := db.KeyByID(b.Context(), fmt.Sprintf("key_%026d", 1))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		k.Name = fmt.Sprint("name ", i)
		err := db.Update(b.Context(), func(tx control.Tx) error {
			if err := tx.UpdateKey(b.Context(), k); err != nil {
				return err
			}
			_, err := tx.AppendChange(b.Context(), snapshot.KeyChange, k.ID)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := f.CatchUp(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(joined.Seconds(), "s/join")
}

// newFollower returns the Follower of one of several nodes.
func newFollower(b *testing.B, db *DB) *snapshot.Follower {
	clock := ratelimit.NewClock()
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	f, err := snapshot.New(snapshot.Config{
		Log: slog.New(slog.NewTextHandler(b.Output(), nil)), Source: db, Reserver: reserver, Now: clock.Now,
		Shared: &snapshot.Shared{
			Log: db, Hint: make(chan struct{}), Applied: func() {}, Restarted: func() {}, Unreadable: func(error) {},
			Joined: func(context.Context) error { return nil },
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return f
}
