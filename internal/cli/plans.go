package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/plan"
)

func newPlans(a *app) *cobra.Command {
	return newGroup("plans", "Manage plans: limits that many keys and owners share",
		newPlansCreate(a), newPlansList(a), newPlansGet(a), newPlansUpdate(a), newPlansDelete(a))
}

func planLabel(p *client.Plan) string { return "plan " + withID(p.Name, p.PlanID) }

// planID returns the identifier of the plan with an identifier or name.
func (a *app) planID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	for p, err := range api.Plans(a.Context, client.PlanFilter{Name: ref}) {
		if err != nil {
			return "", err
		}
		return p.PlanID, nil
	}
	remedy, err := a.nearPlan(api, ref)
	if err != nil {
		return "", err
	}
	return "", &notFoundError{fmt.Sprintf("there is no plan %q: %s", ref, remedy)}
}

// nearPlan returns what to do if there is no plan with a name.
func (a *app) nearPlan(api *client.Client, ref string) (remedy string, err error) {
	var names []string
	for p, err := range firstOf(maxSearched, api.Plans(a.Context, client.PlanFilter{})) {
		if err != nil {
			return "", err
		}
		names = append(names, p.Name)
	}
	near := nearest(ref, names, func(known string) bool { return strings.HasPrefix(known, ref) || strings.HasPrefix(ref, known) })
	switch {
	case near != "":
		return fmt.Sprintf("did you mean %s? keygate plans list shows the names", near), nil
	case len(names) == 0:
		return "there are no plans: create it with keygate plans create " + ref, nil
	}
	return "keygate plans list shows the names", nil
}

// unknownPlan returns err, which a call with the plan returned. If it says that there is no such plan, it says what to do.
func (a *app) unknownPlan(api *client.Client, ref string, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || refused.Field != "plan" && refused.Field != "default_plan" || ref == "" {
		return err
	}
	if _, bad := a.planID(api, ref); errors.As(bad, new(*notFoundError)) {
		return fault.New(fault.ValidationFailed, "%s", bad)
	}
	return err
}

func planFields(p *client.Plan) []terminal.Field {
	fields := []terminal.Field{{"PLAN ID", p.PlanID}, {"NAME", p.Name}, {"TITLE", str(p.Title)}}
	if len(p.Limits) == 0 {
		fields = append(fields, terminal.Field{"LIMITS", "none"})
	}
	for i := range p.Limits {
		fields = append(fields, terminal.Field{"LIMIT " + p.Limits[i].Name, planLimitText(&p.Limits[i])})
	}
	return append(fields, terminal.Field{"TIME ZONE", p.TimeZone}, terminal.Field{"ANCHOR DAY", strconv.FormatInt(p.AnchorDay, 10)},
		terminal.Field{"CREATED", terminal.Moment(&p.CreatedAt)})
}

// planFlags are the flags of what a plan has besides its name.
type planFlags struct {
	*app
	title, zone, file string
	anchor            int64
	limits            []string

	whole *plan.FilePlan // the plan of --file
}

func (o *planFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.title, "title", "", "`title` for people")
	f.StringArrayVar(&o.limits, "limit", nil, planLimitHelp)
	f.StringVar(&o.zone, "time-zone", "", "IANA `name` of the time zone of its calendar windows, such as Europe/Berlin (default: UTC)")
	f.Int64Var(&o.anchor, "anchor-day", 0, "`day` on which its months begin, 1 to 28 (default: 1)")
	f.StringVar(&o.file, "file", "", "`file` with the plan in YAML or JSON, or - for standard input, in place of other flags")
}

// read reads the file of --file, if it was given.
func (o *planFlags) read(c *cobra.Command) error {
	if o.file == "" {
		return nil
	}
	for _, flag := range []string{"name", "title", "limit", "time-zone", "anchor-day"} {
		if c.Flags().Changed(flag) {
			return usagef("--file has the whole plan: it cannot be used with --%s", flag)
		}
	}
	whole, err := readPart(o.app, o.file, plan.ParsePlan)
	o.whole = whole
	return err
}

