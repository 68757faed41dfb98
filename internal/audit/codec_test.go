package audit_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

func newCodec(t testing.TB) *audit.Codec {
	t.Helper()
	c, err := audit.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// records decodes all records of a block's content.
func records(t testing.TB, c *audit.Codec, content []byte) []audit.Record {
	t.Helper()
	v, err := c.Open(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.All(); err != nil {
		t.Fatal(err)
	}
	var out []audit.Record
	for i := range v.Len() {
		r, err := v.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// maybeID generates identifiers, "", and strings that are not identifiers.
func maybeID(k id.Kind) *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.Custom(func(t *rapid.T) string {
		return id.Format(k, id.NewFastAt(rapid.Int64Range(0, 1<<47).Draw(t, "ms")))
	}), rapid.String())
}

func anyRecord() *rapid.Generator[audit.Record] {
	return rapid.Custom(func(t *rapid.T) audit.Record {
		r := audit.Record{
			Time:      time.UnixMicro(rapid.Int64Range(-1e15, 253402300799999999).Draw(t, "time")).UTC(),
			Kind:      rapid.SampledFrom([]audit.Kind{audit.Authentication, audit.Management}).Draw(t, "kind"),
			Outcome:   rapid.SampledFrom([]audit.Outcome{audit.Success, audit.KeyInvalid, audit.KeyExpired, audit.ScopeInsufficient, audit.AddressNotAllowed}).Draw(t, "outcome"),
			KeyPrefix: rapid.StringMatching(`(kga?_[0-9A-Za-z]{6})?`).Draw(t, "prefix"), KeyID: maybeID(id.Key).Draw(t, "key"),
			GatewayID: maybeID(id.Gateway).Draw(t, "gateway"), Method: rapid.SampledFrom([]string{"GET", "POST", "PROPFIND", ""}).Draw(t, "method"),
			Path:      rapid.String().Draw(t, "path"),
			ClientIP:  rapid.SampledFrom([]string{"", "127.0.0.1", "2001:db8::7", "::ffff:1.2.3.4", "fe80::1%eth0", "unix"}).Draw(t, "ip"),
			RequestID: maybeID(id.Request).Draw(t, "request"),
		}
		if r.KeyID == "" && rapid.Bool().Draw(t, "has a token") {
			r.Token = true
			r.IssuerID, r.Subject = rapid.SampledFrom([]string{"", id.Format(id.Issuer, id.NewFastAt(1))}).Draw(t, "issuer"), rapid.String().Draw(t, "subject")
		}
		if r.Kind == audit.Authentication {
			r.Count = max(0, rapid.Int64().Draw(t, "count"))
		}
		if r.Kind == audit.Management {
			r.Outcome = audit.Success
			r.Seq = rapid.Int64().Draw(t, "seq")
			r.Action, r.Target, r.ActorKeyID = audit.Action(rapid.String().Draw(t, "action")), rapid.String().Draw(t, "target"), maybeID(id.Key).Draw(t, "actor")
			if rapid.Bool().Draw(t, "has a diff") {
				r.Diff = audit.Diff{rapid.StringMatching(`[a-z]+`).Draw(t, "field"): {nil, rapid.StringMatching(`[a-z ]*`).Draw(t, "value")}}
			}
		}
		return r
	})
}

// Guarantee: records are unchanged and in the order of time after they are encoded, with or
// without compression, decoded, and encoded again.
func TestContentKeepsRecords(t *testing.T) {
	c := newCodec(t)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(anyRecord(), 1, 60).Draw(t, "records")
		var table audit.Table
		for i := range want {
			if err := table.Add(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		table.Sort()
		plain, err := table.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Open(plain)
		if err != nil {
			t.Fatal(err)
		}
		var second audit.Table
		if err := second.AddView(v); err != nil {
			t.Fatal(err)
		}
		content, err := second.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		v, err = c.Open(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.All(); err != nil {
			t.Fatal(err)
		}
		var got []audit.Record
		for i := range v.Len() {
			r, err := v.Record(i)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 && r.Time.Before(got[i-1].Time) {
				t.Fatalf("record %d is of %s, want it not before the previous one of %s", i, r.Time, got[i-1].Time)
			}
			got = append(got, r)
		}
		// The order of records of the same time is not specified.
		less := func(a, b audit.Record) int { return strings.Compare(fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)) }
		slices.SortFunc(got, less)
		slices.SortFunc(want, less)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// Guarantee: an Event of the request path is decoded as the Record with the same values.
func TestEventIsARecord(t *testing.T) {
	now := time.Date(2027, 3, 1, 12, 0, 0, 123000, time.UTC)
	key, gateway, request := id.NewFastAt(1), id.NewFastAt(2), id.NewFastAt(now.UnixMilli())
	e := audit.Event{Time: now.UnixMicro(), Request: request, Gateway: gateway, Key: key, Outcome: audit.ScopeInsufficient, Method: "GET", Path: "/a"}
	copy(e.Prefix[:], "kg_AbCdEf")
	copy(e.Client[:], []byte{10: 0xff, 0xff, 10, 1, 2, 3})
	anonymous := audit.Event{Time: now.UnixMicro(), Outcome: audit.KeyInvalid, Method: "POST", Path: "/" + strings.Repeat("ü", audit.MaxPath), Request: id.NewFastAt(now.UnixMilli() + 1)}
	token := audit.Event{Time: now.UnixMicro(), Outcome: audit.Success, Method: "GET", Path: "/a", Request: id.NewFastAt(now.UnixMilli() + 2), Token: true,
		IssuerID: id.Format(id.Issuer, key), Subject: "ada of sales"}
	var table audit.Table
	table.AddEvent(&e)
	table.AddEvent(&anonymous)
	table.AddEvent(&token)
	table.Sort()
	c := newCodec(t)
	content, err := table.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	got := records(t, c, content)
	want := audit.Record{Time: now, Kind: audit.Authentication, Outcome: audit.ScopeInsufficient, KeyPrefix: "kg_AbCdEf",
		KeyID: id.Format(id.Key, key), GatewayID: id.Format(id.Gateway, gateway), Method: "GET", Path: "/a", ClientIP: "10.1.2.3",
		RequestID: id.Format(id.Request, request)}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("got %+v, want %+v", got[0], want)
	}
	if p := got[1].Path; len(p) > audit.MaxPath || !strings.HasSuffix(p, "ü…") {
		t.Errorf("got a path of %d bytes: %q, want at most %d with a whole last character and an ellipsis", len(p), p, audit.MaxPath)
	}
	if got[1].KeyID != "" || got[1].ClientIP != "" {
		t.Errorf("got the key %q and the address %q for an event without them, want none", got[1].KeyID, got[1].ClientIP)
	}
	if g := got[2]; g.Credential() != "token" || g.IssuerID != token.IssuerID || g.Subject != token.Subject || g.KeyID != "" {
		t.Errorf("got %+v for an event of a token, want its issuer and its subject", g)
	}
}

// Guarantee: the decoder does not panic or use much memory for any bytes, and decodes every
// record of content that it accepts.
func FuzzOpen(f *testing.F) {
	c := newCodec(f)
	for _, pack := range []*audit.Codec{nil, c} {
		var table audit.Table
		for i := range 100 {
			table.AddEvent(&audit.Event{Time: int64(i) * 1000, Request: id.NewFastAt(int64(i)), Method: "GET", Path: fmt.Sprintf("/orders/%d", i), Outcome: audit.Success})
		}
		if err := table.Add(&audit.Record{Kind: audit.Management, Outcome: audit.Success, Seq: 1, Time: time.UnixMicro(1), Action: audit.KeyCreate,
			Diff: audit.Diff{"name": {nil, "x"}}}); err != nil {
			f.Fatal(err)
		}
		table.Sort()
		content, err := table.Encode(pack)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{1}, 100))
	f.Fuzz(func(t *testing.T, content []byte) {
		v, err := c.Open(content)
		if err != nil || v.All() != nil {
			return
		}
		for i := range v.Len() {
			// A diff is only checked when its record is decoded, so an error is allowed.
			_, _ = v.Record(i)
		}
	})
}
