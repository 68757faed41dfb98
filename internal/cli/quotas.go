package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// quotaSubject is the flags of commands about the quotas of an owner or of a key.
type quotaSubject struct{ owner, key string }

func (q *quotaSubject) add(c *cobra.Command) {
	c.Flags().StringVar(&q.owner, "owner", "", "external ID or `id` of the owner")
	c.Flags().StringVar(&q.key, "key", "", "`id`, name or prefix of the key; the keys of a rotation count together")
}

// check checks that one of the flags was given.
func (q *quotaSubject) check(*cobra.Command, []string) error {
	if (q.owner == "") == (q.key == "") {
		return usagef("give either --owner or --key")
	}
	return nil
}

// identify replaces the names by identifiers.
func (q *quotaSubject) identify(a *app, api *client.Client) (err error) {
	if q.owner != "" {
		q.owner, err = a.ownerID(api, q.owner)
		return err
	}
	return a.identify(api, records{key: &q.key})
}

func newUsage(a *app) *cobra.Command {
	of := &quotaSubject{}
	c := &cobra.Command{
		Use: "usage {--owner ID | --key ID}", Short: "Show what an owner or a key has used of its quotas, and usage records",
		Long: `Show what an owner, or a key with the other keys of its rotation, has used of the quotas
of its plan in the present windows: true up to now on one node, up to 2 seconds before on
several. OF is the count with what was granted in addition.

Quotas per owner are those of the owner, quotas per key those of each of its keys.

Usage records, for billing, are what list and export show.`,
		Example: "  keygate usage --owner customer-42",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return group(c, args)
			}
			return nil
		},
		SuggestionsMinimumDistance: maxTypos,
	}
	of.add(c)
	c.AddCommand(newUsageList(a), newUsageExport(a))
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := of.check(c, args); err != nil {
			return err
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		if err := of.identify(a, api); err != nil {
			return err
		}
		usage, err := of.usage(c.Context(), api)
		if err != nil {
			return err
		}
		return terminal.PrintList(a.Console, 0, listed(usage), terminal.Listing[client.QuotaUsage]{
			Columns: []terminal.Column{
				{Name: "LIMIT", Flex: true}, {Name: "USED"}, {Name: "OF"}, {Name: "%"}, {Name: " ", Rank: 2, Bar: true}, {Name: "LEFT", Rank: 1},
				{Name: "GRANTED", Rank: 4}, {Name: "RESERVED", Rank: 5}, {Name: "OVERAGE", Rank: 3}, {Name: "WINDOW ENDS"},
			},
			Row:   a.usageRow,
			Empty: "No plan has a quota that counts it.",
		})
	}
	return c
}

func (q *quotaSubject) usage(ctx context.Context, api *client.Client) ([]client.QuotaUsage, error) {
	if q.owner != "" {
		return api.OwnerUsage(ctx, q.owner)
	}
	return api.KeyUsage(ctx, q.key)
}

func (a *app) usageRow(u *client.QuotaUsage) []string {
	ends := "never"
	if u.WindowEnd != nil {
		ends = a.When(u.WindowEnd)
	}
	share, gauge := shareOf(u)
	return []string{
		u.Plan + "." + u.Limit, decimal(u.Used), decimal(u.Count + u.Grants), share, gauge,
		decimal(u.Remaining), decimal(u.Grants), decimal(u.Reserved), string(u.Overage), ends,
	}
}

// shareOf returns which share of a quota was used, in percent and as a bar.
func shareOf(u *client.QuotaUsage) (percent, gauge string) {
	whole := u.Count + u.Grants
	return fmt.Sprintf("%.1f", 100*float64(u.Used)/float64(whole)), terminal.Gauge(u.Used, whole, 10)
}

