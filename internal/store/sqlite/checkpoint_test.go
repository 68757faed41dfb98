package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// Guarantee: what was committed is written back into the file while the server
// runs, by somebody other than the writer, and however little it is.
func TestCheckpointer(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for range 3 { // with a first estimate, and with later ones
		before := db.Stats().Database
		body := make([]byte, 200<<10) // pages: a tenth of backstopPages and less
		err := db.AppendTraffic(t.Context(), []traffic.Chunk{{AccountID: id.New(id.Account), Tier: traffic.Minutes, Start: 60, Body: body}})
		if err != nil {
			t.Fatal(err)
		}
		for db.Stats().Database < before+int64(len(body)) {
			select {
			case <-poll.C:
			case <-ctx.Done():
				t.Fatal("the file does not grow")
			}
		}
	}
}
