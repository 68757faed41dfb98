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
	top   int
	order string
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
JSON and YAML have them all.

With --top 10, the report has the ten routes, keys or gateways with the most requests of
the whole time, or with the most of what --order says.`,
		Example: "  keygate traffic\n  keygate traffic --group-by route --since 1h\n  keygate traffic --top 10 --group-by key --order refused\n  keygate traffic --key-id key_01j… --interval 1d",
		Args:    noArgs, RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.query.GatewayID, "gateway", "", "only requests of the gateway with this `id`, name or hostname")
	f.StringVar(&o.query.RouteID, "route-id", "", "only requests of the route with this `id` or path")
	f.StringVar(&o.query.KeyID, "key-id", "", "only requests with the key with this `id`, name or prefix")
	f.StringVar(&o.query.Interval, "interval", "", "`length` of the intervals: 1m, 1h or 1d")
	f.StringVar(&o.query.GroupBy, "group-by", "", "group by `field`: gateway, route, key or status")
	f.IntVar(&o.top, "top", 0, "only this `number` of groups, up to 100, with their sums over the whole time")
	f.StringVar(&o.order, "order", "", "order of --top: requests (default), errors, refused or bytes_out, by `field`")
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
	ranked := c.Flags().Changed("top")
	if o.order != "" && !ranked {
		return usagef("--order is the order of --top: add --top 10, or leave --order out")
	}
	if ranked && o.query.GroupBy == "" {
		o.query.GroupBy = "route"
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
	if err := o.identify(api, records{gateway: &o.query.GatewayID, route: &o.query.RouteID, key: &o.query.KeyID}); err != nil {
		return err
	}
	if ranked {
		return o.printTop(c, api)
	}
	rows, err := api.Traffic(c.Context(), o.query)
	if err != nil {
		return err
	}
	if !o.forPeople() {
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
	timed := o.query.GroupBy != "key"
	t := o.newTable(o.columns(timed)...)
	for i := range rows {
		r := &rows[i]
		cells := []string{o.start(r.Start)}
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
	return t.flush()
}

// printTop prints the groups with the greatest numbers.
func (o *traffic) printTop(c *cobra.Command, api *client.Client) error {
	if o.top < 1 || o.top > 100 {
		return usagef("--top must be between 1 and 100")
	}
	rows, err := api.Top(c.Context(), o.query, o.order, o.top)
	if err != nil {
		return err
	}
	if !o.forPeople() {
		return o.printData(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(o.Err, "There was nothing to list in that time.")
		return nil
	}
	names := o.namesOf(c.Context(), api)
	t := o.newTable(column{name: strings.ToUpper(o.query.GroupBy), flex: true}, column{name: "REQUESTS"}, column{name: "2XX", rank: 2}, column{name: "3XX", rank: 4},
		column{name: "4XX"}, column{name: "5XX"}, column{name: "429"}, column{name: "401", rank: 1}, column{name: "403", rank: 1}, column{name: "IN", rank: 3}, column{name: "OUT", rank: 3})
	for i := range rows {
		r := &rows[i]
		t.row(o.group(&client.TrafficRow{Group: r.Group}, names), count(r.Requests), count(r.Status2Xx), count(r.Status3Xx), count(r.Status4Xx), count(r.Status5Xx),
			count(r.Limited), count(r.Unauthorized), count(r.Forbidden), size(r.BytesIn), size(r.BytesOut))
	}
	return t.flush()
}

// columns returns the columns of the report; timed adds latencies.
func (o *traffic) columns(timed bool) []column {
	columns := []column{{name: "START"}}
	if o.query.GroupBy != "" {
		columns = append(columns, column{name: strings.ToUpper(o.query.GroupBy), flex: true})
	}
	columns = append(columns,
		column{name: "REQUESTS"}, column{name: " ", rank: 3}, column{name: "2XX"}, column{name: "3XX", rank: 6}, column{name: "4XX"}, column{name: "5XX"},
		column{name: "429", rank: 2}, column{name: "401", rank: 5}, column{name: "403", rank: 5}, column{name: "UPSTREAM ERRORS", rank: 8},
		column{name: "IN", rank: 7}, column{name: "OUT", rank: 7})
	if timed {
		columns = append(columns, column{name: "P50", rank: 4}, column{name: "P90", rank: 9}, column{name: "P99", rank: 1},
			column{name: "UPSTREAM P50", rank: 11}, column{name: "UPSTREAM P99", rank: 10})
	}
	return columns
}

// start formats the start of an interval.
func (o *traffic) start(t time.Time) string {
	if !o.fitted() {
		return moment(&t)
	}
	if o.query.Interval == "1d" {
		return t.UTC().Format(time.DateOnly)
	}
	return t.UTC().Format("2006-01-02 15:04")
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

// group returns the group of a row, with its name if it has one. A table that fits a
// terminal has the name alone.
func (o *traffic) group(r *client.TrafficRow, names *names) string {
	id, label := str(r.Group), withID
	if o.fitted() {
		label = func(name, id string) string { return or(name, id) }
	}
	switch o.query.GroupBy {
	case "gateway":
		return label(names.gateway(id), id)
	case "route":
		return or(label(names.route(o.query.GatewayID, id), id), "no route")
	case "key":
		return or(label(names.key(id), id), "no key")
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
