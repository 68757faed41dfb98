package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
)

type traffic struct {
	*app
	query client.TrafficQuery
	span  spanFlags
}

func newTraffic(a *app) *cobra.Command {
	o := &traffic{app: a}
	c := &cobra.Command{
		Use:   "traffic",
		Short: "Report requests, statuses, bytes and latencies",
		Long: `Report requests, statuses, bytes and latencies, complete to the last second. Minutes
are kept for 48 hours, hours for 35 days, days for 400 days.

The default interval is a minute, or an hour with --group-by. The default of --since
is 60 minutes ago for minutes, 24 hours ago for hours and 30 days ago for days. A
table omits groups without requests and the empty intervals before the first request;
JSON and YAML have them all.`,
		Example: "  keygate traffic\n  keygate traffic --group-by route --since 1h\n  keygate traffic --key-id key_01j… --interval 1d",
		Args:    noArgs, RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.query.GatewayID, "gateway", "", "only requests of the gateway with this `id`")
	f.StringVar(&o.query.RouteID, "route-id", "", "only requests of the route with this `id`")
	f.StringVar(&o.query.KeyID, "key-id", "", "only requests with the key with this `id`")
	f.StringVar(&o.query.Interval, "interval", "", "`length` of the intervals: 1m, 1h or 1d")
	f.StringVar(&o.query.GroupBy, "group-by", "", "group by `field`: gateway, route, key or status")
	o.span.add(f, "requests")
	return c
}

func (o *traffic) run(c *cobra.Command, _ []string) (err error) {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if o.query.Since, o.query.Until, err = o.span.span(time.Now()); err != nil {
		return err
	}
	if o.query.Interval == "" {
		o.query.Interval = "1m"
		if o.query.GroupBy != "" {
			o.query.Interval = "1h"
		}
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	rows, err := api.Traffic(c.Context(), o.query)
	if err != nil {
		return err
	}
	if o.output != "table" {
		return o.printData(rows)
	}
	return o.print(rows, o.namesOf(c.Context(), api))
}

// print prints the rows, each with a bar that shows its share of the busiest row.
func (o *traffic) print(rows []client.TrafficRow, names *names) error {
	rows = o.worthShowing(rows)
	if len(rows) == 0 {
		fmt.Fprintln(o.Err, "There were no requests in that time.")
		return nil
	}
	most := slices.MaxFunc(rows, func(x, y client.TrafficRow) int { return cmp.Compare(x.Requests, y.Requests) }).Requests
	head := []string{"START", "REQUESTS", " ", "2XX", "3XX", "4XX", "5XX", "429", "401", "403", "UPSTREAM ERRORS", "IN", "OUT"}
	if o.query.GroupBy != "" {
		head = slices.Insert(head, 1, strings.ToUpper(o.query.GroupBy))
	}
	timed := o.query.GroupBy != "key"
	if timed {
		head = append(head, "P50", "P90", "P99", "UPSTREAM P50", "UPSTREAM P99")
	}
	t := o.newTable(head...)
	for i := range rows {
		r := &rows[i]
		cells := []string{moment(&r.Start)}
		if o.query.GroupBy != "" {
			cells = append(cells, o.group(r, names))
		}
		cells = append(cells, count(r.Requests), gauge(r.Requests, most, 16))
		for _, n := range []int64{r.Status2Xx, r.Status3Xx, r.Status4Xx, r.Status5Xx, r.Limited, r.Unauthorized, r.Forbidden, r.UpstreamErrors} {
			cells = append(cells, count(n))
		}
		cells = append(cells, size(r.BytesIn), size(r.BytesOut))
		if timed {
			l, u := latencies(r.LatencyMs), latencies(r.UpstreamLatencyMs)
			cells = append(cells, milliseconds(l.P50), milliseconds(l.P90), milliseconds(l.P99), milliseconds(u.P50), milliseconds(u.P99))
		}
		t.row(cells...)
	}
	return t.w.Flush()
}

func latencies(l *client.Latencies) client.Latencies {
	if l == nil {
		return client.Latencies{}
	}
	return *l
}

// worthShowing removes rows that would only fill the screen: groups without requests,
// or the empty intervals before the first request. Within an interval, the groups
// with the most requests come first.
func (o *traffic) worthShowing(rows []client.TrafficRow) []client.TrafficRow {
	if o.query.GroupBy == "" {
		first := slices.IndexFunc(rows, func(r client.TrafficRow) bool { return r.Requests > 0 })
		if first < 0 {
			return nil
		}
		return rows[first:]
	}
	rows = slices.DeleteFunc(rows, func(r client.TrafficRow) bool { return r.Requests == 0 })
	slices.SortStableFunc(rows, func(x, y client.TrafficRow) int {
		return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(y.Requests, x.Requests))
	})
	return rows
}

// group returns the group of a row, with its name if it has one.
func (o *traffic) group(r *client.TrafficRow, names *names) string {
	id := str(r.Group)
	switch o.query.GroupBy {
	case "gateway":
		return withID(names.gateway(id), id)
	case "route":
		return or(withID(names.route(o.query.GatewayID, id), id), "no route")
	case "key":
		return or(withID(names.key(id), id), "no key")
	default:
		return id
	}
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// gauge draws n out of most as a bar of up to width cells. Any n above zero is
// visible.
func gauge(n, most int64, width int) string {
	if n <= 0 || most <= 0 {
		return " " // an empty cell would be printed as a dash
	}
	eighths := max(1, int(float64(min(n, most))/float64(most)*float64(width*8)))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return bar
}

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return strconv.FormatInt(n, 10) + " B"
	}
}
