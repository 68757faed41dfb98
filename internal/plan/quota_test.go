package plan_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// drawLimit returns a limit as users write it: a rate, a number of requests in flight, or a quota whose defaults may be written.
func drawLimit(t *rapid.T) plan.LimitInput {
	in := plan.LimitInput{
		Name: rapid.StringMatching(`[a-z0-9_-]{1,32}`).Draw(t, "name"), Per: rapid.SampledFrom([]string{"", "key", "owner"}).Draw(t, "per"),
		Meter: rapid.SampledFrom([]string{"", ratelimit.Requests, ratelimit.BytesIn, ratelimit.BytesOut, "tokens", "1", "null", strings.Repeat("_", 32)}).Draw(t, "meter"),
	}
	if rapid.Bool().Draw(t, "is a rate") {
		in.Sustained = fmt.Sprintf("%d/s", rapid.IntRange(1, 1000).Draw(t, "rate"))
		in.Burst = rapid.SampledFrom([]string{"", "50/s"}).Draw(t, "burst")
		return in
	}
	if rapid.Bool().Draw(t, "is of requests in flight") {
		in.Concurrency = new(rapid.Int64Range(1, ratelimit.MaxConcurrency).Draw(t, "concurrency"))
		in.Meter = rapid.SampledFrom([]string{"", ratelimit.Requests}).Draw(t, "meter of requests")
		return in
	}
	unit := rapid.SampledFrom([]string{"day", "week", "month", "total"}).Draw(t, "window")
	in.Quota = fmt.Sprintf("%d/%s", rapid.Int64Range(1, ratelimit.MaxUnits).Draw(t, "count"), unit)
	in.Overage = rapid.SampledFrom([]string{"", "refuse", "allow"}).Draw(t, "overage")
	if rapid.Bool().Draw(t, "warns") {
		in.WarnAt = rapid.SliceOfNDistinct(rapid.IntRange(1, 200), 0, 5, rapid.ID).Draw(t, "percentages")
	}
	return in
}

// Guarantee: limits are read from the store and from files as they are written there, and what means the same is equal.
func TestLimitsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawLimit(t)
		limits, err := plan.ParseLimits([]plan.LimitInput{in})
		if err != nil {
			t.Fatalf("%+v: %v", in, err)
		}
		stored, err := json.Marshal(limits)
		if err != nil {
			t.Fatal(err)
		}
		var read []plan.Limit
		if err := json.Unmarshal(stored, &read); err != nil || !reflect.DeepEqual(read, limits) {
			t.Fatalf("got %+v and %v of %s, want %+v", read, err, stored, limits)
		}
		p := plan.Plan{Name: "a", Limits: limits, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
		file := &plan.File{Plans: []plan.FilePlan{{Plan: p, Gateways: []string{""}}}}
		again, err := plan.ParseFile(file.Encode())
		if err != nil || !reflect.DeepEqual(again.Plans[0].Plan, p) {
			t.Fatalf("got %+v and %v of\n%s\nwant %+v", again.Plans, err, file.Encode(), p)
		}
		other := in
		other.Meter, other.WarnAt = limits[0].MeterOrDefault(), slices.Clone(limits[0].Warnings())
		if other.Quota == "" {
			other.WarnAt = nil
		}
		slices.Reverse(other.WarnAt)
		same, err := plan.ParseLimits([]plan.LimitInput{other})
		if err != nil || !same[0].Equal(&limits[0]) {
			t.Fatalf("%+v is not equal to %+v (%v)", same, limits, err)
		}
	})
}

