package sqlite_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// writeUntilKilled creates keys with their audit records, events and change log entries, and
// prints the last identifier of each transaction as soon as it is committed. Every tenth
// transaction creates 200 keys, so that some take long.
func writeUntilKilled(path string) int {
	ctx := context.Background()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return fail(err)
	}
	for n := 0; ; n++ {
		var acknowledged string
		err := db.Update(ctx, func(tx control.Tx) error {
			a, err := tx.AccountByName(ctx, "crash")
			if err != nil {
				return err
			}
			keys := 1
			if n%10 == 9 {
				keys = 200
			}
			for range keys {
				k := crashKey(a)
				if err := createKey(ctx, tx, &k); err != nil {
					return err
				}
				acknowledged = k.ID
			}
			return nil
		})
		if err != nil {
			return fail(err)
		}
		fmt.Println(acknowledged)
	}
}

func crashKey(a *account.Account) apikey.Key {
	keyID := id.New(id.Key)
	return apikey.Key{ID: keyID, AccountID: a.ID, Digest: sha256.Sum256([]byte(keyID)), Prefix: "kg_AbCdEf", Name: "crash", Level: apikey.GatewayLevel,
		Scope: apikey.Scopes{{Word: apikey.Read}}, BucketID: keyID, CreatedAt: time.Now().UTC().Truncate(time.Microsecond), Version: 1}
}

// Guarantee: a process that is killed at any moment loses no acknowledged change and leaves none
// incomplete: each key has its audit record, its event and its change log entry.
func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	a := account.Account{ID: id.New(id.Account), Name: "crash", Tier: account.Scale, CreatedAt: time.Now()}
	if err := db.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), &a) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("random seed: %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var acknowledged []string
	for range 8 {
		acknowledged = append(acknowledged, runAndKill(t, path, random)...)
		checkAfterCrash(t, path, a.ID, acknowledged)
	}
	t.Logf("%d acknowledged changes in 8 rounds", len(acknowledged))
}

// runAndKill starts a writer, kills it at a random moment after a random number of
// acknowledged transactions, and returns their last identifiers.
func runAndKill(t *testing.T, path string, random *rand.Rand) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), crashFile+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	lines := bufio.NewScanner(out)
	killAt := 1 + random.IntN(60)
	for lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == killAt {
			// The writer continues meanwhile, so the kill can hit any moment of a transaction.
			time.AfterFunc(time.Duration(random.Int64N(int64(3*time.Millisecond))), func() { _ = child.Process.Kill() })
		}
	}
	if err := child.Wait(); err == nil || child.ProcessState.Exited() {
		t.Fatalf("the writer ended before it was killed: %v", child.ProcessState)
	}
	return acknowledged
}

func checkAfterCrash(t *testing.T, path, accountID string, acknowledged []string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatalf("after the crash: %v", err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	keys := map[string]bool{}
	if err := db.EachKey(t.Context(), time.Now(), func(k *apikey.Key) error { keys[k.ID] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, keyID := range acknowledged {
		if !keys[keyID] {
			t.Errorf("the acknowledged key %s is lost", keyID)
		}
	}
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		page := control.Page{Limit: 1 << 20}
		log, err := tx.Audit(t.Context(), accountID, page)
		if err != nil {
			return err
		}
		events, err := tx.Events(t.Context(), accountID, control.EventFilter{}, page)
		if err != nil {
			return err
		}
		changes, complete, err := tx.Changes(t.Context(), 0, 1<<20)
		if err != nil {
			return err
		}
		if n := len(keys); len(log) != n || len(events) != n || len(changes) != n || !complete {
			t.Errorf("got %d keys, %d audit records, %d events and %d changes, want equal numbers", n, len(log), len(events), len(changes))
		}
		for _, c := range changes {
			if !keys[c.ID] {
				t.Errorf("the change log has the key %s, which does not exist", c.ID)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
