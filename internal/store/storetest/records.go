package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (h *harness) auditLog(accountID string) []audit.Record {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]audit.Record, error) {
		return tx.Audit(ctx, accountID, control.Page{Limit: 100})
	})
}

func (h *harness) events(accountID string) []event.Event {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]event.Event, error) {
		return tx.Events(ctx, accountID, control.EventFilter{}, control.Page{Limit: 100})
	})
}

// Guarantee: an audit record is stored with all fields. Each account's records are numbered from
// 1 without gaps, and numbers in a diff stay exact.
func testAudit(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	full := newAudit(a, "key_1")
	full.KeyPrefix, full.KeyID, full.GatewayID, full.ActorKeyID = "kga_AbCdEf", id.New(id.Key), id.New(id.Gateway), id.New(id.Key)
	full.Path, full.ClientIP = "/v1/käys/ü", "2001:db8::1"
	full.Diff = audit.Diff{"name": {nil, "Ü <b>"}, "rate_limit": {"1/s", nil}, "max_body_bytes": {json.Number("9007199254740993"), false},
		"metadata": {map[string]any{"a": "b"}, []any{"x"}}}
	plain := newAudit(a, "")
	for _, r := range []*audit.Record{full, newAudit(b, "key_2"), plain} {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendAudit(ctx, r) })
	}
	h.rejected(fault.Internal, func(ctx context.Context, tx control.Tx) error { // frees its number
		if err := tx.AppendAudit(ctx, newAudit(a, "rolled back")); err != nil {
			return err
		}
		return context.DeadlineExceeded
	})
	last := newAudit(a, "last")
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendAudit(ctx, last) })
	full.Seq, plain.Seq, last.Seq = 1, 2, 3
	same(h, "log", h.auditLog(a.ID), []audit.Record{*last, *plain, *full})
	same(h, "other log", h.auditLog(b.ID)[0].Seq, int64(1))
	stray := newAudit(a, "")
	stray.AccountID = id.New(id.Account)
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.AppendAudit(ctx, stray) })
}

// Guarantee: an event's payload is stored byte for byte, and an event can be inserted only once.
func testEvents(h *harness) {
	a := h.insertAccount("a")
	var want []event.Event
	rapid.Check(h, func(t *rapid.T) {
		e := newEvent(h, a)
		e.Type = rapid.SampledFrom([]event.Type{event.KeyCreated, event.KeyExpired, event.GatewaySpecPushed}).Draw(t, "type")
		e.CreatedAt = moment().Draw(t, "created_at")
		e.Payload = rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "payload")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendEvent(ctx, e) })
		same(t, "event", h.events(a.ID)[0], *e)
		want = append([]event.Event{*e}, want...)
	})
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error { return tx.AppendEvent(ctx, &want[0]) })
}

func (h *harness) storedResponse(keyID, key string) (*control.StoredResponse, error) {
	return try(h, func(ctx context.Context, tx control.ReadTx) (*control.StoredResponse, error) {
		return tx.StoredResponse(ctx, keyID, key)
	})
}

// Guarantee: a response may have any key and 128 KiB, and of large ones one transaction removes eight, so that it is short.
func testLargeResponses(h *harness) {
	put := func(key string, size int) {
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: "key", Key: key, Body: make([]byte, size), CreatedAt: epoch().Add(-time.Second)})
		})
	}
	for i := range 20 {
		put("\x01large "+string(rune('a'+i)), 128<<10)
		put("small "+string(rune('a'+i)), 100)
	}
	left := func() (large, small int) {
		for i := range 20 {
			if r, err := h.storedResponse("key", "\x01large "+string(rune('a'+i))); err == nil && len(r.Body) == 128<<10 {
				large++
			}
			if _, err := h.storedResponse("key", "small "+string(rune('a'+i))); err == nil {
				small++
			}
		}
		return large, small
	}
	for i, want := range []int{12, 4, 0, 0} {
		var more bool
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.Trim(ctx, epoch(), time.Unix(0, 0), time.Unix(0, 0), 0, 200)
			return err
		})
		large, small := left()
		same(h, "large ones left", large, want)
		same(h, "more", more, i < 3)
		same(h, "small ones left", small > 0, i < 2)
	}
}

