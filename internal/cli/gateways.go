package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

func newGateways(a *app) *cobra.Command {
	return newGroup("gateways", "Manage gateways",
		newGatewaysCreate(a), newGatewaysList(a), newGatewaysGet(a), newGatewaysUpdate(a), newGatewaysMaintenance(a), newGatewaysDelete(a))
}

type gatewaysCreate struct {
	*app
	spec           string
	refRoot        string
	forwardAll     bool
	allowDuplicate bool
}

func newGatewaysCreate(a *app) *cobra.Command {
	o := &gatewaysCreate{app: a}
	c := &cobra.Command{
		Use:   "create --name NAME --upstream-url URL",
		Short: "Create a gateway in front of a service",
		Example: "  keygate gateways create --name orders --upstream-url https://orders.internal --spec openapi.yaml\n" +
			"  keygate gateways create --name wiki --upstream-url http://127.0.0.1:3000 --forward-everything",
		Args: noArgs,
		RunE: o.run,
	}
	settingFlags(c.Flags(), gateway.Settings())
	c.Flags().StringVar(&o.spec, "spec", "", "`file` with the OpenAPI document to create the routes from, or - for standard input")
	refRootFlag(c.Flags(), &o.refRoot)
	c.Flags().BoolVar(&o.forwardAll, "forward-everything", false, "create one route, /*, which forwards every path and the usual methods of callers with a key")
	c.Flags().BoolVar(&o.allowDuplicate, "allow-duplicate", false, "allow a name that another gateway has")
	return c
}

func (o *gatewaysCreate) run(c *cobra.Command, _ []string) error {
	var missing []error
	for _, s := range gateway.Settings() {
		if s.Required {
			missing = append(missing, required(s.Flag.Name, c.Flags().Lookup(s.Flag.Name).Value.String()))
		}
	}
	if err := errors.Join(missing...); err != nil {
		return usagef("%s", err)
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	if o.forwardAll && o.spec != "" {
		return usagef("--forward-everything and --spec cannot be used together: the document says which routes there are")
	}
	in, err := o.request(c)
	if err != nil {
		return err
	}
	var spec *documentFile
	if o.spec != "" {
		if spec, err = o.readSpec(o.spec, o.refRoot); err != nil {
			return err
		}
		text := string(spec.content)
		in.Spec = &text
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	var before *client.Gateway
	if in.Default != nil && *in.Default {
		before = defaultGateway(c.Context(), api)
	}
	g, err := api.CreateGateway(c.Context(), in)
	if err != nil && spec != nil {
		return o.mistakes(spec, err)
	}
	if err != nil {
		return o.unknownPlan(api, str(in.DefaultPlan), err)
	}
	if err := show(o.app, g, gatewayFields); err != nil {
		return err
	}
	o.printReach(g)
	o.printWhereItAnswers(c.Context(), api, g, before)
	if o.spec == "" && !o.forwardAll {
		o.Say("It has no routes yet: every request gets a 404. To add them: keygate spec push, or keygate routes create.")
	}
	return nil
}

// request returns the creation that the flags describe, without the document.
func (o *gatewaysCreate) request(c *cobra.Command) (in client.CreateGatewayRequest, err error) {
	settings, err := o.settingsOf(c.Flags(), gateway.Settings())
	if err != nil {
		return in, err
	}
	maps.DeleteFunc(settings, func(_ string, value any) bool { return value == nil })
	if o.allowDuplicate {
		in.AllowDuplicate = &o.allowDuplicate
	}
	if o.forwardAll {
		routes := string(gateway.ForwardEverything().Encode())
		in.Config = &routes
	}
	return in, putSettings(settings, &in)
}

// gatewayFields returns what a table shows of a gateway. Settings that cannot be shown are replaced by the error.
func gatewayFields(g *client.Gateway) []terminal.Field {
	settings, err := settingFields(g, gateway.Settings())
	if err != nil {
		settings = []terminal.Field{{"SETTINGS", err.Error()}}
	}
	if g.TargetCount != nil {
		settings = append(settings, terminal.Field{"TARGETS", fmt.Sprintf("%d: see keygate upstreams list --gateway %s", *g.TargetCount, g.Name)})
	}
	return slices.Concat([]terminal.Field{{"GATEWAY ID", g.GatewayID}}, settings,
		[]terminal.Field{{"REVISION", number(g.Revision)}, {"CREATED", terminal.Moment(&g.CreatedAt)}})
}

func globalLimit(l *client.GlobalLimit) string {
	if l == nil {
		return ""
	}
	return join(limitPart("", l.Sustained), limitPart("burst ", l.Burst))
}

func limitPart(name string, p *string) string {
	if p == nil {
		return ""
	}
	return name + *p
}

// join joins the parts that are not empty with commas.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// yesNo returns "yes" or "no".
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number(p *int64) string {
	if p == nil {
		return ""
	}
	return strconv.FormatInt(*p, 10)
}

// upstreamText returns the first target of a gateway, and how many others there are.
func upstreamText(g *client.Gateway) string {
	if g.TargetCount == nil {
		return g.UpstreamURL
	}
	return fmt.Sprintf("%s and %d more", g.UpstreamURL, *g.TargetCount-1)
}

func newGatewaysList(a *app) *cobra.Command {
	filter := &client.GatewayFilter{}
	c := &cobra.Command{Use: "list", Short: "List gateways, newest first", Args: noArgs}
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only gateways whose name, hostname or upstream URL contains this `text`")
	return lists(a, c, lister[client.Gateway]{
		options: &filter.ListOptions,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Gateway, error], error) {
			return api.SearchGateways(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "GATEWAY ID"}, {Name: "NAME", Flex: true}, {Name: "UPSTREAM URL", Flex: true}, {Name: "HOSTNAME", Rank: 2, Flex: true}, {Name: "DEFAULT", Rank: 1},
			{Name: "GLOBAL LIMIT", Rank: 3, Flex: true}, {Name: "REVISION", Rank: 5}, {Name: "CREATED", Rank: 4},
		},
		row: func(g *client.Gateway) []string {
			return []string{
				g.GatewayID, g.Name, upstreamText(g), g.Hostname, yesNo(g.Default), globalLimit(g.GlobalRateLimit), number(g.Revision), a.When(&g.CreatedAt),
			}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "gateways", "Create one: keygate gateways create --name NAME --upstream-url URL")
		},
	})
}

