package cli

import (
	"context"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// usageFlags are the filters of usage records.
type usageFlags struct {
	filter client.UsageFilter
	span   spanFlags
}

func (o *usageFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.filter.OwnerID, "owner", "", "only records of keys of the owner with this external ID or `id`")
	f.StringVar(&o.filter.KeyID, "key", "", "only records of the key with this `id`, name or prefix")
	f.StringVar(&o.filter.GatewayID, "gateway", "", "only records of the gateway with this `id`, name or hostname")
	f.StringVar(&o.filter.Meter, "meter", "", "only records of this `meter`: requests, bytes_in, bytes_out, or one of a cost")
	f.StringVar(&o.filter.State, "state", "", "only records in this `state`: final (the default) or open")
	f.StringVar(&o.filter.Interval, "interval", "", "records of this `interval`: 1h (the default; kept for 35 days), or 1d for the days before (kept for 400 days)")
	o.span.add(f, "records whose period begins")
}

// resolve replaces the names by identifiers.
func (o *usageFlags) resolve(a *app, api *client.Client) (err error) {
	if o.filter.OwnerID != "" {
		if o.filter.OwnerID, err = a.ownerID(api, o.filter.OwnerID); err != nil {
			return err
		}
	}
	return a.identify(api, records{gateway: &o.filter.GatewayID, key: &o.filter.KeyID})
}

func newUsageList(a *app) *cobra.Command {
	of, cursor := &usageFlags{}, &usageCursor{}
	after, next := "", ""
	c := &cobra.Command{
		Use: "list", Short: "List usage records: units by key, route, meter and hour", Args: noArgs, Aliases: []string{"ls"},
		Long: `List usage records: how many units of each meter each key has used on each route in each
hour, for billing. A final record never changes. Final records come in the order in which
they became final, seconds after their hour. Open records are those of hours that are not
final yet: their units grow.

With --cursor-file, the list has only the final records that the lists and exports before it
with this file lacked: it begins where the file says, or with the first record if there is no
such file. The file is replaced when the list is written. See keygate usage export --help.`,
		Example: "  keygate usage list --owner customer-42 --since 24h\n  keygate usage list --state open --meter requests -o json",
	}
	of.add(c.Flags())
	cursor.add(c.Flags())
	lists(a, c, lister[client.UsageEntry]{
		options: &of.filter.ListOptions,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.UsageEntry, error], error) {
			if err := of.resolve(a, api); err != nil {
				return nil, err
			}
			if cursor.path == "" {
				return api.UsageRecords(ctx, of.filter), nil
			}
			body, end, err := cursor.open(ctx, api, client.FormatJSONL, of.filter, after)
			if err != nil {
				return nil, err
			}
			next = end
			return usageEntries(body), nil
		},
		columns: []terminal.Column{
			{Name: "PERIOD"}, {Name: "OWNER", Flex: true}, {Name: "KEY PREFIX", Rank: 2}, {Name: "PLAN", Rank: 5, Flex: true}, {Name: "GATEWAY ID", Rank: 4}, {Name: "ROUTE ID", Rank: 3},
			{Name: "METER"}, {Name: "UNITS"}, {Name: "REQUESTS", Rank: 1}, {Name: "STATE", State: true}, {Name: "SEQUENCE", Rank: 6}, {Name: "USAGE ID", Rank: 7},
		},
		row: func(r *client.UsageEntry) []string {
			return []string{
				terminal.Moment(&r.PeriodStart), str(r.Owner), r.KeyPrefix, str(r.Plan), r.GatewayID, str(r.RouteID),
				r.Meter, decimal(r.Units), decimal(r.Requests), string(r.State), decimal(r.Sequence), r.UsageID,
			}
		},
		empty: func(c *cobra.Command) string { return noneMatch(c, "usage records", "") },
	})
	list, check := c.RunE, of.span.check(&of.filter.Since, &of.filter.Until)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return err
		}
		if err := cursor.check(of); err != nil {
			return err
		}
		if cursor.path != "" && c.Flags().Changed("limit") {
			return usagef("--cursor-file cannot be used with --limit: the records that are not shown would not come again")
		}
		return cursor.with(func(from string) (string, error) {
			after = from
			if err := list(c, args); err != nil {
				return "", err
			}
			return next, syncRegular(a.Out)
		})
	}
	return c
}
