package postgres

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/cabletest"
)

// Guarantee: after Cut no call uses the database, even if the server responds again: a call that was waiting for it
// fails, and so does every further call.
func TestCutEndsCalls(t *testing.T) {
	cable, url := cabletest.ForURL(t, migrated(t))
	db := openWith(t, Config{URL: url})
	begun, silent, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	call := func(before func()) error {
		return db.record(t.Context(), func(tx *tx) error {
			before()
			_, err := tx.Exec(t.Context(), "wait", `SELECT 1`)
			return err
		})
	}
	go func() {
		ended <- call(func() {
			close(begun)
			<-silent
		})
	}()
	<-begun
	cable.Sever()
	close(silent)
	db.Cut()
	cable.Mend()
	for which, err := range map[string]error{"a call that waits for the server": <-ended, "a later call": call(func() {})} {
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: got error %v, want %s", which, err, fault.Unavailable)
		}
	}
}

// Guarantee: after close, an attempt to find or to reach the server that had begun is given up, and none begins.
func TestCutEndsAttemptsToConnect(t *testing.T) {
	var ws wires
	begun := make(chan struct{})
	var c pgx.ConnConfig
	hang := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	c.LookupFunc = func(ctx context.Context, _ string) ([]string, error) { return nil, hang(ctx) }
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, hang(ctx) }
	ws.carry(&c)
	for _, attempt := range []func() error{
		func() error { _, err := c.LookupFunc(t.Context(), "db.example"); return err },
		func() error { _, err := c.DialFunc(t.Context(), "tcp", "127.0.0.1:5432"); return err },
	} {
		ws = wires{}
		ended := make(chan error, 1)
		go func() { ended <- attempt() }()
		<-begun
		ws.close()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("an attempt that had begun has succeeded")
			}
		case <-time.After(awaittest.Timeout):
			t.Fatal("an attempt that had begun does not end")
		}
		if err := attempt(); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a later attempt: got error %v, want %s", err, fault.Unavailable)
		}
	}
}
