package cli

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

func newRoutes(a *app) *cobra.Command {
	return newGroup("routes", "Manage the routes of a gateway",
		newRoutesCreate(a), newRoutesList(a), newRoutesGet(a), newRoutesUpdate(a), newRoutesDelete(a))
}

// routeCommand is a command on the routes of a gateway, or on one of them.
type routeCommand struct {
	*one
	gateway string
}

func routesOf(a *app) *routeCommand {
	o := &routeCommand{}
	o.one = &one{
		app: a, flag: "route-id", usage: "`id` of the route, or its path such as /orders or 'GET /orders'" + alsoArgument,
		find: func(api *client.Client, ref string) (id string, err error) {
			if o.gateway, err = a.gatewayID(api, o.gateway); err != nil {
				return "", err
			}
			return a.routeID(api, o.gateway, ref)
		},
	}
	return o
}

// reader returns what reads the route, in the form of the client's methods.
func (o *routeCommand) reader() func(*client.Client, context.Context, string) (*client.Route, error) {
	return func(api *client.Client, ctx context.Context, id string) (*client.Route, error) {
		return api.Route(ctx, o.gateway, id)
	}
}

// gatewayFlag adds the flag for the gateway.
func (o *routeCommand) gatewayFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	return c
}

func routeFields(r *client.Route) []terminal.Field {
	fields := []terminal.Field{
		{"ROUTE ID", r.RouteID}, {"GATEWAY", r.GatewayID}, {"PATH", r.Path}, {"METHODS", strings.Join(r.Methods, ", ")},
		{"RATE LIMIT", routeLimit(r.RateLimit)},
	}
	if r.Concurrency != nil {
		fields = append(fields, terminal.Field{"CONCURRENCY", concurrencyText(r.Concurrency)})
	}
	if r.Upstream != gateway.DefaultUpstream {
		fields = append(fields, terminal.Field{"UPSTREAM", r.Upstream})
	}
	if r.Split != nil {
		fields = append(fields, terminal.Field{"SPLIT", splitText(*r.Split)})
	}
	return append(append(append(fields, handlingFields(r)...), costFields(r.Cost)...),
		terminal.Field{"AUTH", string(r.Auth)}, terminal.Field{"SOURCE", string(r.Source)}, terminal.Field{"CREATED", terminal.Moment(&r.CreatedAt)})
}

// warningsOf returns what is likely a mistake in a route.
func warningsOf(r *client.Route) []string {
	if r.Warnings == nil {
		return nil
	}
	return *r.Warnings
}

func routeLimit(l *client.RateLimit) string {
	if l == nil {
		return ""
	}
	per := ""
	if l.Per != nil {
		per = "per " + string(*l.Per)
	}
	return join(limitPart("", l.Sustained), limitPart("burst ", l.Burst), limitPart("daily ", l.Daily), per)
}

// limitsOfRoute returns what limits a route, on one line.
func limitsOfRoute(r *client.Route) string {
	if r.Concurrency == nil {
		return routeLimit(r.RateLimit)
	}
	return join(routeLimit(r.RateLimit), "concurrency "+concurrencyText(r.Concurrency))
}

// concurrencyText returns a bound of requests in flight in the form that --concurrency takes.
func concurrencyText(c *client.Concurrency) string {
	text := strconv.FormatInt(c.Max, 10)
	if c.Per != nil {
		text += "/" + string(*c.Per)
	}
	return text
}

const concurrencyUsage = "how many requests may be in flight at once, as a `number`, or as in 5/key for each key"