// Guarantee: a response is stored completely for its caller and key, and a newer response replaces it.
func testStoredResponses(h *harness) {
	caller := id.New(id.Key)
	first := control.StoredResponse{KeyID: caller, Key: "printable ~ key", Fingerprint: [32]byte{1, 31: 255}, Status: 201,
		Header: map[string]string{"Location": "/v1/keys/x", "Etag": `"1"`}, Body: []byte("{\"ü\": \"\x00\xff\"}"), CreatedAt: epoch()}
	second := control.StoredResponse{KeyID: caller, Key: first.Key, Fingerprint: [32]byte{2}, Status: 200, CreatedAt: epoch().Add(25 * time.Hour)}
	other := control.StoredResponse{KeyID: id.New(id.Key), Key: first.Key, Fingerprint: [32]byte{3}, Status: 204, CreatedAt: epoch()}
	for _, a := range []control.StoredResponse{first, other} {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.PutStoredResponse(ctx, &a) })
		got, err := h.storedResponse(a.KeyID, a.Key)
		if err != nil {
			h.Fatal(err)
		}
		same(h, "stored response", got, &a)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.PutStoredResponse(ctx, &second) })
	got, err := h.storedResponse(caller, first.Key)
	if err != nil {
		h.Fatal(err)
	}
	same(h, "replaced", got, &second)
	if _, err := h.storedResponse(caller, "another"); fault.CodeOf(err) != fault.NotFound {
		h.Fatalf("reading with an unknown key returned %v, want not found", err)
	}
}

// Guarantee: nodes together reserve no more than a cap; a claim of a node replaces its earlier
// claim, so that a repetition changes nothing and giving back is exact; each day, limit and key is
// counted separately. Both interfaces agree.
func testDailyCounts(h *harness) {
	day := time.Now().Unix() / int64(24*time.Hour/time.Second)
	route := id.New(id.Route)
	key := id.New(id.Key)
	claim := func(node string, day int64, c ratelimit.DailyClaim) ratelimit.DailyClaim {
		h.Helper()
		claims := []ratelimit.DailyClaim{c}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.ReserveDaily(ctx, node, day, claims) })
		return claims[0]
	}
	counts := func(node string, day int64) map[ratelimit.DailyCount]bool {
		h.Helper()
		set := map[ratelimit.DailyCount]bool{}
		list, err := h.LoadDailyCounts(h.Context(), node, day)
		if err != nil {
			h.Fatal(err)
		}
		for _, c := range list {
			set[c] = true
		}
		same(h, "through a View", len(get(h, func(ctx context.Context, tx control.ReadTx) ([]ratelimit.DailyCount, error) {
			return tx.DailyCounts(ctx, node, day)
		})), len(list))
		return set
	}
	first := ratelimit.DailyClaim{LimitID: route, Cap: 10_000, Used: 10, Ahead: 50}
	same(h, "granted to the first node", claim("a", day, first).Granted, int64(50))
	second := ratelimit.DailyClaim{LimitID: route, Cap: 10_000, Ahead: 70}
	got := claim("b", day, second)
	same(h, "the answer to the second node", []int64{got.Granted, got.OthersUsed, got.OthersLost}, []int64{50, 60, 50}) // both together may lose a hundredth
	same(h, "the same again", claim("b", day, second), got)
	same(h, "the counts", counts("a", day), map[ratelimit.DailyCount]bool{{LimitID: route, Day: day, Used: 110, Lost: 100, Own: 60, OwnLost: 50}: true})

	first.Used, first.Ahead = 12, 0 // gives back what is left
	same(h, "granted for nothing", claim("a", day, first).Granted, int64(0))
	same(h, "the counts after that", counts("b", day), map[ratelimit.DailyCount]bool{{LimitID: route, Day: day, Used: 62, Lost: 50, Own: 50, OwnLost: 50}: true})
	second.Used, second.Ahead = 40, 60
	same(h, "granted to the second node", claim("b", day, second).Granted, int64(60))
	waits := ratelimit.DailyClaim{LimitID: route, Cap: 113, Ahead: 20, Needed: 1}
	same(h, "granted to a node on which a request waits", claim("c", day, waits).Granted, int64(1))
	same(h, "granted to a fourth node", claim("d", day, waits).Granted, int64(0))

	now, err := h.ReserveDaily(h.Context(), "a", day, []ratelimit.DailyClaim{{LimitID: route, KeyID: key, Cap: 5, Used: 3}})
	if err != nil {
		h.Fatal(err)
	}
	if !now.IsZero() && now.Unix()/int64(24*time.Hour/time.Second)-day > 1 {
		h.Errorf("the clock of the store says %v", now)
	}
	same(h, "of one key", counts("a", day)[ratelimit.DailyCount{LimitID: route, KeyID: key, Day: day, Used: 3, Own: 3}], true)
	same(h, "yesterday", len(counts("a", day-1)), 0)
	other := id.New(id.Route)
	claim("a", day, ratelimit.DailyClaim{LimitID: other, Cap: 5, Used: 2})
	for _, ids := range [][]string{{other}, {id.New(id.Route), route}, {route, other}, nil} {
		list, err := h.LoadDailyCounts(h.Context(), "a", day, ids...)
		if err != nil {
			h.Fatal(err)
		}
		n := 0
		for c := range counts("a", day) {
			if len(ids) == 0 || slices.Contains(ids, c.LimitID) {
				n++
			}
		}
		same(h, "counts of some limits", len(list), n)
	}
}

