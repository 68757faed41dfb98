package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: comparing two revisions, in either direction, gives exactly the routes that only one of
// them has, or whose limit or authentication differs, with their identifiers; 0 is the state before
// the first; and a revision does not differ from itself.
func TestRevisionsAreCompared(t *testing.T) {
	p := newPushed(t, 7)
	for _, tc := range []struct {
		from, to int64
		want     string
	}{
		{0, 1, "0: +[GET /a,GET /b,GET /c] -[] ~[] =0"},
		{1, 2, "0: +[] -[] ~[] =3"},
		{3, 4, "0: +[GET+PUT /d] -[GET /b,GET /c] ~[GET /a] =0"},
		{4, 3, "0: +[GET /b,GET /c] -[GET+PUT /d] ~[GET /a] =0"},
		{4, 7, "0: +[] -[] ~[] =2"},
		{3, 3, "0: +[] -[] ~[] =3"},
	} {
		p.want(must[*control.PushResult](p.harness)(p.CompareRevisions(ctx(), p.caller, p.id, tc.from, tc.to)), tc.want)
	}
	got := must[*control.PushResult](p.harness)(p.CompareRevisions(ctx(), p.caller, p.id, 6, 7))
	if d := p.routes(p.caller, p.id)[1]; got.Added[0].RouteID != d.ID {
		t.Errorf("got the identifier %q of %s, want %s", got.Added[0].RouteID, got.Added[0].Path, d.ID)
	}
	for _, missing := range [][2]int64{{1, 8}, {9, 1}, {-1, 1}, {1, 0}} {
		_, err := p.CompareRevisions(ctx(), p.caller, p.id, missing[0], missing[1])
		p.wantCode(err, fault.NotFound, "")
	}
	_, err := p.CompareRevisions(ctx(), p.harness.caller("other", "admin"), p.id, 1, 2)
	p.wantCode(err, fault.NotFound, "")
}

// Guarantee: comparing two configuration files gives the settings that differ, with digests of
// certificates and without secrets. A setting that the first does not set is nil there, as is every
// setting if the first is a spec. A setting that the second does not set does not differ, because it
// stays as it is.
func TestSettingsOfRevisionsAreCompared(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	routes := "\nroutes: [{path: /a, methods: [GET]}]\n"
	h.configure(caller, g.ID, "gateway: {name: a, timeout: 30s, max_body_bytes: 1000, upstream_headers: {X-Token: hush}}"+routes)
	h.configure(caller, g.ID, "gateway: {name: b, timeout: 30s, key_headers: [X-API-Key], max_body_bytes: null, global_rate_limit: {sustained: 5/s}, upstream_headers: {X-Token: other}}"+routes)
	h.push(caller, g.ID, spec("/a"))
	for _, tc := range []struct {
		from, to int64
		want     string
	}{
		{1, 2, "[{name a b} {global_rate_limit <nil> map[sustained:5/s]} {max_body_bytes 1000 <nil>} {key_headers <nil> [X-API-Key]}]"},
		{2, 2, "[]"},
		{2, 1, "[{name b a} {max_body_bytes <nil> 1000}]"},
		{1, 3, "[]"},
		{3, 1, "[{name <nil> a} {timeout <nil> 30s} {upstream_headers <nil> map[X-Token:***]} {max_body_bytes <nil> 1000}]"},
	} {
		got := must[*control.PushResult](h)(h.CompareRevisions(ctx(), caller, g.ID, tc.from, tc.to))
		if fmt.Sprint(got.Settings) != tc.want || len(got.Changed)+len(got.Added) != 0 {
			t.Errorf("%d to %d: got %v\nwant %s", tc.from, tc.to, got.Settings, tc.want)
		}
	}
}