// limitsOf returns the limits of the flags or of the file, with the identifiers of their gateways.
func (o *planFlags) limitsOf(api *client.Client) ([]client.PlanLimitInput, error) {
	limits := []client.PlanLimitInput{}
	if o.whole != nil {
		for i := range o.whole.Limits {
			limits = append(limits, apply.PlanLimit(&o.whole.Limits[i], o.whole.Gateways[i]))
		}
	}
	for _, text := range o.limits {
		if text == "" {
			continue // removes them
		}
		l, err := parsePlanLimit(text)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	for i := range limits {
		if limits[i].GatewayID == nil {
			continue
		}
		id, err := o.gatewayID(api, *limits[i].GatewayID)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", limits[i].Name, err)
		}
		limits[i].GatewayID = &id
	}
	return limits, nil
}

// printPlan prints a plan that was created or changed.
func (a *app) printPlan(p *client.Plan) error {
	if err := show(a, p, planFields); err != nil {
		return err
	}
	if p.Warnings != nil {
		a.printWarnings(*p.Warnings)
	}
	return nil
}

// printTriedPlan prints the result of a dry run of an update.
func (a *app) printTriedPlan(p *client.Plan, err error) error {
	if err != nil {
		return err
	}
	if err := a.printPlan(p); err != nil || !a.ForPeople() {
		return err
	}
	a.writePlanEffect(a.Out, p.Effect)
	fmt.Fprintln(a.Out, "Nothing was changed (dry run).")
	return nil
}

func newPlansCreate(a *app) *cobra.Command {
	o, named := &planFlags{app: a}, ""
	c := &cobra.Command{
		Use: "create NAME --limit LIMIT", Short: "Create a plan",
		Long: `Create a plan: a named set of limits that keys, owners and gateways share by reference.

` + aboutPlanLimits + `

With --file, the plan is read from a file, in the form of a plan of a configuration
directory. The file may have its name.`,
		Example: "  keygate plans create free --limit per-minute=60/min\n" +
			"  keygate plans create pro --limit per-minute=6000/min,burst=200/s,per=owner \\\n      --limit 'search=5/s,gateway=orders,route=/search/*'\n" +
			"  keygate plans create starter --limit per-month=quota:100000/month,per=owner,warn-at=50,80,100",
		Args: atMost(1),
	}
	o.add(c.Flags())
	c.Flags().StringVar(&named, "name", "", "`name` of the plan, in place of the argument")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := noneEmpty(c); err != nil {
			return err
		}
		if err := o.read(c); err != nil {
			return err
		}
		name := strings.Join(args, "")
		if name != "" && named != "" {
			return usagef("the plan has two names, %s and --name %s: give one of them", name, named)
		}
		name = cmp.Or(name, named)
		in := client.CreatePlanRequest{Name: name, Title: given(o.title), TimeZone: given(o.zone)}
		if c.Flags().Changed("anchor-day") {
			in.AnchorDay = &o.anchor
		}
		if w := o.whole; w != nil {
			day := int64(w.AnchorDay)
			in.Name, in.Title, in.TimeZone, in.AnchorDay = cmp.Or(w.Name, name), given(w.Title), &w.TimeZone, &day
		}
		switch {
		case in.Name == "":
			return usagef("no name given: give it as the argument, as in keygate plans create free")
		case name != "" && name != in.Name:
			return usagef("the command says %s but the file has the name %s: give only one", name, in.Name)
		}
		api, err := o.connect()
		if err != nil {
			return err
		}
		limits, err := o.limitsOf(api)
		if err != nil {
			return err
		}
		in.Limits = &limits
		p, err := api.CreatePlan(c.Context(), in)
		if err != nil {
			return err
		}
		return a.printPlan(p)
	}
	return c
}

