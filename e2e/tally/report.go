package tally

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/client"
)

// Groupings returns the groupings of a traffic report; "" is no grouping.
func Groupings() []string { return []string{"", "gateway", "route", "key", "status"} }

// Sums are the sums of a traffic report over its intervals, by group.
type Sums map[string]client.TrafficRow

// Expected returns the report that the server must give for a result.
func (r *Result) Expected(calls []Call, grouping string) Sums {
	sums := Sums{}
	for o, n := range r.Counts {
		c := &calls[o.Call]
		if c.Gateway == "" {
			continue
		}
		group := map[string]string{"": "", "gateway": c.Gateway, "route": c.Route, "key": c.KeyID, "status": strconv.Itoa(o.Status)}[grouping]
		row := client.TrafficRow{Requests: n.Requests, BytesIn: n.BytesIn, BytesOut: n.BytesOut}
		for _, class := range []struct {
			is bool
			to *int64
		}{
			{o.Status/100 == 2, &row.Status2Xx}, {o.Status/100 == 3, &row.Status3Xx},
			{o.Status/100 == 4, &row.Status4Xx}, {o.Status/100 == 5, &row.Status5Xx},
			{o.Status == http.StatusTooManyRequests, &row.Limited}, {o.Status == http.StatusUnauthorized, &row.Unauthorized},
			{o.Status == http.StatusForbidden, &row.Forbidden}, {o.Status/100 == 5 && c.Upstream, &row.UpstreamErrors},
		} {
			if class.is {
				*class.to = n.Requests
			}
		}
		sums.add(group, row, 1)
	}
	return sums
}

// Report returns the sums of the server's traffic report from since on.
func Report(ctx context.Context, api *client.Client, since time.Time, interval, grouping string) (Sums, error) {
	rows, err := api.Traffic(ctx, client.TrafficQuery{Since: since, Interval: interval, GroupBy: grouping})
	if err != nil {
		return nil, fmt.Errorf("report the traffic: %w", err)
	}
	sums := Sums{}
	for _, row := range rows {
		group := ""
		if row.Group != nil {
			group = *row.Group
		}
		if row.Requests > 0 || row.BytesIn > 0 || row.BytesOut > 0 {
			sums.add(group, row, 1)
		}
	}
	return sums, nil
}

// Less returns s minus before.
func (s Sums) Less(before Sums) Sums {
	out := Sums{}
	for group, row := range s {
		out.add(group, row, 1)
	}
	for group, row := range before {
		out.add(group, row, -1)
	}
	maps.DeleteFunc(out, func(_ string, row client.TrafficRow) bool {
		return !slices.ContainsFunc(figures(row), func(n int64) bool { return n != 0 })
	})
	return out
}

// Differences returns a line for each figure in which s differs from want.
func (s Sums) Differences(want Sums) []string {
	var lines []string
	groups := map[string]bool{}
	for _, sums := range []Sums{s, want} {
		for group := range sums {
			groups[group] = true
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		got, wanted := figures(s[group]), figures(want[group])
		for i, name := range figureNames() {
			if got[i] != wanted[i] {
				lines = append(lines, fmt.Sprintf("group %q: %s is %d, the clients received %d", group, name, got[i], wanted[i]))
			}
		}
	}
	return lines
}

func figureNames() []string {
	return []string{
		"requests", "status_2xx", "status_3xx", "status_4xx", "status_5xx", "limited", "unauthorized", "forbidden", "upstream_errors", "bytes_in", "bytes_out",
	}
}

func figures(r client.TrafficRow) []int64 {
	return []int64{
		r.Requests, r.Status2Xx, r.Status3Xx, r.Status4Xx, r.Status5Xx, r.Limited, r.Unauthorized, r.Forbidden, r.UpstreamErrors, r.BytesIn, r.BytesOut,
	}
}

// add adds the counts of a row, times sign, to the counts of its group.
func (s Sums) add(group string, r client.TrafficRow, sign int64) {
	sum := s[group]
	for _, f := range []struct {
		to *int64
		n  int64
	}{
		{&sum.Requests, r.Requests}, {&sum.Status2Xx, r.Status2Xx}, {&sum.Status3Xx, r.Status3Xx}, {&sum.Status4Xx, r.Status4Xx},
		{&sum.Status5Xx, r.Status5Xx}, {&sum.Limited, r.Limited}, {&sum.Unauthorized, r.Unauthorized}, {&sum.Forbidden, r.Forbidden},
		{&sum.UpstreamErrors, r.UpstreamErrors}, {&sum.BytesIn, r.BytesIn}, {&sum.BytesOut, r.BytesOut},
	} {
		*f.to += sign * f.n
	}
	s[group] = sum
}

// Lost returns the counters of lost records in what /metrics shows:
// keygate_…_lost_total.
func Lost(metrics []byte) map[string]float64 {
	lost := map[string]float64{}
	for line := range strings.Lines(string(metrics)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		name, value := line[:at], line[at+1:]
		bare, _, _ := strings.Cut(name, "{")
		if !strings.HasPrefix(bare, "keygate_") || !strings.HasSuffix(bare, "_lost_total") {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			lost[name] = n
		}
	}
	return lost
}