// Guarantee: the comparison of two revisions, a rollback from one to the other, and its dry run, which
// writes nothing, all give the same changes.
func TestComparisonIsWhatARollbackDoes(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		g := h.gateway(caller)
		for range rapid.IntRange(2, 4).Draw(rt, "revisions") {
			doc := ""
			for _, path := range []string{"/a", "/b", "/c"} {
				if limit := rapid.SampledFrom([]string{"", "1/s", "2/s"}).Draw(rt, path); limit != "" {
					cost := rapid.SampledFrom([]string{"null", "[{meter: a, from: {request: 1}}, {meter: b, from: {request: 1}}]", "[{meter: b, from: {request: 1}}, {meter: a, from: {request: 1}}]"}).Draw(rt, "cost")
					doc += fmt.Sprintf("  - {path: %s, methods: [GET], rate_limit: {sustained: %s}, cost: %s}\n", path, limit, cost)
				}
			}
			if doc == "" {
				doc = "  []\n"
			}
			h.configure(caller, g.ID, "routes:\n"+doc)
		}
		before := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID))
		last := before.Revision
		if last == 0 {
			return
		}
		to := int64(rapid.IntRange(1, int(last)).Draw(rt, "to"))
		compared := showSorted(must[*control.PushResult](h)(h.CompareRevisions(ctx(), caller, g.ID, last, to)))
		if dry := showSorted(must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, to, true, nil))); dry != compared {
			rt.Fatalf("a dry run of the rollback gives %s, comparing %s", dry, compared)
		}
		if now := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID)); now.Version != before.Version || now.Revision != last {
			rt.Fatalf("after a dry run the gateway is %+v, before it was %+v", now, before)
		}
		done := must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, to, false, nil))
		done.Revision = 0
		if got := showSorted(done); got != compared {
			rt.Fatalf("the rollback gives %s, comparing %s", got, compared)
		}
	})
}

// showSorted is show with each list in the order of the paths.
func showSorted(r *control.PushResult) string {
	for _, list := range [][]control.RouteChange{r.Added, r.Removed, r.Changed} {
		slices.SortFunc(list, func(a, b control.RouteChange) int { return strings.Compare(a.Path, b.Path) })
	}
	return show(r)
}

// Guarantee: the record of a revision is the same as in the list, and is not found if the revision is not.
func TestRevisionRecord(t *testing.T) {
	p := newPushed(t, 3)
	list := must[[]gateway.Revision](p.harness)(p.Revisions(ctx(), p.caller, p.id, 10, 0))
	for _, want := range list {
		got := must[*gateway.Revision](p.harness)(p.RevisionRecord(ctx(), p.caller, p.id, want.Number))
		if fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, number := range []int64{0, 4, 1<<63 - 1} {
		_, err := p.RevisionRecord(ctx(), p.caller, p.id, number)
		p.wantCode(err, fault.NotFound, "")
	}
	if !slices.IsSortedFunc(list, func(a, b gateway.Revision) int { return int(b.Number - a.Number) }) {
		t.Error("the list is not newest first")
	}
}

// Guarantee: the response to a push or rollback with an Idempotency-Key, which may be large, is encoded
// before the transaction, where no other change waits for it, and is stored with it.
func TestResponseIsEncodedOutsideOfTheTransaction(t *testing.T) {
	p := newPushed(t, 2)
	call := control.WithIdempotency(ctx(), &control.Idempotency{KeyID: p.caller.KeyID, Key: "once", Encode: func(any) (int, map[string]string, []byte, error) {
		within, cancel := context.WithTimeout(ctx(), 10*time.Second)
		defer cancel()
		err := p.db.Update(within, func(control.Tx) error { return nil })
		if err != nil {
			t.Errorf("another change could not be made while the response was encoded: %v", err)
		}
		return 200, nil, []byte("encoded"), err
	}})
	must[*control.PushResult](p.harness)(p.Rollback(call, p.caller, p.id, 1, false, nil))
	if a, err := p.storedResponse(p.caller.KeyID); err != nil || string(a.Body) != "encoded" {
		t.Errorf("got stored response %+v (%v)", a, err)
	}
}
