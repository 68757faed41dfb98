package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newOwners(a *app) *cobra.Command {
	return newGroup("owners", "Manage owners: the customers or teams that keys belong to",
		newOwnersCreate(a), newOwnersList(a), newOwnersGet(a), newOwnersUpdate(a),
		newOwnersState(a, "suspend", "suspended", "Suspend an owner: its keys are refused at once, and keep their own state"),
		newOwnersState(a, "resume", "active", "Resume a suspended owner"),
		newOwnersDelete(a))
}

func ownerLabel(o *client.Owner) string { return "owner " + withID(o.ExternalID, o.OwnerID) }

// ownerID returns the identifier of the owner with an identifier or external ID.
func (a *app) ownerID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	for o, err := range api.Owners(a.Context, client.OwnerFilter{ExternalID: ref}) {
		if err != nil {
			return "", err
		}
		return o.OwnerID, nil
	}
	var alike []match
	for o, err := range firstOf(maxCandidates, api.Owners(a.Context, client.OwnerFilter{Query: ref})) {
		if err != nil {
			return "", err
		}
		alike = append(alike, match{o.OwnerID, []string{o.ExternalID, str(o.Name)}})
	}
	if len(alike) > 0 {
		return "", &notFoundError{fmt.Sprintf("there is no owner with the external ID %q: did you mean one of these?\n%s", ref, candidates(alike))}
	}
	return "", &notFoundError{fmt.Sprintf("there is no owner with the external ID %q: keygate owners list -q TEXT finds owners by a part of it or of their name", ref)}
}

// externalID replaces the identifier of an owner by its external ID, which keys name it by.
func (a *app) externalID(api *client.Client, ref *string) error {
	if !isID(*ref) {
		return nil
	}
	o, err := api.Owner(a.Context, *ref)
	if err == nil {
		*ref = o.ExternalID
	}
	return err
}

func ownerFields(o *client.Owner) []terminal.Field {
	fields := []terminal.Field{
		{"OWNER ID", o.OwnerID}, {"EXTERNAL ID", o.ExternalID}, {"NAME", str(o.Name)}, {"STATE", string(o.State)}, {"PLAN", str(o.Plan)},
		{"CREATED", terminal.Moment(&o.CreatedAt)},
	}
	fields = append(fields, filled(terminal.Field{"TIME ZONE", str(o.TimeZone)}, terminal.Field{"ANCHOR DAY", number(o.AnchorDay)})...)
	for _, name := range sortedKeys(o.Metadata) {
		fields = append(fields, terminal.Field{"METADATA " + terminal.Clean(name), o.Metadata[name]})
	}
	return fields
}

// ownerFlags are the flags of what an owner has besides its external ID.
type ownerFlags struct {
	name, plan, zone string
	anchor           int64
	metadata         []string
}

func (o *ownerFlags) add(f *pflag.FlagSet, ofMetadata string) {
	f.StringVar(&o.name, "name", "", "display `name`")
	f.StringVar(&o.plan, "plan", "", "`name` or id of its plan")
	f.StringVar(&o.zone, "time-zone", "", "IANA `name` of the time zone of its calendar windows, such as Europe/Berlin (default: that of the plan)")
	f.Int64Var(&o.anchor, "anchor-day", 0, "`day` on which its months begin, 1 to 28 (default: that of the plan)")
	f.StringArrayVar(&o.metadata, "metadata", nil, "metadata, as `NAME=VALUE`"+ofMetadata+"; may be repeated")
}

