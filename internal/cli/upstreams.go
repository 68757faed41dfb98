package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

func newUpstreams(a *app) *cobra.Command {
	return newGroup("upstreams", "Manage the upstreams of a gateway: services with one or more targets",
		newUpstreamsList(a), newUpstreamsGet(a), newUpstreamsSet(a), newUpstreamsDelete(a))
}

// upstreamCommand is a command on an upstream of a gateway.
type upstreamCommand struct {
	*one
	gateway string
}

func upstreamOf(a *app) *upstreamCommand {
	o := &upstreamCommand{}
	o.one = &one{
		app: a, flag: "upstream", usage: "`name` of the upstream (default: default)" + alsoArgument, optional: true,
		find: func(api *client.Client, ref string) (name string, err error) {
			o.gateway, err = a.gatewayID(api, o.gateway)
			return orDefaultUpstream(ref), err
		},
	}
	return o
}

func orDefaultUpstream(name string) string {
	if name == "" {
		return gateway.DefaultUpstream
	}
	return name
}

// gatewayFlag adds the flag for the gateway.
func (o *upstreamCommand) gatewayFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	return c
}

// reader returns what reads the upstream, in the form of the client's methods.
func (o *upstreamCommand) reader() func(*client.Client, context.Context, string) (*client.Upstream, error) {
	return func(api *client.Client, ctx context.Context, name string) (*client.Upstream, error) {
		return api.Upstream(ctx, o.gateway, name)
	}
}

func upstreamLabel(u *client.Upstream) string { return "upstream " + u.Name }

// upstreamFields returns what a table shows of an upstream. Settings that cannot be shown are replaced by the error.
func upstreamFields(u *client.Upstream) []terminal.Field {
	settings, err := settingFields(u, gateway.UpstreamSettings())
	if err != nil {
		settings = []terminal.Field{{"SETTINGS", err.Error()}}
	}
	fields := []terminal.Field{{"NAME", u.Name}}
	for _, f := range settings {
		switch {
		case f[0] == "TARGET":
			for i := range u.Targets {
				fields = append(fields, terminal.Field{"TARGET", targetText(&u.Targets[i])})
			}
		case f[1] != "":
			fields = append(fields, f)
		}
	}
	return append(fields, statusFields(u)...)
}

func newUpstreamsList(a *app) *cobra.Command {
	options, ofGateway := &client.ListOptions{}, ""
	c := &cobra.Command{Use: "list --gateway ID", Short: "List the upstreams of a gateway", Args: atMost(1)}
	c.Flags().StringVar(&ofGateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	return lists(a, c, lister[client.Upstream]{
		options: options, check: optionalGateway(&ofGateway),
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Upstream, error], error) {
			id, err := a.gatewayID(api, ofGateway)
			return api.Upstreams(ctx, id, *options), err
		},
		columns: []terminal.Column{{Name: "NAME"}, {Name: "TARGETS", Flex: true}, {Name: "BALANCE", Rank: 1}, {Name: "HOST", Rank: 2}, {Name: "TIMEOUT", Rank: 3}},
		row: func(u *client.Upstream) []string {
			return []string{u.Name, targetsText(u.Targets), string(u.Balance), u.Host, str(u.Timeout)}
		},
		empty: always("No upstreams."),
	})
}

func newUpstreamsGet(a *app) *cobra.Command {
	o := upstreamOf(a)
	return o.gatewayFlag(shows(o.one, &cobra.Command{Use: "get --gateway ID UPSTREAM", Short: "Show an upstream"}, o.reader(), upstreamFields))
}

func newUpstreamsDelete(a *app) *cobra.Command {
	o := upstreamOf(a)
	o.optional = false
	return o.gatewayFlag(destroys(o.one, &cobra.Command{Use: "delete --gateway ID UPSTREAM", Short: "Delete an upstream that no route names"}, destroyer[client.Upstream]{
		"delete", o.reader(),
		func(_ context.Context, _ *client.Client, u *client.Upstream) (lost, error) {
			return lost{records: []string{terminal.NumberOf(int64(len(u.Targets)), "target", "targets")}}, nil
		},
		func(api *client.Client, ctx context.Context, name string) (*client.Upstream, error) {
			return api.DeleteUpstream(ctx, o.gateway, name)
		},
		upstreamLabel, upstreamFields,
	}))
}

func newUpstreamsSet(a *app) *cobra.Command {
	o := upstreamOf(a)
	var patch client.UpstreamPatch
	c := o.gatewayFlag(&cobra.Command{
		Use: "set --gateway ID UPSTREAM", Short: "Create an upstream, or change it; an empty value restores a default",
		Long: `Create an upstream, or change what the flags give of one that exists. An empty value restores
a default. --target replaces all targets: keygate targets changes one.

The headers, those of checks and the client key of an upstream are for the service that they were given for. A
change that adds an address, or changes the host or the authorities, gives them again.`,
		Example: "  keygate upstreams set --gateway orders next --target https://next.internal\n" +
			"  keygate upstreams set --gateway orders default --target https://10.0.0.1:8443,weight=2 --target https://10.0.0.2:8443 --host orders.internal\n" +
			"  keygate upstreams set --gateway orders default --balance hash --hash-on header:X-Session --retries attempts=2,on=connect+reset+503\n" +
			"  keygate upstreams set --gateway orders default --health path=/healthz,interval=5s",
		PreRunE: func(c *cobra.Command, _ []string) error {
			settings, err := o.settingsOf(c.Flags(), gateway.UpstreamSettings())
			if err == nil && len(settings) == 0 {
				err = usagef("nothing to change: give a flag such as --target")
			}
			if err != nil {
				return err
			}
			return putSettings(settings, &patch)
		},
	})
	settingFlags(c.Flags(), gateway.UpstreamSettings())
	return shows(o.one, c, func(api *client.Client, ctx context.Context, name string) (*client.Upstream, error) {
		u, err := api.UpdateUpstream(ctx, o.gateway, name, patch)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound { // there is none, or no gateway
			if patch.Targets.IsZero() { // only a target can create one
				return nil, fmt.Errorf("%w, or give --target to create it", err)
			}
			return api.PutUpstream(ctx, o.gateway, name, patch)
		}
		return u, err
	}, upstreamFields)
}