// parseConcurrency parses the value of --concurrency.
func parseConcurrency(text string) (c client.ConcurrencyInput, err error) {
	count, per, some := strings.Cut(text, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || some && per != "key" {
		return c, usagef("--concurrency %q must be a number such as 5, or 5/key for each key", text)
	}
	if c.Max = n; some {
		c.Per = given(client.ConcurrencyInputPer(per))
	}
	return c, nil
}

type routesCreate struct {
	*routeCommand
	path, auth, sustained, burst, daily, per, concurrency, upstream string
	methods, split                                                  []string
	cost                                                            costFlag
	handling                                                        handlingFlags
}

func newRoutesCreate(a *app) *cobra.Command {
	o := &routesCreate{routeCommand: routesOf(a)}
	c := o.gatewayFlag(&cobra.Command{
		Use: "create --gateway ID --path PATH --method METHOD", Short: "Create a route", Args: noArgs,
		Example: "  keygate routes create --gateway gw_01j… --path '/orders/{id}' --method GET,DELETE --sustained 600/min", RunE: o.run,
	})
	f := c.Flags()
	f.StringVar(&o.path, "path", "", "path `template`, such as /orders/{id}; one that ends in /* matches everything below")
	f.StringSliceVar(&o.methods, "method", nil, "HTTP `methods`, separated by commas")
	f.StringVar(&o.auth, "auth", "", "`credential` that requests need: key, token, any, or none for a public route (default: what the gateway says)")
	f.StringVar(&o.sustained, "sustained", "", "refill `rate` of the limit, such as 600/min")
	f.StringVar(&o.burst, "burst", "", "capacity of the limit, such as `50/s`")
	f.StringVar(&o.daily, "daily", "", "cap per UTC day, such as `100000/day`")
	f.StringVar(&o.per, "per", "", "`key` gives each key its own limit, address each client address")
	f.StringVar(&o.concurrency, "concurrency", "", concurrencyUsage)
	f.StringVar(&o.upstream, "upstream", "", "`name` of the upstream that gets the requests (default: default)")
	f.StringArrayVar(&o.split, "split", nil, splitUsage)
	o.handling.add(f, "")
	o.cost.add(f, "")
	return c
}

func (o *routesCreate) run(c *cobra.Command, _ []string) error {
	if err := required("path", o.path); err != nil {
		return err
	}
	if len(o.methods) == 0 {
		return required("method", "")
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	if err := o.cost.read(o.app); err != nil {
		return err
	}
	if err := o.handling.read(o.app); err != nil {
		return err
	}
	in := client.CreateRouteRequest{Path: o.path, Methods: o.methods, Auth: given(client.CreateRouteRequestAuth(o.auth)), Cost: o.cost.cost, Upstream: given(o.upstream)}
	if o.sustained+o.burst+o.daily+o.per != "" {
		in.RateLimit = &client.RateLimitInput{
			Sustained: given(o.sustained), Burst: given(o.burst), Daily: given(o.daily), Per: given(client.RateLimitInputPer(o.per)),
		}
	}
	if o.concurrency != "" {
		concurrency, err := parseConcurrency(o.concurrency)
		if err != nil {
			return err
		}
		in.Concurrency = &concurrency
	}
	if err := o.handling.create(c, &in); err != nil {
		return err
	}
	split, err := splitOf(o.split)
	if err != nil {
		return err
	}
	if split != nil {
		in.Split = &split
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	r, err := api.CreateRoute(c.Context(), o.gateway, in)
	if err != nil {
		return err
	}
	o.printWarnings(warningsOf(r))
	return show(o.app, r, routeFields)
}

func newRoutesList(a *app) *cobra.Command {
	filter, gateway := &client.RouteFilter{}, ""
	c := &cobra.Command{Use: "list --gateway ID", Short: "List the routes of a gateway, newest first", Args: atMost(1)}
	c.Flags().StringVar(&gateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only routes whose path contains this `text`")
	c.Flags().StringVar(&filter.Method, "method", "", "only routes with this `method`")
	return lists(a, c, lister[client.Route]{
		options: &filter.ListOptions, check: optionalGateway(&gateway),
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Route, error], error) {
			id, err := a.gatewayID(api, gateway)
			filter.Method = strings.ToUpper(filter.Method)
			return api.SearchRoutes(ctx, id, *filter), err
		},
		columns: []terminal.Column{
			{Name: "ROUTE ID"}, {Name: "METHODS", Flex: true}, {Name: "PATH", Flex: true}, {Name: "RATE LIMIT", Rank: 1, Flex: true},
			{Name: "AUTH", Rank: 2}, {Name: "SOURCE", Rank: 3}, {Name: "UPSTREAM", Rank: 4},
		},
		row: func(r *client.Route) []string {
			return []string{r.RouteID, strings.Join(r.Methods, ","), r.Path, limitsOfRoute(r), string(r.Auth), string(r.Source), r.Upstream}
		},
		empty: always("No routes. Push an OpenAPI document: keygate spec push FILE; or: keygate routes create --path PATH --method GET"),
	})
}

func newRoutesGet(a *app) *cobra.Command {
	o := routesOf(a)
	return o.gatewayFlag(shows(o.one, &cobra.Command{Use: "get --gateway ID ROUTE_ID", Short: "Show a route"}, o.reader(), routeFields))
}

func newRoutesDelete(a *app) *cobra.Command {
	o := routesOf(a)
	return o.gatewayFlag(destroys(o.one, &cobra.Command{Use: "delete --gateway ID ROUTE_ID", Short: "Delete a route"}, destroyer[client.Route]{
		"delete", o.reader(), lostWithRoute,
		func(api *client.Client, ctx context.Context, id string) (*client.Route, error) {
			return api.DeleteRoute(ctx, o.gateway, id)
		},
		routeLabel, routeFields,
	}))
}

type routesUpdate struct {
	*routeCommand
	path, auth, sustained, burst, daily, per, concurrency, upstream string
	methods, split                                                  []string
	noLimit                                                         bool
	cost                                                            costFlag
	handling                                                        handlingFlags
	patch                                                           client.RoutePatch
}

func newRoutesUpdate(a *app) *cobra.Command {
	o := &routesUpdate{routeCommand: routesOf(a)}
	c := o.gatewayFlag(&cobra.Command{
		Use: "update --gateway ID ROUTE_ID", Short: "Change a route; an empty value removes that part of its limit, its concurrency or its cost",
		Example: "  keygate routes update --gateway gw_01j… rt_01j… --sustained 600/min --daily ''\n" +
			"  keygate routes update /orders --path '/v2/orders' --method GET,POST\n" +
			"  keygate routes update /v1/chat/completions --cost cost.yaml", PreRunE: o.readPatch,
	})
	f := c.Flags()
	f.StringVar(&o.path, "path", "", "path `template`, such as /orders/{id}; one that ends in /* matches everything below")
	f.StringSliceVar(&o.methods, "method", nil, "HTTP `methods`, separated by commas; they replace all of the route's")
	f.StringVar(&o.auth, "auth", "", "`credential` that requests need: key, token, any, or none for a public route; an empty value for what the gateway says")
	f.StringVar(&o.sustained, "sustained", "", "refill `rate`, such as 600/min")
	f.StringVar(&o.burst, "burst", "", "capacity, such as `50/s`")
	f.StringVar(&o.daily, "daily", "", "cap per UTC day, such as `100000/day`")
	f.StringVar(&o.per, "per", "", "`key` gives each key its own limit, address each client address")
	f.BoolVar(&o.noLimit, "no-limit", false, "remove the limit")
	f.StringVar(&o.concurrency, "concurrency", "", concurrencyUsage+"; an empty value removes the bound")
	f.StringVar(&o.upstream, "upstream", "", "`name` of the upstream that gets the requests; an empty value means default")
	f.StringArrayVar(&o.split, "split", nil, splitUsage+", and an empty value means the split of the gateway")
	o.handling.add(f, "; an empty value removes it")
	o.cost.add(f, "; an empty value removes it")
	return shows(o.one, c, func(api *client.Client, ctx context.Context, id string) (*client.Route, error) {
		r, err := api.UpdateRoute(ctx, o.gateway, id, o.patch)
		if err == nil {
			o.printWarnings(warningsOf(r))
		}
		return r, err
	}, routeFields)
}

// readPatch makes the patch that the flags ask for.
func (o *routesUpdate) readPatch(c *cobra.Command, _ []string) error {
	set, p := changesOf(c), &o.patch
	switch {
	case set.flags.Changed("path") && o.path == "":
		return usagef("--path is empty: give it a value or omit it")
	case set.flags.Changed("method") && len(o.methods) == 0:
		return usagef("--method is empty: give it a value or omit it")
	}
	p.Path, p.Auth, p.Upstream = set.text("path", o.path), set.text("auth", o.auth), set.text("upstream", o.upstream)
	if len(o.methods) > 0 {
		p.Methods = client.Set(o.methods)
	}
	if err := o.cost.read(o.app); err != nil {
		return err
	}
	p.Cost = o.cost.change(c)
	if err := o.handling.read(o.app); err != nil {
		return err
	}
	if err := o.handling.change(c, p); err != nil {
		return err
	}
	if set.flags.Changed("split") {
		split, err := splitOf(o.split)
		if err != nil {
			return err
		}
		if p.Split = client.Set(split); split == nil {
			p.Split = client.Clear[[]client.SplitInput]()
		}
	}
	switch {
	case o.concurrency != "":
		concurrency, err := parseConcurrency(o.concurrency)
		if err != nil {
			return err
		}
		p.Concurrency = client.Set(concurrency)
	case set.flags.Changed("concurrency"):
		p.Concurrency = client.Clear[client.ConcurrencyInput]()
	}
	limit := client.RateLimitPatch{
		Sustained: set.text("sustained", o.sustained), Burst: set.text("burst", o.burst),
		Daily: set.text("daily", o.daily), Per: set.text("per", o.per),
	}
	changed := limit != (client.RateLimitPatch{})
	switch {
	case o.noLimit && changed:
		return usagef("--no-limit cannot be used with the other flags of the limit")
	case o.noLimit:
		p.RateLimit = client.Clear[client.RateLimitPatch]()
	case changed:
		p.RateLimit = client.Set(limit)
	case p.Path == (client.Change[string]{}) && p.Auth == (client.Change[string]{}) && len(o.methods) == 0 && p.Cost.IsZero() && p.Upstream.IsZero() && p.Split.IsZero() && p.Concurrency == (client.Change[client.ConcurrencyInput]{}) && !slices.ContainsFunc(handlingNames(), set.flags.Changed):
		return usagef("nothing to change: give at least one of --path, --method, --auth, --sustained, --burst, --daily, --per, --no-limit, --concurrency, --cost, --upstream, --split, --%s", strings.Join(handlingNames(), ", --"))
	}
	return nil
}