// Guarantee: what is wrong with a quota is said at its field, and nothing else is.
func TestMistakesInQuotas(t *testing.T) {
	const percentages = "limits[0].warn_at"
	for _, c := range []struct {
		in   plan.LimitInput
		want string
	}{
		{plan.LimitInput{}, "limits[0].sustained"},
		{plan.LimitInput{Concurrency: new(int64(0))}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(-1))}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(1_000_001))}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(1)), Sustained: "1/s"}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(0)), Sustained: "1/s", Burst: "1/s", Meter: "tokens"}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(1)), Quota: "1/day", Meter: "tokens", Overage: "allow", WarnAt: []int{80}}, "limits[0].concurrency"},
		{plan.LimitInput{Concurrency: new(int64(1)), Burst: "1/s"}, "limits[0].burst"},
		{plan.LimitInput{Concurrency: new(int64(1)), Meter: "tokens"}, "limits[0].meter"},
		{plan.LimitInput{Concurrency: new(int64(1)), Meter: "bytes_in"}, "limits[0].meter"},
		{plan.LimitInput{Concurrency: new(int64(1)), Overage: "allow"}, "limits[0].overage"},
		{plan.LimitInput{Concurrency: new(int64(1)), Overage: "refuse"}, "limits[0].overage"},
		{plan.LimitInput{Concurrency: new(int64(1)), WarnAt: []int{}}, percentages},
		{plan.LimitInput{Quota: "1/s"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "month"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "0/month"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "+1/month"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "007/month"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "9007199254740992/day"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "1/Month", Overage: "allow", WarnAt: []int{50}}, "limits[0].quota"},
		{plan.LimitInput{Quota: "1/month", Sustained: "1/s", Burst: "1/s"}, "limits[0].quota"},
		{plan.LimitInput{Quota: "1/month", Burst: "1/s"}, "limits[0].burst"},
		{plan.LimitInput{Quota: "1/month", Meter: "Bytes"}, "limits[0].meter"},
		{plan.LimitInput{Sustained: "1000000001/s"}, "limits[0].sustained"},
		{plan.LimitInput{Sustained: "1/s", Burst: "1000000001/s", Meter: "requests"}, "limits[0].burst"},
		{plan.LimitInput{Sustained: "9007199254740992/s", Meter: "bytes_in"}, "limits[0].sustained"},
		{plan.LimitInput{Sustained: "1/s", Meter: "to-kens"}, "limits[0].meter"},
		{plan.LimitInput{Sustained: "1/s", Meter: strings.Repeat("t", 33)}, "limits[0].meter"},
		{plan.LimitInput{Sustained: "1/s", Meter: "${env:METER}"}, "limits[0].meter"},
		{plan.LimitInput{Quota: "1/month", Overage: "deny"}, "limits[0].overage"},
		{plan.LimitInput{Sustained: "1/s", Overage: "allow"}, "limits[0].overage"},
		{plan.LimitInput{Sustained: "1/s", WarnAt: []int{}}, percentages},
		{plan.LimitInput{Quota: "1/month", WarnAt: []int{1, 2, 3, 4, 5, 6}}, percentages},
		{plan.LimitInput{Quota: "1/month", WarnAt: []int{0}}, percentages + "[0]"},
		{plan.LimitInput{Quota: "1/month", WarnAt: []int{200, 201}}, percentages + "[1]"},
		{plan.LimitInput{Quota: "1/month", WarnAt: []int{80, 50, 80}}, percentages + "[2]"},
	} {
		c.in.Name = "a"
		_, err := plan.ParseLimits([]plan.LimitInput{c.in})
		if problems := fault.ProblemsOf(err); len(problems) != 1 || problems[0].Field != c.want {
			t.Errorf("%+v: got %v, want one problem of %s", c.in, err, c.want)
		}
	}
}

// Guarantee: the calendar of an owner goes before that of its plan.
func TestCalendarOfAnOwner(t *testing.T) {
	p := plan.Plan{Name: "a", TimeZone: "Europe/Berlin", AnchorDay: 15}
	for _, c := range []struct {
		zone       string
		anchor     int
		start, end string
	}{
		{"", 0, "2026-02-14T23:00:00Z", "2026-03-14T23:00:00Z"},
		{"Asia/Tokyo", 3, "2026-03-02T15:00:00Z", "2026-04-02T15:00:00Z"},
	} {
		of, err := p.Calendar(calendar.Month, c.zone, c.anchor)
		if err != nil {
			t.Fatal(err)
		}
		start, end := of.Window(time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC))
		if start.Format(time.RFC3339) != c.start || end.Format(time.RFC3339) != c.end {
			t.Errorf("%q from %d: got the window %s to %s, want %s to %s", c.zone, c.anchor, start, end, c.start, c.end)
		}
	}
	if _, err := p.Calendar(calendar.Day, "Mars/Olympus", 0); err == nil {
		t.Error("a zone that does not exist has a calendar")
	}
}