// defaultGatewayUsage is the help for a flag --gateway that may be left out.
const defaultGatewayUsage = "`id`, name or hostname of the gateway (default: that of KEYGATE_GATEWAY or the context, or the only one)"

func newGatewaysGet(a *app) *cobra.Command {
	return shows(oneGateway(a), &cobra.Command{Use: "get GATEWAY_ID", Short: "Show a gateway"},
		(*client.Client).Gateway, gatewayFields)
}

func newGatewaysDelete(a *app) *cobra.Command {
	c := &cobra.Command{Use: "delete GATEWAY_ID", Short: "Delete a gateway with its routes, and revoke the keys restricted to it"}
	return destroys(oneGateway(a), c, gatewayDestroyer())
}

func gatewayDestroyer() destroyer[client.Gateway] {
	remove := func(api *client.Client, ctx context.Context, id string) (*client.Gateway, error) {
		return api.DeleteGateway(ctx, id)
	}
	return destroyer[client.Gateway]{"delete", (*client.Client).Gateway, lostWithGateway, remove, gatewayLabel, gatewayFields}
}

// printReach prints the warnings about the upstream of a gateway that was created or changed.
func (a *app) printReach(g *client.Gateway) {
	if g.Warnings != nil {
		a.printWarnings(*g.Warnings)
	}
}

func newGatewaysUpdate(a *app) *cobra.Command {
	var p client.GatewayPatch
	makesDefault := false
	c := &cobra.Command{
		Use: "update GATEWAY_ID", Short: "Change a gateway; an empty value clears a field",
		Example: "  keygate gateways update gw_01j… --global-rate-limit 6000/min --timeout ''",
		PreRunE: func(c *cobra.Command, _ []string) error {
			settings, err := a.settingsOf(c.Flags(), gateway.Settings())
			if err != nil {
				return err
			}
			if len(settings) == 0 {
				return usagef("nothing to change: give at least one flag of %s --help", c.CommandPath())
			}
			makesDefault = settings["default"] == true
			return putSettings(settings, &p)
		},
	}
	settingFlags(c.Flags(), gateway.Settings())
	c.Flags().BoolVar(&p.AllowDuplicate, "allow-duplicate", false, "allow a new name that another gateway has")
	return shows(oneGateway(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Gateway, error) {
		var before *client.Gateway
		if makesDefault {
			before = defaultGateway(ctx, api)
		}
		g, err := api.UpdateGateway(ctx, id, p)
		if err != nil {
			return nil, a.unknownPlan(api, c.Flags().Lookup("default-plan").Value.String(), err)
		}
		a.printDisplaced(g, before)
		a.printReach(g)
		return g, nil
	}, gatewayFields)
}
