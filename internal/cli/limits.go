package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newLimits(a *app) *cobra.Command {
	show := newLimitsShow(a)
	return listsAlone(newGroup("limits", "Show the levels of rate limits, and simulate other limits", show, newLimitsSimulate(a)), show)
}

func newLimitsShow(a *app) *cobra.Command {
	var options client.ListOptions
	var names *names
	gateway, unlimited := "", false // whether the gateway sets no global limit
	c := &cobra.Command{Use: "show --gateway ID", Short: "Show the current level of every limit of a gateway that is in use", Args: atMost(1)}
	c.Flags().StringVar(&gateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	return lists(a, c, lister[client.LimitLevel]{
		options: &options, check: optionalGateway(&gateway),
		find: func(ctx context.Context, api *client.Client) (levels iter.Seq2[client.LimitLevel, error], err error) {
			if gateway, err = a.gatewayID(api, gateway); err != nil {
				return nil, err
			}
			names = a.namesOf(ctx, api)
			if a.ForPeople() {
				g, err := api.Gateway(ctx, gateway)
				if err != nil {
					return nil, err
				}
				unlimited = g.GlobalRateLimit == nil
			}
			return api.Limits(ctx, gateway, options), nil
		},
		columns: []terminal.Column{
			{Name: "LIMIT OF"}, {Name: "ROUTE", Flex: true}, {Name: "KEY, OWNER OR ADDRESS", Flex: true}, {Name: "LEFT"}, {Name: "LIMIT"}, {Name: " ", Rank: 2, Bar: true},
			{Name: "FULL AT", Rank: 1},
		},
		row: func(l *client.LimitLevel) []string {
			if unlimited && l.LimitScope == client.LimitLevelLimitScopeGlobal { // --default-global-limit is there for the headers
				return []string{string(l.LimitScope), "", "", "", "no limit", "", ""}
			}
			var full *time.Time
			if l.ResetAt != 0 { // 0 if it is not known
				at := time.Unix(l.ResetAt, 0)
				full = &at
			}
			return []string{
				strings.TrimSpace(string(l.LimitScope) + " " + str(l.LimitName)), cmp.Or(names.route(gateway, str(l.RouteID)), str(l.RouteID)),
				cmp.Or(names.key(str(l.KeyID)), str(l.KeyID), names.owner(str(l.OwnerID)), str(l.OwnerID), str(l.Address)),
				strconv.FormatInt(l.Remaining, 10), strconv.FormatInt(l.Limit, 10), terminal.Gauge(l.Remaining, l.Limit, 10), a.When(full),
			}
		},
		empty: always("No limit of this gateway is in use: every one is full."),
	})
}

type limitsSimulate struct {
	*app
	gateway, route, key                     string
	rateLimit, sustained, burst, daily, per string
	plan                                    string
	limits                                  []string // of a plan
}

func newLimitsSimulate(a *app) *cobra.Command {
	o := &limitsSimulate{app: a}
	c := &cobra.Command{
		Use:   "simulate --gateway ID",
		Short: "Simulate a limit on the requests of the last 24 hours",
		Long: `Replay the requests of the last 24 hours through a limit, and show how many it would
have refused for each key. Nothing changes.

With --route-id, simulate a limit of the route: --sustained, --burst, --daily, --per.
With --key-id, simulate a limit of the key: --rate-limit. With neither, simulate the
gateway's global limit: --sustained, --burst.

With --plan or --limit, simulate a plan, as if every key and owner had it: one that is
there, or one with these limits, which are written as for keygate plans create. Of a quota,
it is not known how much was used before the last 24 hours: what it admits in a window that
began earlier is shown as UNKNOWN. So are all requests of a limit of requests in flight.`,
		Example: "  keygate limits simulate --gateway gw_01j… --route-id rt_01j… --sustained 600/min --burst 50/s\n" +
			"  keygate limits simulate --gateway gw_01j… --key-id key_01j… --rate-limit 100/min\n" +
			"  keygate limits simulate --gateway gw_01j… --limit per-minute=600/min,per=owner",
		Args: atMost(1), RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.gateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	f.StringVar(&o.route, "route-id", "", "`id` or path of the route to simulate a limit for")
	f.StringVar(&o.key, "key-id", "", "`id`, name or prefix of the key to simulate a limit for")
	f.StringVar(&o.rateLimit, "rate-limit", "", keyLimitHelp)
	f.StringVar(&o.sustained, "sustained", "", "refill `rate`, such as 600/min")
	f.StringVar(&o.burst, "burst", "", "capacity, such as `50/s`")
	f.StringVar(&o.daily, "daily", "", "cap per UTC day, such as `100000/day`")
	f.StringVar(&o.per, "per", "", "`key` gives each key its own limit")
	f.StringVar(&o.plan, "plan", "", "`name` or id of the plan to simulate")
	f.StringArrayVar(&o.limits, "limit", nil, planLimitHelp)
	return c
}

func (o *limitsSimulate) run(c *cobra.Command, args []string) error {
	ref, err := optionalID("gateway", o.gateway, args)
	if err != nil {
		return err
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	in := client.SimulateRequest{}
	parts := o.sustained + o.burst + o.daily + o.per
	ofPlan := o.plan != "" || len(o.limits) > 0
	switch {
	case ofPlan && (o.plan != "" && len(o.limits) > 0 || o.route+o.key+o.rateLimit+parts != ""):
		return usagef("a plan is given by --plan or by --limit, and no other flag but --gateway")
	case ofPlan:
	case o.route != "" && o.key != "":
		return usagef("give either --route-id or --key-id, or neither for the gateway's global limit")
	case o.key != "" && (o.rateLimit == "" || parts != ""):
		return usagef("the limit of a key is given by --rate-limit and no other flag")
	case o.key != "":
		if in.RateLimit, err = keyLimit(o.rateLimit); err != nil {
			return err
		}
	case o.rateLimit != "":
		return usagef("--rate-limit is the limit of a key: also give --key-id, or give --sustained and --burst for a route or the gateway")
	case parts == "":
		return usagef("no limit given: give --sustained, --burst or --daily, --rate-limit with --key-id, or --plan")
	default:
		in.RateLimit = client.RateLimitInput{
			Sustained: given(o.sustained), Burst: given(o.burst), Daily: given(o.daily), Per: given(client.RateLimitInputPer(o.per)),
		}
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	gateway, err := o.gatewayID(api, ref)
	if err != nil {
		return err
	}
	if err := o.identify(api, records{gateway: &gateway, route: &o.route, key: &o.key}); err != nil {
		return err
	}
	in.RouteID, in.KeyID = given(o.route), given(o.key)
	if ofPlan {
		if in.Plan, err = o.planToSimulate(api); err != nil {
			return err
		}
	}
	s, err := api.SimulateLimit(c.Context(), gateway, in)
	if err != nil {
		return err
	}
	if !o.ForPeople() {
		return o.PrintData(s)
	}
	return o.print(s, o.namesOf(c.Context(), api))
}

// planToSimulate returns the plan of --plan or --limit.
func (o *limitsSimulate) planToSimulate(api *client.Client) (*client.SimulatedPlanRequest, error) {
	if len(o.limits) > 0 {
		flags := planFlags{app: o.app, limits: o.limits}
		limits, err := flags.limitsOf(api)
		return &client.SimulatedPlanRequest{Limits: limits}, err
	}
	id, err := o.planID(api, o.plan)
	if err != nil {
		return nil, err
	}
	p, err := api.Plan(o.Context, id)
	if err != nil {
		return nil, err
	}
	return &client.SimulatedPlanRequest{Limits: apply.LimitInputs(p.Limits), TimeZone: &p.TimeZone, AnchorDay: &p.AnchorDay}, nil
}

func (o *limitsSimulate) print(s *client.Simulation, names *names) error {
	share := ""
	if s.Requests > 0 {
		share = fmt.Sprintf(" (%.2f %%)", 100*float64(s.Refused)/float64(s.Requests))
	}
	what := "limit"
	if s.Limits != nil {
		what = "plan"
	}
	fmt.Fprintf(o.Out, "Requests of the last 24 hours that the %s applies to: %d\nThe %s would have refused: %d%s\n", what, s.Requests, what, s.Refused, share)
	if s.Limits != nil {
		fmt.Fprintln(o.Out)
		t := o.NewTable(terminal.Column{Name: "LIMIT"}, terminal.Column{Name: "REFUSED"}, terminal.Column{Name: "UNKNOWN"})
		for _, l := range *s.Limits {
			t.Row(l.Limit, strconv.FormatInt(l.Refused, 10), strconv.FormatInt(l.Unknown, 10))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(s.Keys) == 0 {
		return nil
	}
	fmt.Fprintln(o.Out)
	t := o.NewTable(terminal.Column{Name: "KEY ID"}, terminal.Column{Name: "NAME", Flex: true}, terminal.Column{Name: "REFUSED"}, terminal.Column{Name: "FIRST AT", Rank: 1})
	for _, k := range s.Keys {
		t.Row(cmp.Or(str(k.KeyID), "no key"), names.key(str(k.KeyID)), strconv.FormatInt(k.Refused, 10), o.When(&k.FirstAt))
	}
	return t.Flush()
}