// Guarantee: claims of several nodes to the same caps at once never exceed a cap, and do not deadlock.
func testDailyClaimsAtOnce(h *harness) {
	const nodes, rounds, limit = 4, 15, 50
	day := time.Now().Unix() / int64(24*time.Hour/time.Second)
	caps := []string{id.New(id.Route), id.New(id.Route), id.New(id.Route)}
	var wg sync.WaitGroup
	for n := range nodes {
		wg.Go(func() {
			held := map[string]int64{}
			for i := range rounds {
				var claims []ratelimit.DailyClaim
				for j := range caps {
					one := caps[(j+n+i)%len(caps)] // each in another order
					claims = append(claims, ratelimit.DailyClaim{LimitID: one, Cap: limit, Used: held[one], Ahead: 2, Needed: 1})
				}
				if _, err := h.ReserveDaily(h.Context(), fmt.Sprint("node", n), day, claims); err != nil {
					h.Errorf("claim: %v", err)
					return
				}
				for _, c := range claims {
					held[c.LimitID] = c.Used + c.Granted
				}
			}
		})
	}
	wg.Wait()
	list, err := h.LoadDailyCounts(h.Context(), "node0", day)
	if err != nil {
		h.Fatal(err)
	}
	for _, c := range list {
		if c.Used > limit {
			h.Errorf("%d of a cap of %d are used", c.Used, limit)
		}
		same(h, "used in the end", c.Used, int64(limit))
	}
}

// Guarantee: Trim removes records older than each bound, a limited number in each call, and reports
// whether there may be more.
func testTrim(h *harness) {
	a := h.insertAccount("a")
	old, kept := epoch().Add(-time.Microsecond), epoch()
	h.update(func(ctx context.Context, tx control.Tx) error {
		for i := range 6 {
			at := old
			if i >= 4 {
				at = kept
			}
			e := newEvent(h, a)
			e.CreatedAt = at
			if err := tx.AppendEvent(ctx, e); err != nil {
				return err
			}
			if err := tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: "key", Key: string(rune('a' + i)), Status: 200, CreatedAt: at}); err != nil {
				return err
			}
			c := ratelimit.DailyClaim{LimitID: id.New(id.Route), Cap: 1, Used: 1}
			if err := tx.ReserveDaily(ctx, "node", 99+int64(i/4), []ratelimit.DailyClaim{c}); err != nil {
				return err
			}
		}
		return nil
	})
	trim := func(limit int) (more bool) {
		h.update(func(ctx context.Context, tx control.Tx) (err error) {
			more, err = tx.Trim(ctx, epoch(), time.Unix(0, 0), epoch(), 100, limit)
			return err
		})
		return more
	}
	left := func() (events, responses, counts int) {
		for i := range 6 {
			if _, err := h.storedResponse("key", string(rune('a'+i))); err == nil {
				responses++
			}
		}
		for _, day := range []int64{99, 100} {
			list, err := h.LoadDailyCounts(h.Context(), "node", day)
			if err != nil {
				h.Fatal(err)
			}
			counts += len(list)
		}
		return len(h.events(a.ID)), responses, counts
	}
	same(h, "more after the first batch", trim(3), true)
	e, n, c := left()
	same(h, "left after the first batch", []int{e, n, c}, []int{3, 3, 3})
	for trim(3) {
		continue
	}
	e, n, c = left()
	same(h, "left at the end", []int{e, n, c}, []int{2, 2, 2})
	if _, err := h.storedResponse("key", "e"); err != nil {
		h.Fatalf("a response exactly as old as the bound was removed: %v", err)
	}
}