// tightestCells returns the cells of a list of owners for the tightest quota of one; nil if it has none.
func tightestCells(u *client.QuotaUsage) []string {
	if u == nil {
		return []string{"", "", ""}
	}
	share, gauge := shareOf(u)
	return []string{u.Plan + "." + u.Limit, share, gauge}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func newGrants(a *app) *cobra.Command {
	return newGroup("grants", "Add units to the present window of a quota", newGrantsAdd(a), newGrantsList(a))
}

func newGrantsAdd(a *app) *cobra.Command {
	of, in, reason := &quotaSubject{}, client.CreateGrantRequest{}, ""
	c := &cobra.Command{
		Use: "add {--owner ID | --key ID} --limit NAME --units N", Short: "Grant units to an owner or a key",
		Long: `Add units to the present window of a quota of an owner, or of a key and the other keys of
its rotation. What is left of them is lost when the window ends. The audit log has each grant
with its reason.`,
		Example: "  keygate grants add --owner customer-42 --limit per-month --units 5000 --reason 'outage of 3 March'", Args: noArgs,
	}
	of.add(c)
	c.Flags().StringVar(&in.Limit, "limit", "", "`name` of the limit, which keygate usage shows after the plan's")
	c.Flags().Int64Var(&in.Units, "units", 0, "`number` of units to add")
	c.Flags().StringVar(&reason, "reason", "", "why, as a `text` for people")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := noneEmpty(c); err != nil {
			return err
		}
		if err := of.check(c, args); err != nil {
			return err
		}
		if err := required("limit", in.Limit); err != nil {
			return err
		}
		if !c.Flags().Changed("units") {
			return usagef("--units is required")
		}
		in.Reason = given(reason)
		api, err := a.connect()
		if err != nil {
			return err
		}
		if err := of.identify(a, api); err != nil {
			return err
		}
		made, err := of.grant(c.Context(), api, in)
		if err != nil {
			return err
		}
		return show(a, made, grantFields)
	}
	return c
}

func (q *quotaSubject) grant(ctx context.Context, api *client.Client, in client.CreateGrantRequest) (*client.Grant, error) {
	if q.owner != "" {
		return api.GrantToOwner(ctx, q.owner, in)
	}
	return api.GrantToKey(ctx, q.key, in)
}

func grantFields(g *client.Grant) []terminal.Field {
	ends := "never"
	if g.WindowEnd != nil {
		ends = terminal.Moment(g.WindowEnd)
	}
	return []terminal.Field{
		{"GRANT ID", g.GrantID}, {"LIMIT", g.Plan + "." + g.Limit}, {"UNITS", decimal(g.Units)}, {"REASON", str(g.Reason)}, {"WINDOW ENDS", ends},
		{"CREATED", terminal.Moment(&g.CreatedAt)},
	}
}

func newGrantsList(a *app) *cobra.Command {
	of, options := &quotaSubject{}, &client.ListOptions{}
	c := &cobra.Command{
		Use: "list {--owner ID | --key ID}", Short: "List what was granted to an owner or a key, newest first", Args: noArgs,
		Long: `List what was granted to an owner, or to a key and the other keys of its rotation, newest
first. Grants are kept for two days after their window has ended; those of total stay.`,
	}
	of.add(c)
	return lists(a, c, lister[client.Grant]{
		options: options, check: of.check,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Grant, error], error) {
			if err := of.identify(a, api); err != nil {
				return nil, err
			}
			if of.owner != "" {
				return api.OwnerGrants(ctx, of.owner, *options), nil
			}
			return api.KeyGrants(ctx, of.key, *options), nil
		},
		columns: []terminal.Column{
			{Name: "GRANT ID", Rank: 3}, {Name: "LIMIT", Flex: true}, {Name: "UNITS"}, {Name: "REASON", Flex: true, Rank: 2}, {Name: "WINDOW ENDS", Rank: 1}, {Name: "CREATED"},
		},
		row: func(g *client.Grant) []string {
			ends := "never"
			if g.WindowEnd != nil {
				ends = a.When(g.WindowEnd)
			}
			return []string{g.GrantID, g.Plan + "." + g.Limit, decimal(g.Units), str(g.Reason), ends, a.When(&g.CreatedAt)}
		},
		empty: always("No grants."),
	})
}

// listed returns the elements of a list as a list of records.
func listed[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for record := range slices.Values(list) {
			if !yield(record, nil) {
				return
			}
		}
	}
}