// ejectionOf returns the value of --ejection; nil for the default.
func ejectionOf(text string) (any, error) {
	switch text {
	case "":
		return nil, nil
	case "false":
		return false, nil
	}
	object, err := partsOf("ejection", text, map[string]partKind{"failures": numberPart, "on": listPart, "base": textPart, "max": textPart, "max-percent": numberPart})
	if object["failures"] == int64(0) { // the client takes 0 for the default
		return nil, usagef("--ejection: failures must be from 1 to 1000; --ejection false turns ejections off")
	}
	return orNothing(object, err)
}

// retriesOf returns the value of --retries; nil for the default.
func retriesOf(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	return orNothing(partsOf("retries", text, map[string]partKind{"attempts": numberPart, "budget-percent": numberPart, "on": listPart, "idempotency-key": switchPart}))
}

// orNothing returns an object as the value of a setting.
func orNothing(object map[string]any, err error) (any, error) { return object, err }

// healthHeaderFlag is the flag of the headers of checks.
const healthHeaderFlag = "health-header"

// healthOf returns the value of --health, with the headers beside it; nil for no checks.
func (a *app) healthOf(f *pflag.FlagSet) (any, error) {
	withHeaders := f.Changed(healthHeaderFlag) || f.Changed(healthHeaderFlag+headersFileFlag)
	text, err := f.GetString("health")
	switch {
	case err != nil:
		return nil, err
	case text == "" && withHeaders:
		return nil, usagef("--%s needs --health, which replaces the checks: give that too", healthHeaderFlag)
	case text == "":
		return nil, nil
	}
	health, err := partsOf("health", text, map[string]partKind{
		"path": textPart, "grpc": emptyPart, "tcp": switchPart, "interval": textPart, "timeout": textPart,
		"unhealthy": numberPart, "healthy": numberPart, "statuses": statusesPart,
	})
	if err == nil && withHeaders {
		health["headers"], err = a.headersOf(f, healthHeaderFlag)
	}
	return orNothing(health, err)
}

// partKind is a kind of parts of a flag.
type partKind int

const (
	textPart     partKind = iota
	numberPart            // a whole number
	listPart              // values with + between them
	statusesPart          // a text, in which + stands for a comma
	switchPart            // true, false, or nothing for true
	emptyPart             // a text, which may be left out
)

// partsOf returns the object that a flag gives as NAME=VALUE, separated by commas. known has the kinds of the names.
func partsOf(flag, text string, known map[string]partKind) (map[string]any, error) {
	object := map[string]any{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		kind, isKnown := known[name]
		field := strings.ReplaceAll(name, "-", "_")
		switch {
		case !isKnown:
			return nil, usagef("--%s has no part %q: use %s", flag, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case kind == switchPart && (!hasValue || value == "true" || value == "false"):
			object[field] = value != "false"
		case kind == emptyPart:
			object[field] = value
		case !hasValue || kind == switchPart:
			return nil, usagef("--%s: %s must have a value, as in %[2]s=1", flag, name)
		case kind == listPart:
			object[field] = strings.FieldsFunc(value, func(r rune) bool { return r == '+' })
		case kind == statusesPart:
			object[field] = strings.ReplaceAll(value, "+", ",")
		case kind == numberPart:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, usagef("--%s: %s must be a whole number, not %q", flag, name, value)
			}
			object[field] = n
		default:
			object[field] = value
		}
	}
	return object, nil
}

// ejectionText returns an ejection in the form that --ejection takes.
func ejectionText(e client.Ejection) string {
	if e.Off {
		return "false"
	}
	return fmt.Sprintf("failures=%d,on=%s,base=%s,max=%s,max-percent=%s", e.Failures, strings.Join(e.On, "+"), e.Base, e.Max, number(e.MaxPercent))
}

// retriesText returns retries in the form that --retries takes.
func retriesText(r client.Retries) string {
	text := fmt.Sprintf("attempts=%d,budget-percent=%d,on=%s", r.Attempts, r.BudgetPercent, strings.Join(r.On, "+"))
	if r.IdempotencyKey {
		text += ",idempotency-key"
	}
	return text
}

// healthText returns checks in the form that --health takes, with the names of their headers; "" for none.
func healthText(h *client.Health) string {
	if h == nil {
		return ""
	}
	kind := "tcp"
	switch {
	case h.Path != nil:
		kind = "path=" + *h.Path
	case h.Grpc != nil:
		kind = "grpc=" + *h.Grpc
	}
	text := fmt.Sprintf("%s,interval=%s,timeout=%s,unhealthy=%d,healthy=%d", kind, h.Interval, h.Timeout, h.Unhealthy, h.Healthy)
	if h.Statuses != nil {
		text += ",statuses=" + strings.ReplaceAll(*h.Statuses, ",", "+")
	}
	if len(h.Headers) > 0 {
		text += " (headers " + strings.Join(sortedKeys(h.Headers), ", ") + ")"
	}
	return text
}
