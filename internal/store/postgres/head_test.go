package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
	"github.com/keygate/keygate/internal/snapshot"
)

// rename sets the name of an account, and returns its new version.
func rename(ctx context.Context, tx control.Tx, accountID, name string) (int64, error) {
	a, err := tx.Account(ctx, accountID)
	if err != nil {
		return 0, err
	}
	a.Name, a.Version = name, a.Version+1
	return a.Version, tx.UpdateAccount(ctx, a)
}

// insertAccounts inserts active accounts and returns their identifiers.
func insertAccounts(t *testing.T, db *DB, names ...string) (ids []string) {
	t.Helper()
	for _, name := range names {
		a := &account.Account{ID: id.New(id.Account), Name: name, Tier: account.Scale}
		if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), a) }); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	return ids
}

// Guarantee: a mutation that has read and not committed yet holds up nobody: others commit meanwhile, of the same node
// and of another. So a node that is slow or cut off delays its own changes alone.
func TestMutationThatReadsHoldsUpNobody(t *testing.T) {
	for _, mode := range modes() {
		url := migrated(t) + "&default_query_exec_mode=" + mode
		slow, other := openWith(t, Config{URL: url}), openWith(t, Config{URL: url})
		ids := insertAccounts(t, other, "a")
		err := slow.Update(t.Context(), func(tx control.Tx) error {
			if _, err := rename(t.Context(), tx, ids[0], "b"); err != nil {
				return err
			}
			if _, err := tx.AppendChange(t.Context(), snapshot.AccountChange, ids[0]); err != nil {
				return err
			}
			return errors.Join(change(t, other), change(t, slow))
		})
		if seq, readErr := other.LastSeq(t.Context()); err != nil || seq != 3 || readErr != nil {
			t.Errorf("%s: got the errors %v and %v, and %d changes; want none and 3", mode, err, readErr, seq)
		}
	}
}

// Guarantee: if what a mutation has read is changed before it commits, it is made again, and nothing of the first
// attempt remains: its result, success or an error, is true in one state of the database.
func TestMutationIsMadeAgain(t *testing.T) {
	refused := errors.New("the versions differ")
	for _, tc := range []struct {
		name string
		f    attempt
		want error
	}{
		{"it writes", func(ctx context.Context, tx control.Tx, ids []string, between func() error) error {
			version, err := rename(ctx, tx, ids[0], "c")
			if err == nil && version == 3 {
				return nil
			}
			return errors.Join(err, between())
		}, nil},
		{"it writes nothing", func(ctx context.Context, tx control.Tx, ids []string, between func() error) error {
			_, err := tx.Account(ctx, ids[0])
			return errors.Join(err, between())
		}, nil},
		{"it reads after it has written", func(ctx context.Context, tx control.Tx, ids []string, between func() error) error {
			_, err := rename(ctx, tx, ids[0], "c")
			err = errors.Join(err, between())
			a, readErr := tx.Account(ctx, ids[0])
			if readErr == nil && a.Name != "c" {
				readErr = fmt.Errorf("it reads the name %q", a.Name)
			}
			return errors.Join(err, readErr)
		}, nil},
		{"it returns an error", func(ctx context.Context, tx control.Tx, ids []string, between func() error) error {
			first, err := tx.Account(ctx, ids[0])
			err = errors.Join(err, between())
			second, readErr := tx.Account(ctx, ids[1])
			if err == nil && readErr == nil && first.Version != second.Version {
				return refused
			}
			return errors.Join(err, readErr)
		}, refused},
		{"it returns an error that is true no more", func(ctx context.Context, tx control.Tx, ids []string, between func() error) error {
			before, err := tx.Account(ctx, ids[0])
			err = errors.Join(err, between())
			after, readErr := tx.Account(ctx, ids[0])
			if err == nil && readErr == nil && before.Version != after.Version {
				return refused // in no state of the database do they differ
			}
			return errors.Join(err, readErr)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range modes() {
				testMadeAgain(t, mode, tc.want, tc.f)
			}
		})
	}
}

// attempt is the function of a mutation. It calls between to have an account renamed by another mutation, which
// happens in the first attempt alone.
type attempt func(ctx context.Context, tx control.Tx, ids []string, between func() error) error