func newOwnersCreate(a *app) *cobra.Command {
	o, ref := &ownerFlags{}, ""
	c := &cobra.Command{
		Use: "create EXTERNAL_ID", Short: "Create an owner",
		Long: `Create an owner: a customer or a team. EXTERNAL_ID is your identifier of it, which its
keys have as their owner, and never changes. A key that names an owner that does not exist
creates it, too: with the default plan of the account (keygate account update).`,
		Example: "  keygate owners create customer-42 --name 'Acme Corporation' --plan pro", Args: atMost(1),
	}
	c.Flags().StringVar(&ref, "external-id", "", "your `identifier` of the owner"+alsoArgument)
	o.add(c.Flags(), "")
	c.RunE = func(c *cobra.Command, args []string) error {
		externalID, err := idOf("external-id", ref, args)
		if err != nil {
			return err
		}
		if err := noneEmpty(c); err != nil {
			return err
		}
		in := client.CreateOwnerRequest{ExternalID: externalID, Name: given(o.name), TimeZone: given(o.zone)}
		if in.Plan = given(o.plan); isID(o.plan) {
			in.Plan, in.PlanID = nil, &o.plan
		}
		if c.Flags().Changed("anchor-day") {
			in.AnchorDay = &o.anchor
		}
		if len(o.metadata) > 0 {
			m, err := pairs("metadata", o.metadata)
			if err != nil {
				return err
			}
			in.Metadata = &m
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		made, err := api.CreateOwner(c.Context(), in)
		if err != nil {
			return a.unknownPlan(api, o.plan, err)
		}
		return show(a, made, ownerFields)
	}
	return c
}

func newOwnersList(a *app) *cobra.Command {
	filter := &client.OwnerFilter{}
	c := &cobra.Command{Use: "list", Short: "List owners, newest first", Args: noArgs}
	f := c.Flags()
	f.StringVar(&filter.State, "state", "", "only owners in this `state`: active or suspended")
	f.StringVar(&filter.PlanID, "plan", "", "only owners with the plan of this `name` or id")
	f.StringVarP(&filter.Query, "query", "q", "", "only owners whose name or external ID contains this `text`")
	f.BoolVar(&filter.Usage, "usage", false, "also show the quota of which each owner has used the greatest share")
	columns := []terminal.Column{
		{Name: "OWNER ID", Rank: 3}, {Name: "EXTERNAL ID", Flex: true}, {Name: "NAME", Rank: 2, Flex: true}, {Name: "STATE", State: true}, {Name: "PLAN", Flex: true},
		{Name: "CREATED", Rank: 1},
	}
	return lists(a, c, lister[client.Owner]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Owner, error], error) {
			err := a.identify(api, records{plan: &filter.PlanID})
			return api.Owners(ctx, *filter), err
		},
		shown: func() []terminal.Column {
			if filter.Usage {
				return append(columns, terminal.Column{Name: "TIGHTEST QUOTA", Flex: true}, terminal.Column{Name: "%"}, terminal.Column{Name: " ", Rank: 4, Bar: true})
			}
			return columns
		},
		row: func(o *client.Owner) []string {
			row := []string{o.OwnerID, o.ExternalID, str(o.Name), string(o.State), str(o.Plan), a.When(&o.CreatedAt)}
			if filter.Usage {
				row = append(row, tightestCells(o.TightestQuota)...)
			}
			return row
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "owners", "Create one: keygate owners create EXTERNAL_ID, or keygate keys create --owner EXTERNAL_ID")
		},
	})
}

func newOwnersGet(a *app) *cobra.Command {
	return shows(oneOwner(a), &cobra.Command{Use: "get OWNER_ID", Short: "Show an owner"}, (*client.Client).Owner, ownerFields)
}

func newOwnersUpdate(a *app) *cobra.Command {
	o := &ownerFlags{}
	c := &cobra.Command{
		Use: "update OWNER_ID", Short: "Change an owner; an empty value clears a field",
		Long: `Change an owner. When the command ends, the limits of its plan are in force for all of
its keys. An empty value clears a field, and so does 0 for a number.`,
		Example: "  keygate owners update customer-42 --plan pro",
		PreRunE: func(c *cobra.Command, _ []string) error {
			if !slices.ContainsFunc([]string{"name", "plan", "time-zone", "anchor-day", "metadata"}, c.Flags().Changed) {
				return usagef("nothing to change: give at least one of --name, --plan, --time-zone, --anchor-day and --metadata")
			}
			return nil
		},
	}
	o.add(c.Flags(), ", which replaces all existing metadata")
	return shows(oneOwner(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Owner, error) {
		p, err := o.patch(c)
		if err != nil {
			return nil, err
		}
		changed, err := api.UpdateOwner(ctx, id, p)
		if err != nil {
			return nil, a.unknownPlan(api, o.plan, err)
		}
		return changed, nil
	}, ownerFields)
}

// patch returns the changes that the flags ask for.
func (o *ownerFlags) patch(c *cobra.Command) (p client.OwnerPatch, err error) {
	set := changesOf(c)
	p.Name, p.TimeZone = set.text("name", o.name), set.text("time-zone", o.zone)
	if p.Plan = set.text("plan", o.plan); isID(o.plan) {
		p.Plan, p.PlanID = client.Change[string]{}, set.text("plan", o.plan)
	}
	if c.Flags().Changed("anchor-day") {
		if p.AnchorDay = client.Clear[int64](); o.anchor != 0 {
			p.AnchorDay = client.Set(o.anchor)
		}
	}
	p.Metadata, err = set.metadata(o.metadata)
	return p, err
}

// newOwnersState returns the command that sets the state of an owner.
func newOwnersState(a *app, verb, state, short string) *cobra.Command {
	set := func(api *client.Client, ctx context.Context, id string) (*client.Owner, error) {
		return api.UpdateOwner(ctx, id, client.OwnerPatch{State: client.Set(state)})
	}
	return shows(oneOwner(a), &cobra.Command{Use: verb + " OWNER_ID", Short: short}, set, ownerFields)
}

func newOwnersDelete(a *app) *cobra.Command {
	nothing := func(context.Context, *client.Client, *client.Owner) (lost, error) { return lost{}, nil } // one with active keys is not deleted
	return destroys(oneOwner(a), &cobra.Command{Use: "delete OWNER_ID", Short: "Delete an owner that has no active keys"},
		destroyer[client.Owner]{"delete", (*client.Client).Owner, nothing, (*client.Client).DeleteOwner, ownerLabel, ownerFields})
}