func newPlansList(a *app) *cobra.Command {
	filter := &client.PlanFilter{}
	c := &cobra.Command{Use: "list", Short: "List plans, newest first", Args: noArgs}
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only plans whose name or title contains this `text`")
	return lists(a, c, lister[client.Plan]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Plan, error], error) {
			return api.Plans(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "PLAN ID"}, {Name: "NAME", Flex: true}, {Name: "TITLE", Rank: 2, Flex: true}, {Name: "LIMITS", Flex: true}, {Name: "CREATED", Rank: 1},
		},
		row: func(p *client.Plan) []string {
			return []string{p.PlanID, p.Name, str(p.Title), planLimitsText(p.Limits), a.When(&p.CreatedAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "plans", "Create one: keygate plans create NAME --limit per-minute=600/min")
		},
	})
}

func newPlansGet(a *app) *cobra.Command {
	return shows(onePlan(a), &cobra.Command{Use: "get PLAN_ID", Short: "Show a plan"}, (*client.Client).Plan, planFields)
}

func newPlansUpdate(a *app) *cobra.Command {
	o, name := &planFlags{app: a}, ""
	dryRun, effect := false, false
	c := &cobra.Command{
		Use: "update PLAN_ID", Short: "Change a plan; an empty value clears a field",
		Long: `Change a plan. Its limits are in force for all keys and owners that have it when the
command ends. --limit replaces all of its limits: repeat it for each. An empty value
clears a field, and so does 0 for a number.

` + aboutPlanLimits + `

With --file, everything of the plan is replaced. A name in the file renames the plan.`,
		Example: "  keygate plans update pro --limit per-minute=9000/min,per=owner",
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the plan")
	o.add(c.Flags())
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show what the plan would be, but change nothing")
	effectFlag(c.Flags(), &effect)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if effect && !dryRun {
			return usagef("--effect is for a dry run: give --dry-run too")
		}
		if !slices.ContainsFunc([]string{"name", "title", "limit", "time-zone", "anchor-day", "file"}, c.Flags().Changed) {
			return usagef("nothing to change: give at least one of --name, --title, --limit, --time-zone, --anchor-day and --file")
		}
		if c.Flags().Changed("file") && o.file == "" {
			return usagef("--file is empty: give it a value or omit it")
		}
		return o.read(c)
	}
	record := onePlan(a)
	return record.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		p := client.PlanPatch{Title: changesOf(c).text("title", o.title), TimeZone: changesOf(c).text("time-zone", o.zone)}
		if c.Flags().Changed("name") {
			p.Name = client.Set(name)
		}
		if c.Flags().Changed("anchor-day") {
			if p.AnchorDay = client.Clear[int64](); o.anchor != 0 {
				p.AnchorDay = client.Set(o.anchor)
			}
		}
		if w := o.whole; w != nil {
			p = wholePlan(w)
		}
		if o.whole != nil || c.Flags().Changed("limit") {
			limits, err := o.limitsOf(api)
			if err != nil {
				return err
			}
			p.Limits = client.Set(limits)
		}
		if dryRun {
			return a.printTriedPlan(api.TryPlan(ctx, id, p, effectOptions(effect)...))
		}
		changed, err := api.UpdatePlan(ctx, id, p)
		if err != nil {
			return err
		}
		return a.printPlan(changed)
	})
}

// wholePlan returns the change of everything but the limits.
func wholePlan(w *plan.FilePlan) client.PlanPatch {
	p := client.PlanPatch{Title: client.Clear[string](), TimeZone: client.Set(w.TimeZone), AnchorDay: client.Set(int64(w.AnchorDay))}
	if w.Title != "" {
		p.Title = client.Set(w.Title)
	}
	if w.Name != "" {
		p.Name = client.Set(w.Name)
	}
	return p
}

func newPlansDelete(a *app) *cobra.Command {
	nothing := func(context.Context, *client.Client, *client.Plan) (lost, error) { return lost{}, nil } // one in use is not deleted
	remove := func(api *client.Client, ctx context.Context, id string) (*client.Plan, error) {
		return api.DeletePlan(ctx, id)
	}
	return destroys(onePlan(a), &cobra.Command{Use: "delete PLAN_ID", Short: "Delete a plan that no key, owner or gateway has"},
		destroyer[client.Plan]{"delete", (*client.Client).Plan, nothing, remove, planLabel, planFields})
}