func testMadeAgain(t *testing.T, mode string, want error, f attempt) {
	t.Helper()
	url := migrated(t) + "&default_query_exec_mode=" + mode
	db, other := openWith(t, Config{URL: url}), openWith(t, Config{URL: url})
	ids := insertAccounts(t, db, "a", "b")
	calls := 0
	err := db.Update(t.Context(), func(tx control.Tx) error {
		calls++
		return f(t.Context(), tx, ids, func() error {
			if calls > 1 {
				return nil
			}
			return other.Update(t.Context(), func(tx control.Tx) error {
				_, err := rename(t.Context(), tx, ids[0], "between")
				return err
			})
		})
	})
	if !errors.Is(err, want) || calls != 2 {
		t.Errorf("%s: got %v after %d calls; want %v after 2", mode, err, calls, want)
	}
}

// Guarantee: mutations of several nodes are serial: no update is lost, and no two of them pass a check that only one
// may pass, also if they read one record and write another.
func TestMutationsAreSerial(t *testing.T) {
	const workers, rounds = 4, 12
	url := migrated(t)
	ids := insertAccounts(t, openWith(t, Config{URL: url}), "a", "b")
	var wg sync.WaitGroup
	for worker := range workers {
		db := openWith(t, Config{URL: url})
		wg.Go(func() {
			for round := range rounds {
				own, peer := ids[(worker+round)%2], ids[(worker+round+1)%2]
				err := db.Update(t.Context(), func(tx control.Tx) error {
					a, err := tx.Account(t.Context(), peer)
					if err != nil {
						return err
					}
					b, err := tx.Account(t.Context(), own)
					if err != nil {
						return err
					}
					b.Version = max(a.Version, b.Version) + 1 // so all versions that are ever written differ
					return tx.UpdateAccount(t.Context(), b)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	db := openWith(t, Config{URL: url})
	for _, accountID := range ids {
		if err := db.View(t.Context(), func(tx control.ReadTx) error {
			a, err := tx.Account(t.Context(), accountID)
			if err == nil && a.Version > 1+workers*rounds {
				t.Errorf("the version is %d", a.Version)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	newest := int64(0)
	err := db.View(t.Context(), func(tx control.ReadTx) error {
		for _, accountID := range ids {
			a, err := tx.Account(t.Context(), accountID)
			if err != nil {
				return err
			}
			newest = max(newest, a.Version)
		}
		return nil
	})
	if err != nil || newest != 1+workers*rounds {
		t.Errorf("the newest version is %d, error %v; want %d: one more for each mutation", newest, err, 1+workers*rounds)
	}
}

// Guarantee: a mutation that has to hold the head while it runs does so for a quarter of the lease at most, however
// short each of its statements is, and is then 503. Other mutations go on.
func TestHeadIsHeldBriefly(t *testing.T) {
	url := migrated(t)
	db, other := openWith(t, Config{URL: url, LeaseTTL: 2 * time.Second}), openWith(t, Config{URL: url})
	statements := 0
	err := db.mutate(t.Context(), func(tx *tx) error {
		for range 1000 {
			if _, err := tx.Exec(t.Context(), "sleep", `SELECT pg_sleep(0.02)`); err != nil {
				return err
			}
			statements++
		}
		return nil
	})
	if fault.CodeOf(err) != fault.Unavailable || statements == 0 {
		t.Errorf("got %v after %d statements, want 503", err, statements)
	}
	if err := change(t, other); err != nil {
		t.Error(err)
	}
}

// Guarantee: between two round trips of a mutation that holds the head, the server waits for the rest of the quarter of
// the lease, and not for the whole quarter after each.
func TestRestOfTheHeadTime(t *testing.T) {
	db := openWith(t, Config{URL: migrated(t), LeaseTTL: 40 * time.Second})
	err := db.mutate(t.Context(), func(tx *tx) error {
		if _, err := tx.Exec(t.Context(), "sleep", `SELECT pg_sleep(0.3)`); err != nil {
			return err
		}
		var rest int
		err := tx.c.QueryRow(t.Context(), `SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`).Scan(&rest)
		if err == nil && (rest <= 0 || rest > 9700) {
			t.Errorf("the server waits for %d ms, want at most 9700", rest)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Guarantee: the server itself finds out that a node that has sent a part of a round trip is cut off, which no timeout of
// statements covers: after 2 to 3 s, by the keepalives and the timeout of TCP that each mutation sets for its connection.
func TestServerNoticesACutOffNode(t *testing.T) {
	db := openWith(t, Config{URL: migrated(t)})
	err := db.mutate(t.Context(), func(tx *tx) error {
		if _, err := tx.Exec(t.Context(), "begin", `SELECT 1`); err != nil {
			return err
		}
		got := map[string]int{}
		rows, err := tx.c.Query(t.Context(), `SELECT name, setting::int FROM pg_settings WHERE name ~ '^tcp_'`)
		if err != nil {
			return err
		}
		var name string
		var value int
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
			got[name] = value
			return nil
		})
		want := map[string]int{"tcp_keepalives_idle": 1, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 2, "tcp_user_timeout": 2000}
		if !maps.Equal(got, want) {
			t.Errorf("a mutation's connection has %v at the server, want %v", got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Guarantee: a node that is cut off while it holds the head, because it needed the result of a statement, delays a
// change of another node so briefly that the change succeeds.
func TestCutOffWithTheHead(t *testing.T) {
	url := migrated(t)
	cable, far := cabletest.ForURL(t, url)
	db, other := openWith(t, Config{URL: far, LeaseTTL: 2 * time.Second}), openWith(t, Config{URL: url})
	err := db.mutate(t.Context(), func(tx *tx) error {
		if _, err := tx.Exec(t.Context(), "take the head", `SELECT 1`); err != nil {
			return err
		}
		cable.Sever()
		if err := change(t, other); err != nil {
			t.Errorf("the change of another node: %v", err)
		}
		return nil
	})
	if err == nil {
		t.Error("the node that was cut off has committed")
	}
	cable.Mend()
}

// Guarantee: a read is carried out ahead of statements that were queued before it only if these cannot change its
// result: triggered names what triggers change.
func TestTriggersAreKnown(t *testing.T) {
	c, err := pgx.Connect(t.Context(), migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows, err := c.Query(t.Context(), `SELECT c.relname, p.prosrc FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid JOIN pg_proc p ON p.oid = g.tgfoid WHERE NOT g.tgisinternal`)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	var table, body string
	target := regexp.MustCompile(`(?i)\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)`)
	_, err = pgx.ForEachRow(rows, []any{&table, &body}, func() error {
		for _, m := range target.FindAllStringSubmatch(body, -1) {
			if found++; m[1] != "SET" && !strings.Contains(" "+strings.Join(triggered(table), " ")+" ", " "+m[1]+" ") {
				t.Errorf("a trigger of %s changes %s, and triggered does not say so", table, m[1])
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("found %d changes, error %v", found, err)
	}
}

// Guarantee: a change that needs a table which somebody else has locked is 503 within seconds, and delays no change
// that does not need the table.
func TestForeignLock(t *testing.T) {
	url := migrated(t)
	db, other := openWith(t, Config{URL: url}), openWith(t, Config{URL: url})
	foreign, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close(context.Background())
	if _, err := foreign.PgConn().Exec(t.Context(), `BEGIN; LOCK TABLE keys`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- db.Update(t.Context(), func(tx control.Tx) error {
			_, err := tx.Key(t.Context(), "acc_1", "key_1")
			return err
		})
	}()
	for blocked := false; !blocked && t.Context().Err() == nil; {
		if err := foreign.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()), pg_stat_clear_snapshot()`).Scan(&blocked, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(t, other); err != nil {
		t.Errorf("another change: %v", err)
	}
	var public *fault.Error
	if err := <-result; !errors.As(err, &public) || public.Code != fault.Unavailable || public.Message != busyMessage {
		t.Errorf("the change that needs the table: got %v, want 503 and that the database is busy", err)
	}
}

// Guarantee: a mutation is not made again because a key that it has read was used meanwhile, as the calling key is.
func TestUseOfAKeyDisturbsNoMutation(t *testing.T) {
	url := migrated(t)
	db, other := openWith(t, Config{URL: url}), openWith(t, Config{URL: url})
	ids := insertAccounts(t, db, "a")
	k := &apikey.Key{ID: id.New(id.Key), AccountID: ids[0], Level: apikey.GatewayLevel, Version: 1, CreatedAt: time.UnixMicro(1)}
	if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertKey(t.Context(), k) }); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := db.Update(t.Context(), func(tx control.Tx) error {
		calls++
		_, err := tx.Key(t.Context(), ids[0], k.ID)
		return errors.Join(err, other.Update(t.Context(), func(tx control.Tx) error {
			return tx.TouchKeys(t.Context(), map[string]time.Time{k.ID: time.Now()})
		}))
	})
	if err != nil || calls != 1 {
		t.Errorf("got %v after %d calls, want 1", err, calls)
	}
}
