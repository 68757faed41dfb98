package snapshot_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
)

// Guarantee: a node that loads the issuers of many accounts takes memory for each of them, and not for each of them as often as there are
// others; and what it has loaded is what the source has, also when it loads again.
func TestManyIssuersAreLoaded(t *testing.T) {
	h := newHarness(t)
	const many = 4_000
	ids := make([]string, many)
	for i := range ids {
		ids[i] = id.New(id.Issuer)
		h.source.PutIssuer(issuer.Issuer{ID: ids[i], AccountID: h.account.ID, Name: fmt.Sprintf("i%d", i), Settings: issuer.Settings{URL: "https://login.example.com"}})
	}
	f := newFollower(t, h)
	for round, want := range []int{many, many - 1} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f.Load(context.Background()); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > many*40<<10 {
			t.Errorf("round %d: loading %d issuers allocated %d KiB for each of them", round, many, took/many>>10)
		}
		have := 0
		for _, issuerID := range ids {
			if f.IssuerByID(issuerID) != nil {
				have++
			}
		}
		if have != want {
			t.Errorf("round %d: got %d issuers, want %d", round, have, want)
		}
		h.source.DeleteIssuer(ids[7])
	}
}
