package requestlog_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/requestlog"
)

// Guarantee: what is left of the records of all accounts takes at most as much as it may, and as much as that allows. An account
// that loses something keeps as much as any other has: one that has no more than its equal share loses nothing.
func TestExcessIsTakenFromThoseWhoHaveMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sizes []requestlog.AccountBytes
		var all int64
		for i := range rapid.IntRange(0, 12).Draw(t, "accounts") {
			bytes := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1<<40)).Draw(t, "bytes")
			sizes = append(sizes, requestlog.AccountBytes{AccountID: fmt.Sprint("acct_", i), Bytes: bytes})
			all += bytes
		}
		most := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 1<<41)).Draw(t, "most")
		left := map[string]int64{}
		for _, s := range sizes {
			left[s.AccountID] = s.Bytes
		}
		var sum, level int64
		cut := requestlog.Excess(sizes, most)
		for _, c := range cut {
			if c.Bytes >= left[c.AccountID] || c.Bytes != cut[0].Bytes {
				t.Fatalf("%v: %s is left %d of %d", cut, c.AccountID, c.Bytes, left[c.AccountID])
			}
			left[c.AccountID], level = c.Bytes, c.Bytes
		}
		for id, bytes := range left {
			if sum += bytes; len(cut) > 0 && bytes > level {
				t.Errorf("%s keeps %d, and others no more than %d", id, bytes, level)
			}
		}
		if want := min(all, most); sum > want || sum <= want-max(1, int64(len(cut))) && len(cut) > 0 || len(cut) == 0 && all > most {
			t.Errorf("%d bytes of %d are left, and %d are allowed", sum, all, most)
		}
	})
}
