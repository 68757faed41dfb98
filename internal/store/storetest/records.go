package storetest

import (
	"context"
	"encoding/json"
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

// Guarantee: a response is stored completely for its caller and key, and a newer one replaces it.
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

// Guarantee: daily counts are set, not added, for each day, limit and key, through both interfaces.
func testDailyCounts(h *harness) {
	const day = 20_500
	route := id.New(id.Route)
	shared := ratelimit.DailyCount{LimitID: route, Day: day, Used: 10, Lost: 4}
	mine := ratelimit.DailyCount{LimitID: route, KeyID: id.New(id.Key), Day: day, Used: 3}
	tomorrow := ratelimit.DailyCount{LimitID: route, Day: day + 1, Used: 1}
	if err := h.SaveDailyCounts(h.Context(), []ratelimit.DailyCount{shared, mine, tomorrow}); err != nil {
		h.Fatal(err)
	}
	counts := func(day int64) map[ratelimit.DailyCount]bool {
		h.Helper()
		set := map[ratelimit.DailyCount]bool{}
		list, err := h.LoadDailyCounts(h.Context(), day)
		if err != nil {
			h.Fatal(err)
		}
		for _, c := range list {
			set[c] = true
		}
		same(h, "through a View", len(get(h, func(ctx context.Context, tx control.ReadTx) ([]ratelimit.DailyCount, error) {
			return tx.DailyCounts(ctx, day)
		})), len(list))
		return set
	}
	same(h, "today", counts(day), map[ratelimit.DailyCount]bool{shared: true, mine: true})
	shared.Used, shared.Lost, mine.Used, mine.Lost = 7, 2, 1<<40, 5
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.PutDailyCounts(ctx, []ratelimit.DailyCount{shared, mine})
	})
	same(h, "set again", counts(day), map[ratelimit.DailyCount]bool{shared: true, mine: true})
	same(h, "tomorrow", counts(day+1), map[ratelimit.DailyCount]bool{tomorrow: true})
	same(h, "yesterday", len(counts(day-1)), 0)
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
			c := ratelimit.DailyCount{LimitID: id.New(id.Route), Day: 99 + int64(i/4), Used: 1}
			if err := tx.PutDailyCounts(ctx, []ratelimit.DailyCount{c}); err != nil {
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
			list, err := h.LoadDailyCounts(h.Context(), day)
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
