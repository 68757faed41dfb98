package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

type traffic struct {
	*app
	query client.TrafficQuery
	top   int
	order string
	limit int
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
JSON and YAML have them all. With --limit 10, the report has the latest ten rows, and of
an interval with more groups those with the most requests.

In a pipe or file a table has no bars, and sizes and latencies are plain numbers: bytes
and milliseconds.

With --top 10, the report has the ten routes, keys, gateways, upstreams, targets or
subjects with the most requests of the whole time, or with the most of what --order says.

A request counts for the target to which it was sent last; refused ones were sent to none.
Reports of upstreams and targets cannot be combined with --route-id and --key-id.

With --group-by subject, the report has the requests with a valid token, by its issuer
and subject. It cannot be combined with filters but --gateway.

If routes have a cost, the table has the units that requests were charged, for the four
meters with the most; JSON and YAML have them all.`,
		Example: "  keygate traffic\n  keygate traffic --group-by route --since 1h\n  keygate traffic --top 10 --group-by key --order refused\n  keygate traffic --key-id key_01j… --interval 1d\n  keygate traffic --gateway orders --group-by target --interval 1m",
		Args:    noArgs, RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.query.GatewayID, "gateway", "", "only requests of the gateway with this `id`, name or hostname")
	f.StringVar(&o.query.RouteID, "route-id", "", "only requests of the route with this `id` or path")
	f.StringVar(&o.query.KeyID, "key-id", "", "only requests with the key with this `id`, name or prefix")
	f.StringVar(&o.query.Upstream, "upstream", "", "only requests to the upstream with this `name`, of the gateway of --gateway")
	f.StringVar(&o.query.Target, "target", "", "only requests to the target with this `address`, as in 10.0.0.1:8443")
	f.StringVar(&o.query.Interval, "interval", "", "`length` of the intervals: 1m, 1h or 1d")
	f.StringVar(&o.query.GroupBy, "group-by", "", "group by `field`: gateway, route, key, status, upstream, target, side or subject")
	f.IntVar(&o.top, "top", 0, "only this `number` of groups, up to 100, with their sums over the whole time")
	f.StringVar(&o.order, "order", "", "order of --top: requests (default), errors, refused or bytes_out, by `field`")
	f.IntVar(&o.limit, "limit", 0, "show at most `n` rows, the latest; 0 means all")
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
	if o.query.Upstream != "" && o.query.GatewayID == "" {
		return usagef("--upstream names an upstream of a gateway: add --gateway")
	}
	ranked := c.Flags().Changed("top")
	if o.order != "" && !ranked {
		return usagef("--order is the order of --top: add --top 10, or leave --order out")
	}
	if ranked && o.limit != 0 {
		return usagef("--limit is for the report by intervals: --top has a number itself")
	}
	if o.limit < 0 {
		return usagef("--limit must not be negative, got %d", o.limit)
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
	if !o.ForPeople() {
		return o.PrintData(o.latest(rows))
	}
	return o.print(rows, o.namesOf(c.Context(), api))
}

// print prints the rows, each with a bar that shows its share of the busiest row.
func (o *traffic) print(rows []client.TrafficRow, names *names) error {
	rows = o.latest(o.worthShowing(rows))
	if len(rows) == 0 {
		fmt.Fprintln(o.Err, "There were no requests in that time.")
		return nil
	}
	most := slices.MaxFunc(rows, func(x, y client.TrafficRow) int { return cmp.Compare(x.Requests, y.Requests) }).Requests
	timed := o.query.GroupBy != "key" && o.query.GroupBy != "subject"
	size, milliseconds := terminal.Size, terminal.Milliseconds
	if o.Width(o.Out) == 0 { // programs find each number in a field of its own, in bytes and milliseconds
		size, milliseconds = count, plainMilliseconds
	}
	charged := mostCharged(rows, func(r *client.TrafficRow) map[string]int64 { return r.Meters })
	t := o.NewTable(o.columns(charged, timed)...)
	for i := range rows {
		r := &rows[i]
		cells := []string{o.start(r.Start)}
		if o.query.GroupBy != "" {
			cells = append(cells, o.group(r, names))
		}
		if o.query.GroupBy == "subject" {
			cells = append(cells, str(r.IssuerID))
		}
		cells = append(cells, count(r.Requests), terminal.Gauge(r.Requests, most, 16))
		for _, n := range []int64{r.Status2Xx, r.Status3Xx, r.Status4Xx, r.Status5Xx, r.Limited, r.Unauthorized, r.Forbidden, r.UpstreamErrors} {
			cells = append(cells, count(n))
		}
		cells = append(cells, size(r.BytesIn), size(r.BytesOut))
		for _, meter := range charged {
			cells = append(cells, count(r.Meters[meter]))
		}
		if timed {
			l, u := latencies(r.LatencyMs), latencies(r.UpstreamLatencyMs)
			cells = append(cells, milliseconds(l.P50), milliseconds(l.P90), milliseconds(l.P99), milliseconds(u.P50), milliseconds(u.P99))
		}
		t.Row(cells...)
	}
	return t.Flush()
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
	if !o.ForPeople() {
		return o.PrintData(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(o.Err, "There was nothing to list in that time.")
		return nil
	}
	names := o.namesOf(c.Context(), api)
	charged := mostCharged(rows, func(r *client.TopRow) map[string]int64 { return r.Meters })
	columns := append(o.groupColumns(), []terminal.Column{
		{Name: "REQUESTS"}, {Name: "2XX", Rank: 2}, {Name: "3XX", Rank: 4},
		{Name: "4XX"}, {Name: "5XX"}, {Name: "429"}, {Name: "401", Rank: 1}, {Name: "403", Rank: 1}, {Name: "IN", Rank: 3}, {Name: "OUT", Rank: 3},
	}...)
	columns = append(columns, meterColumns(charged)...)
	t := o.NewTable(columns...)
	for i := range rows {
		r := &rows[i]
		cells := []string{o.group(&client.TrafficRow{Group: r.Group}, names)}
		if o.query.GroupBy == "subject" {
			cells = append(cells, str(r.IssuerID))
		}
		cells = append(cells, count(r.Requests), count(r.Status2Xx), count(r.Status3Xx), count(r.Status4Xx), count(r.Status5Xx),
			count(r.Limited), count(r.Unauthorized), count(r.Forbidden), terminal.Size(r.BytesIn), terminal.Size(r.BytesOut))
		for _, meter := range charged {
			cells = append(cells, count(r.Meters[meter]))
		}
		t.Row(cells...)
	}
	return t.Flush()
}

// mostMeters is the number of meters that a table shows.
const mostMeters = 4

// mostCharged returns the meters with the most units in rows, ordered by their names.
func mostCharged[R any](rows []R, of func(*R) map[string]int64) []string {
	sums := map[string]float64{}
	for i := range rows {
		for meter, units := range of(&rows[i]) {
			sums[meter] += float64(units)
		}
	}
	meters := slices.SortedFunc(maps.Keys(sums), func(x, y string) int { return cmp.Or(cmp.Compare(sums[y], sums[x]), cmp.Compare(x, y)) })
	meters = meters[:min(len(meters), mostMeters)]
	slices.Sort(meters)
	return meters
}

// meterColumns returns a column for each meter. The meter requests has another name than the number of requests.
func meterColumns(meters []string) (columns []terminal.Column) {
	for _, meter := range meters {
		name := strings.ToUpper(meter)
		if meter == "requests" {
			name = "REQUEST UNITS"
		}
		columns = append(columns, terminal.Column{Name: name, Rank: 3})
	}
	return columns
}

// columns returns the columns of the report, with those of meters that were charged; timed adds latencies.
func (o *traffic) columns(charged []string, timed bool) []terminal.Column {
	columns := []terminal.Column{{Name: "START"}}
	if o.query.GroupBy != "" {
		columns = append(columns, o.groupColumns()...)
	}
	columns = append(columns,
		terminal.Column{Name: "REQUESTS"}, terminal.Column{Name: " ", Rank: 3, Bar: true}, terminal.Column{Name: "2XX"}, terminal.Column{Name: "3XX", Rank: 6}, terminal.Column{Name: "4XX"}, terminal.Column{Name: "5XX"},
		terminal.Column{Name: "429", Rank: 2}, terminal.Column{Name: "401", Rank: 5}, terminal.Column{Name: "403", Rank: 5}, terminal.Column{Name: "UPSTREAM ERRORS", Rank: 8},
		terminal.Column{Name: "IN", Rank: 7}, terminal.Column{Name: "OUT", Rank: 7})
	columns = append(columns, meterColumns(charged)...)
	if timed {
		columns = append(columns, terminal.Column{Name: "P50", Rank: 4}, terminal.Column{Name: "P90", Rank: 9}, terminal.Column{Name: "P99", Rank: 1},
			terminal.Column{Name: "UPSTREAM P50", Rank: 11}, terminal.Column{Name: "UPSTREAM P99", Rank: 10})
	}
	return columns
}

// groupColumns returns the column of the group, and for subjects that of their issuer.
func (o *traffic) groupColumns() []terminal.Column {
	columns := []terminal.Column{{Name: strings.ToUpper(o.query.GroupBy), Flex: true}}
	if o.query.GroupBy == "subject" {
		columns = append(columns, terminal.Column{Name: "ISSUER", Rank: 1})
	}
	return columns
}

// start formats the start of an interval.
func (o *traffic) start(t time.Time) string {
	if !o.Fitted() {
		return terminal.Moment(&t)
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

// latest returns the rows of --limit: those of the latest intervals, and of the earliest of these intervals, if it has too
// many groups, those with the most requests.
func (o *traffic) latest(rows []client.TrafficRow) []client.TrafficRow {
	if o.limit == 0 || len(rows) <= o.limit {
		return rows
	}
	from := len(rows) - o.limit
	begin, end := from, from
	for begin > 0 && rows[begin-1].Start.Equal(rows[from].Start) {
		begin--
	}
	for end < len(rows) && rows[end].Start.Equal(rows[from].Start) {
		end++
	}
	interval := slices.Clone(rows[begin:end])
	slices.SortStableFunc(interval, func(x, y client.TrafficRow) int { return cmp.Compare(y.Requests, x.Requests) })
	return append(interval[:end-from], rows[end:]...)
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

// group returns the group of a row, with its name if it has one. In a table that fits a terminal it
// is the name alone.
func (o *traffic) group(r *client.TrafficRow, names *names) string {
	id, label := str(r.Group), withID
	if o.Fitted() {
		label = func(name, id string) string { return cmp.Or(name, id) }
	}
	switch o.query.GroupBy {
	case "gateway":
		return label(names.gateway(id), id)
	case "route":
		return cmp.Or(label(names.route(o.query.GatewayID, id), id), "no route")
	case "key":
		return cmp.Or(label(names.key(id), id), "no key")
	case "upstream":
		return cmp.Or(id, "no upstream")
	case "target":
		return cmp.Or(id, "no target")
	default:
		return id
	}
}

// plainMilliseconds formats a duration in milliseconds for programs; 0, which is not measured, is "".
func plainMilliseconds(ms float64) string {
	if ms == 0 {
		return ""
	}
	return strconv.FormatFloat(ms, 'f', 2, 64)
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
