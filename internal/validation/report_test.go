package validation

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/validate"
)

// drawEntry draws a request of the hours before now.
func drawEntry(t *rapid.T, now time.Time) *Entry {
	e := &Entry{
		AccountID: "acct", GatewayID: "gw", Method: "POST", Path: "/a", Checked: true,
		At: now.Add(-time.Duration(rapid.IntRange(0, 30*3600).Draw(t, "seconds ago")) * time.Second),
	}
	if key := rapid.IntRange(0, 3).Draw(t, "key"); key > 0 {
		e.KeyID = fmt.Sprint("key_", key)
	}
	for range rapid.IntRange(0, 3).Draw(t, "problems") {
		e.Problems = append(e.Problems, validate.Problem{In: validate.InBody, Schema: fmt.Sprint("/", rapid.IntRange(0, 2).Draw(t, "schema")), Rule: "type", Message: "must be a string"})
	}
	return e
}

// Guarantee: edge.md, section 6. However requests are spread over nodes, and whenever these store what they have counted, the report of a
// gateway has each request of the last 24 hours once, and so has each of its rows; and it is read as it was stored.
func TestReportsOfNodesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0).UTC()
		nodes := []*Reports{{}, {}}
		stored := &Report{}
		var want HourCount
		rows := map[string]int64{}
		store := func(r *Reports) {
			for _, one := range r.Take() {
				stored.Merge(one)
			}
			again, err := Decode(stored.Encode())
			if err != nil {
				t.Fatal(err)
			}
			stored = again
		}
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			e := drawEntry(t, now)
			node := nodes[rapid.IntRange(0, 1).Draw(t, "node")]
			node.Add(e)
			if rapid.IntRange(0, 3).Draw(t, "store") == 0 {
				store(node)
			}
			if e.At.Unix()/3600 < now.Unix()/3600-Hours {
				continue
			}
			want.Requests++
			if len(e.Problems) > 0 {
				want.Refused++
			}
			var seen []string
			for _, p := range e.Problems {
				if !slices.Contains(seen, p.Schema) {
					seen = append(seen, p.Schema)
					rows[p.Schema]++
				}
			}
		}
		for _, node := range nodes {
			store(node)
		}
		stored.Trim(now)
		if got := stored.Totals.Sum(); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		got := map[string]int64{}
		for _, row := range stored.Rows {
			got[row.Schema] = row.Sum().Requests
			if !slices.IsSortedFunc(row.Last, func(a, b Last) int { return b.At.Compare(a.At) }) {
				t.Fatalf("got %v, want the newest first", row.Last)
			}
		}
		if !reflect.DeepEqual(got, rows) {
			t.Fatalf("got the rows %v, want %v", got, rows)
		}
	})
}

// Guarantee: a report is bounded, whatever requests do: it has at most MaxRows rows, each with MaxLast times and MaxKeys keys, and still counts
// every request.
func TestReportIsBounded(t *testing.T) {
	r := &Reports{}
	for i := range 3 * MaxRows {
		for range 2 {
			r.Add(&Entry{
				AccountID: "acct", GatewayID: "gw", KeyID: fmt.Sprint("key_", i), At: time.Unix(1_800_000_000, 0), Checked: true,
				Problems: []validate.Problem{{Schema: fmt.Sprint(i)}, {Schema: "all"}},
			})
		}
	}
	of := r.Take()["gw"]
	if got := of.Totals.Sum(); got.Requests != 6*MaxRows || got.Refused != 6*MaxRows {
		t.Errorf("got %+v, want %d requests", got, 6*MaxRows)
	}
	if len(of.Rows) != MaxRows || len(of.Totals.Keys) != MaxKeys {
		t.Errorf("got %d rows and %d keys, want %d and %d", len(of.Rows), len(of.Totals.Keys), MaxRows, MaxKeys)
	}
	for _, row := range of.Rows {
		if len(row.Last) > MaxLast || len(row.Keys) > MaxKeys {
			t.Errorf("got %d times and %d keys of %s", len(row.Last), len(row.Keys), row.Schema)
		}
	}
	if size := len(of.Encode()); size > 1<<20 {
		t.Errorf("got %d bytes, want at most 1 MiB", size)
	}
	for i := range maxPendingOfAccount + 500 { // over many gateways
		r.Add(&Entry{AccountID: "acct", GatewayID: fmt.Sprint("gw_", i), At: time.Unix(1_800_000_000, 0), Checked: true, Problems: []validate.Problem{{Schema: "a"}}})
	}
	rows := 0
	for _, of := range r.Take() {
		rows += len(of.Rows)
	}
	if rows != maxPendingOfAccount {
		t.Errorf("got %d rows of an account, want %d", rows, maxPendingOfAccount)
	}
}

// Guarantee: edge.md, section 6. The bodies that are held take at most MaxHeld bytes, and those of an account MaxHeldOfAccount; what is given
// back can be held again.
func TestHeldBodiesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := NewHolder()
		held := map[string][]*Held{}
		bytes := func(account string) (n int64) {
			for _, b := range held[account] {
				n += b.bytes
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				account := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "account"))
				b, size := &Held{}, int64(rapid.IntRange(1, validate.MaxBody).Draw(t, "size"))
				if b.Grow(h, account, size) != (b.bytes >= size) {
					t.Fatalf("got %d bytes for %d", b.bytes, size)
				}
				held[account] = append(held[account], b)
			},
			"release": func(t *rapid.T) {
				account := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "account"))
				if list := held[account]; len(list) > 0 {
					list[0].Release()
					held[account] = list[1:]
				}
			},
			"": func(t *rapid.T) {
				all := int64(0)
				for account := range held {
					if n := bytes(account); n > MaxHeldOfAccount {
						t.Fatalf("got %d bytes of an account", n)
					} else {
						all += n
					}
				}
				if all > MaxHeld || all != h.Bytes() {
					t.Fatalf("got %d bytes and %d in use", h.Bytes(), all)
				}
			},
		})
	})
}
