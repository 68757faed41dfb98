package cli

import (
	"cmp"
	"errors"
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

type explain struct {
	*app
	filter client.RequestFilter
	span   spanFlags
	limit  int
	follow bool
}

func newExplain(a *app) *cobra.Command {
	o := &explain{app: a}
	c := &cobra.Command{
		Use:   "explain [REQUEST_ID]",
		Short: "Explain why a request was refused or failed, what it cost or which targets it was sent to, or list such requests",
		Long: `Show which check or limit decided a request that was refused (429, 401, 403, or a 404
or 405 of the gateway) or failed (5xx) in the last 24 hours, with its level at that
time, and when the request would have passed; for a 404 or 405, the routes that come
nearest, and why they do not match. Callers find the request identifier in the header X-Request-Id and in
the body of an error. Without an identifier, list such requests, newest first.

Show also what a request was charged by the cost of its route, and how that came about.
Of requests that were neither refused nor failed, at most 100 of a second are kept. To
list these: --result charged.

If a request went to an upstream with several targets, show each attempt: its target, how
it ended, and whether that ejected the target. To list requests with several attempts:
--result retried.`,
		Example: "  keygate explain req_01j…\n  keygate explain --status 429 --since 15m\n  keygate explain --result charged --key-id partner\n  keygate explain --follow --key-id partner",
		Args:    atMost(1), RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.filter.GatewayID, "gateway", "", "only requests of the gateway with this `id`, name or hostname")
	f.StringVar(&o.filter.RouteID, "route-id", "", "only requests of the route with this `id` or path")
	f.StringVar(&o.filter.KeyID, "key-id", "", "only requests with the key with this `id`, name or prefix")
	f.IntVar(&o.filter.Status, "status", 0, "only requests with this response `status`")
	f.StringVar(&o.filter.Result, "result", "", "only requests with this `result`, such as no_route, no_gateway, limited or unreachable; charged for those with a cost that were neither refused nor failed, retried for those with several attempts")
	o.span.add(f, "requests")
	limitFlag(f, &o.limit)
	f.BoolVarP(&o.follow, "follow", "f", false, "show such requests as they arrive, until Ctrl-C; in JSON, one object per line")
	return c
}

// refuseWithFollow refuses the flags that cannot be used with --follow.
func (o *explain) refuseWithFollow(c *cobra.Command) error {
	if err := o.refuseYAML(); err != nil {
		return err
	}
	return onlyForList(c, "--follow", "since", "until", "limit")
}

// onlyForList refuses flags of the list that cannot be used with something else.
func onlyForList(c *cobra.Command, with string, flags ...string) error {
	if i := slices.IndexFunc(flags, c.Flags().Changed); i >= 0 {
		return usagef("--%s is for the list and cannot be used with %s", flags[i], with)
	}
	return nil
}

func (o *explain) run(c *cobra.Command, args []string) (err error) {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if len(args) > 0 {
		return o.one(c, args[0])
	}
	if o.follow {
		return o.runFollow(c)
	}
	if o.filter.Since, o.filter.Until, err = o.span.span(time.Now()); err != nil {
		return err
	}
	limit := o.tableLimit(c, o.limit)
	api, err := o.list(&o.filter.ListOptions, limit)
	if err != nil {
		return err
	}
	if err := o.identify(api, o.records()); err != nil {
		return err
	}
	return terminal.PrintList(o.Console, limit, api.Requests(c.Context(), o.filter), terminal.Listing[client.LoggedRequest]{
		Columns: o.columns(),
		Row:     func(r *client.LoggedRequest) []string { return o.row(r, o.When(&r.Time)) },
		Empty:   noneMatch(c, "requests", "None was refused or failed in the last 24 hours."),
		Next:    "To see the reason in full: keygate explain REQUEST_ID",
	})
}

// records returns the filters that may be names.
func (o *explain) records() records {
	return records{gateway: &o.filter.GatewayID, route: &o.filter.RouteID, key: &o.filter.KeyID}
}

func (o *explain) columns() []terminal.Column {
	reason := "WHY"
	switch o.filter.Result {
	case "charged":
		reason = "COST"
	case "retried":
		reason = "ATTEMPTS"
	}
	return []terminal.Column{
		{Name: "TIME", Rank: 1, Least: 9}, {Name: "STATUS"}, {Name: reason, Flex: true, Least: 20}, {Name: "KEY", Rank: 3, Least: 10}, {Name: "METHOD", Rank: 2, Least: 6},
		{Name: "PATH", Flex: true, Least: 24}, {Name: "CLIENT", Rank: 4, Least: 15}, {Name: "REQUEST ID", Least: 30},
	}
}

func (o *explain) row(r *client.LoggedRequest, at string) []string {
	reason := why(&r.Decision)
	switch o.filter.Result {
	case "charged":
		reason = strings.Join(costs(r, briefly), ", ")
	case "retried":
		reason = attempts(r)
	}
	return []string{at, strconv.FormatInt(r.Status, 10), reason, cmp.Or(str(r.Subject), str(r.KeyPrefix)), r.Method, r.Path, r.ClientIP, r.RequestID}
}

// runFollow shows requests as they are refused or fail, until a signal arrives.
func (o *explain) runFollow(c *cobra.Command) error {
	if err := o.refuseWithFollow(c); err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if err := o.identify(api, o.records()); err != nil {
		return err
	}
	ctx, stop := o.untilSignal(c)
	defer stop()
	rows := o.NewStream(o.columns()...)
	for r, err := range api.FollowRequests(ctx, o.filter) {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is the normal end
		}
		if err != nil {
			return err
		}
		switch {
		case r.Request == nil:
			o.Say("%s left out: more came than could be read, or than the log keeps.", amount(r.Skipped, "request is", "requests are"))
		case o.ForPeople():
			rows.Row(o.row(r.Request, r.Request.Time.UTC().Format("15:04:05Z"))...)
			err = rows.Flush()
		default:
			err = o.PrintLine(r.Request)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the server ended the stream: it shuts down, or the key was revoked or has expired")
}

// tableLimit returns the limit that applies: without --limit, 100 for a table and
// none for JSON and YAML.
func (a *app) tableLimit(c *cobra.Command, limit int) int {
	if !a.ForPeople() || c.Flags().Changed("limit") {
		return limit
	}
	return 100
}

// why summarizes a decision in a word or two.
func why(d *client.Decision) string {
	if d.LimitScope != nil {
		return d.Check + " (" + strings.TrimSpace(string(*d.LimitScope)+" "+str(d.LimitName)) + ")"
	}
	if d.Reason != nil {
		return d.Check + " (" + *d.Reason + ")"
	}
	if d.Code != "" && d.Code != d.Check {
		return d.Check + " (" + d.Code + ")"
	}
	return d.Check
}

func (o *explain) one(c *cobra.Command, id string) error {
	if err := onlyForList(c, "an identifier", "gateway", "route-id", "key-id", "status", "result", "since", "until", "limit", "follow"); err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	r, err := api.RequestByID(c.Context(), id)
	if err != nil {
		return err
	}
	return o.PrintRecord(r, func() []terminal.Field { return o.explanation(c, api, r) })
}

func (o *explain) explanation(c *cobra.Command, api *client.Client, r *client.LoggedRequest) []terminal.Field {
	names := o.namesOf(c.Context(), api)
	d := &r.Decision
	fields := []terminal.Field{
		{"REQUEST ID", r.RequestID}, {"TIME", r.Time.UTC().Format(time.RFC3339Nano)},
		{"CALL", r.Method + " " + r.Path}, {"CLIENT", r.ClientIP},
	}
	fields = append(fields, filled(terminal.Field{"HOST", str(r.Host)})...)
	fields = append(fields, whose(r, withID(names.key(str(r.KeyID)), str(r.KeyID)))...)
	fields = append(fields, []terminal.Field{
		{"GATEWAY", withID(names.gateway(str(r.GatewayID)), str(r.GatewayID))},
		{"ROUTE", withID(names.route(str(r.GatewayID), str(r.RouteID)), str(r.RouteID))},
		{"STATUS", strconv.FormatInt(r.Status, 10)}, {"DURATION", terminal.Milliseconds(r.DurationMs)},
		{"DECIDED BY", why(d)}, {"WHY", d.Message},
	}...)
	limit, leftOut := "", ""
	if d.Limit != nil && d.Remaining != nil {
		limit = fmt.Sprintf("%d of %d left", *d.Remaining, *d.Limit)
	}
	if r.LeftOut > 0 {
		leftOut = terminal.NumberOf(r.LeftOut, "other request of the same second", "other requests of the same second")
	}
	for _, text := range costs(r, func(_ string, c *client.RequestCost) string { return c.Explanation }) {
		fields = append(fields, terminal.Field{"COST", text})
	}
	return append(fields, filled([]terminal.Field{
		{"SIDE", side(r)}, {"ATTEMPTS", attempts(r)}, {"TARGETS", allUnhealthy(r)}, {"NOT TRIED", notTried(r)}, {"LIMIT", limit}, {"WOULD PASS AT", terminal.Moment(d.PassesAt)}, {"UPSTREAM STATUS", number(d.UpstreamStatus)},
		{"DETAIL", str(d.Detail)}, {"LEFT OUT", leftOut},
	}...)...)
}

// whose says with which key, which is shown as key, or with whose token the request was made.
func whose(r *client.LoggedRequest, key string) []terminal.Field {
	if r.Credential != nil && *r.Credential == client.LoggedRequestCredentialToken {
		return []terminal.Field{{"TOKEN OF", str(r.IssuerID)}, {"SUBJECT", str(r.Subject)}}
	}
	return []terminal.Field{{"KEY PREFIX", str(r.KeyPrefix)}, {"KEY", key}}
}

// side says what a split decided, and why.
func side(r *client.LoggedRequest) string {
	if r.Side == nil {
		return ""
	}
	return *r.Side + ": " + str(r.SideReason)
}

// attempts says how the attempts of a request ended.
func attempts(r *client.LoggedRequest) string {
	if r.Attempts == nil {
		return ""
	}
	texts := make([]string, len(*r.Attempts))
	for i, a := range *r.Attempts {
		texts[i] = a.Explanation
	}
	return strings.Join(texts, "; ")
}

// notTried says which targets the request was not sent to because of their state.
func notTried(r *client.LoggedRequest) string {
	if r.NotTried == nil {
		return ""
	}
	var texts []string
	for _, t := range *r.NotTried {
		texts = append(texts, t.Explanation)
	}
	if more := r.NotTriedCount - int64(len(texts)); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// allUnhealthy says that no target was left out.
func allUnhealthy(r *client.LoggedRequest) string {
	if !r.AllUnhealthy {
		return ""
	}
	return "all were unhealthy or ejected, so the request went to any that was not drained"
}

// costs returns a text for each cost of a request, by the names of the meters.
func costs(r *client.LoggedRequest, say func(meter string, c *client.RequestCost) string) (texts []string) {
	if r.Cost == nil {
		return nil
	}
	all := *r.Cost
	for _, meter := range slices.Sorted(maps.Keys(all)) {
		c := all[meter]
		texts = append(texts, say(meter, &c))
	}
	return texts
}

// briefly returns the units of a cost, and why it is unknown if it is.
func briefly(meter string, c *client.RequestCost) string {
	text := strconv.FormatInt(c.Units, 10) + " " + meter
	if c.Unknown != nil {
		text += " (" + *c.Unknown + ")"
	}
	return text
}

// withID joins a name and the identifier that it belongs to.
func withID(name, id string) string {
	if name == "" || name == id {
		return id
	}
	return name + " (" + id + ")"
}
