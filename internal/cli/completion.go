package cli

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/requestlog"
)

// Bounds of a completion, which a person waits for.
const (
	completionTimeout = 1500 * time.Millisecond
	maxCompletions    = 100 // records that are offered
)

// values returns the possible values at the position to complete, each followed by a tab and a
// description if it has one.
type values func(a *app, c *cobra.Command, typed string) []string

// serverValues is values from a server.
type serverValues func(a *app, api *client.Client, c *cobra.Command, typed string) []string

// fromServer returns the values of the server that the command calls, if any.
func fromServer(v serverValues) values {
	return func(a *app, c *cobra.Command, typed string) []string {
		api, err := a.connect()
		if err != nil {
			return nil
		}
		return v(a, api, c, typed)
	}
}

// addCompletion adds the completion of values to the flags and arguments of c and of the
// commands below it. If the server does not return its values in time, they are left out without a
// message.
func (a *app) addCompletion(c *cobra.Command) {
	add := func(f *pflag.Flag) {
		complete, known := flagValues(c, f.Name)
		if name, _ := pflag.UnquoteUsage(f); !known && (name == "file" || name == "directory") {
			return // by the names of files
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, a.completion(complete)) // an error says that it has one
	}
	c.LocalNonPersistentFlags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	switch {
	case strings.Contains(c.Use, "FILE|DIR"):
		c.ValidArgsFunction = configNames
	case !c.HasSubCommands() && !strings.Contains(c.Use, "FILE"):
		complete := a.completion(argumentValues(c))
		c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			if all := c.Flags().Lookup("all"); all != nil && all.Changed { // config export --all
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			return complete(c, args, typed)
		}
	}
	for _, sub := range c.Commands() {
		a.addCompletion(sub)
	}
}

// configNames completes the names of configuration files and directories.
func configNames(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.HasSuffix(c.Use, "...") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// completion returns cobra's form of complete, which may be nil.
func (a *app) completion(complete values) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if complete == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		a.Context, a.completing = ctx, true
		var fit []string
		for _, v := range complete(a, c, typed) {
			if strings.HasPrefix(v, typed) {
				fit = append(fit, v)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// fixed returns values that are always the same.
func fixed(all ...string) values { return func(*app, *cobra.Command, string) []string { return all } }

// separated returns values that may be given several times, separated by commas.
func separated(all ...string) values {
	return func(_ *app, _ *cobra.Command, typed string) []string {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		out := make([]string, len(all))
		for i, v := range all {
			out[i] = before + v
		}
		return out
	}
}

// flagValues returns the values of a flag. known is false if any text may be its value.
func flagValues(c *cobra.Command, flag string) (v values, known bool) {
	v, known = map[string]values{
		"output":  fixed(terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatID, terminal.FormatName),
		"color":   fixed(terminal.ColourAuto, terminal.ColourAlways, terminal.ColourNever),
		"context": contextNames, "gateway": fromServer(gatewayNames), "key": fromServer(keyNames), "key-id": fromServer(keyNames), "actor": fromServer(keyNames),
		"route-id": fromServer(routeNames), "webhook-id": fromServer(webhookNames), "delivery-id": fromServer(deliveryIDs), "event-id": fromServer(eventIDs),
		"scope": fixed("read\tGET and HEAD", "write\tread, and the other methods except DELETE", "admin\teverything"),
		"level": fixed("gateway\tfor calls through gateways", "account\tfor the management API"),
		"plan":  plansOf(c), "default-plan": fromServer(planNames), "owner": fromServer(ownerNames), "issuer-id": fromServer(issuerNames), "certificate-id": fromServer(certificateNames), "algorithm": fixed(algorithms()...),
		"events": separated(allEvents()...), "type": fixed(allEvents()...), "event-type": fixed(allEvents()...),
		"interval": intervalsOf(c), "meter": fixed("requests", "bytes_in", "bytes_out"), "group-by": fixed("gateway", "route", "key", "status", "upstream", "target", "side", "subject"),
		"kind": kindsOf(c), "status-provider": fixed("github", "gitlab", "gitea"), "outcome": fixed("success", "key_invalid", "key_expired", "scope_insufficient"),
		"auth": fixed("key\ta key is required", "none\ta public route"), "per": fixed("key\teach key has its own limit", "address\teach client address has its own limit"),
		"method": separated(gateway.EverydayMethods()...), "cors-method": separated(gateway.EverydayMethods()...), "status": fixed(statuses()...), "format": formatsOf(c), "result": fixed(requestlog.Results()...),
		"state": statesOf(c), "log-level": fixed("debug", "info", "warn", "error"), "log-format": fixed("json", "text"),
		"upstream-host": fixed("target\tthat of the URL", "preserve\tthe client's"), "host": fixed("target\tthat of the URL", "preserve\tthe client's"),
		"upstream": fromServer(upstreamNames), "hash-on": fixed("principal\tthe caller's key", "address\tthe client's address", "header:\ta header of the request"),
	}[flag]
	if choices := settingChoices()[flag]; choices != nil {
		return fixed(choices...), true
	}
	return v, known
}

// settingChoices returns the choices of gateways' settings that have some, by the names of their flags. They are
// collected once: every command asks for those of every flag.
var settingChoices = sync.OnceValue(func() map[string][]string { //nolint:gochecknoglobals // constant
	all := map[string][]string{}
	for _, s := range slices.Concat(gateway.Settings(), gateway.UpstreamSettings()) {
		if all[s.Flag.Name] == nil && s.Choices != nil {
			all[s.Flag.Name] = s.Choices
		}
	}
	return all
})

// statuses returns the statuses of the requests that keygate explain lists.
func statuses() []string {
	return []string{
		"401\tno valid key", "403\tthe key does not allow it", "404\tno such route or gateway", "405\tno such method", "429\ta limit is used up",
		"500\tfailed", "502\tthe upstream cannot be reached", "503\tnot now", "504\tthe upstream did not respond in time",
	}
}

// plansOf returns the values of --plan: the plan of an account is another thing.
func plansOf(c *cobra.Command) values {
	if parent := c.Parent(); parent != nil && strings.HasPrefix(parent.Name(), "account") {
		return fixed("starter", "platform", "scale")
	}
	return fromServer(planNames)
}

// kindsOf returns the values of --kind.
func kindsOf(c *cobra.Command) values {
	if c.Parent() != nil && c.Parent().Name() == "repo" {
		return fixed("spec\tan OpenAPI document", "config\ta configuration file")
	}
	return fixed("authentication", "management")
}

// isOfUsage reports whether c is a command on usage records.
func isOfUsage(c *cobra.Command) bool { return c.Parent() != nil && c.Parent().Name() == "usage" }

// intervalsOf returns the values of --interval.
func intervalsOf(c *cobra.Command) values {
	if isOfUsage(c) {
		return fixed("1h", "1d")
	}
	return fixed("1m", "1h", "1d")
}

// formatsOf returns the values of --format.
func formatsOf(c *cobra.Command) values {
	if isOfUsage(c) {
		return fixed(client.FormatJSONL, client.FormatCSV, client.FormatCloudEvents)
	}
	return fixed(client.FormatJSONL, client.FormatCSV)
}

// statesOf returns the values of --state.
func statesOf(c *cobra.Command) values {
	switch parent := c.Parent(); {
	case parent == nil:
		return nil
	case parent.Name() == "keys":
		return fixed("active", "expired", "revoked")
	case isOfUsage(c):
		return fixed("final", "open")
	case parent.Name() == "accounts" || parent.Name() == "owners":
		return fixed("active", "suspended")
	case parent.Name() == "deliveries":
		return fixed("pending", "retry_scheduled", "delivered", "failed")
	default:
		return fixed("active", "disabled")
	}
}

// argumentValues returns the values of the first argument of c; nil if any text may stand
// there.
func argumentValues(c *cobra.Command) values {
	path := strings.TrimPrefix(c.CommandPath(), "keygate ")
	switch path {
	case "routes list", "limits show", "limits simulate", "config export", "spec get":
		return fromServer(gatewayNames)
	case "context use", "context set", "context delete":
		return contextNames
	case "try", "api":
		return fixed(gateway.EverydayMethods()...)
	}
	for placeholder, v := range map[string]serverValues{
		"ACCOUNT_ID": accountNames, "GATEWAY_ID": gatewayNames, "KEY_ID": keyNames, "ROUTE_ID": routeNames, "WEBHOOK_ID": webhookNames, "PLAN_ID": planNames, "OWNER_ID": ownerNames, "ISSUER_ID": issuerNames, "CERTIFICATE_ID": certificateNames,
		"UPSTREAM": upstreamNames, "TARGET": targetURLs,
		"DELIVERY_ID": deliveryIDs, "EVENT_ID": eventIDs, "REQUEST_ID": requestIDs,
	} {
		if _, argument, _ := strings.Cut(c.Use, " "); strings.HasSuffix(strings.Trim(argument, "[]"), placeholder) {
			return fromServer(v)
		}
	}
	return nil
}

func contextNames(a *app, _ *cobra.Command, _ string) (names []string) {
	f, err := a.readContexts()
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		names = append(names, described(name, f.Contexts[name].URL))
	}
	return names
}

// described joins a value and its description.
func described(value, about string) string { return value + "\t" + terminal.Clean(about) }

// offer returns the names and then the identifiers of the first records of a list. A record without
// a name, or with a name that a shell would split, is offered by its identifier alone.
func offer[T any](records iter.Seq2[T, error], describe func(*T) (id, name, about string)) (names []string) {
	var ids []string
	for r, err := range firstOf(maxCompletions, records) {
		if err != nil {
			break
		}
		id, name, about := describe(&r)
		if name != "" && name == terminal.Clean(name) && !strings.ContainsAny(name, " \t:'\"\\$`") {
			names = append(names, described(name, id+" "+about))
		}
		ids = append(ids, described(id, strings.TrimSpace(name+" "+about)))
	}
	return append(names, ids...)
}

func gatewayNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Gateways(a.Context, client.ListOptions{}), func(g *client.Gateway) (id, name, about string) {
		return g.GatewayID, g.Name, g.Hostname
	})
}

// keyNames offers the active keys, since others can hardly be used for anything.
func keyNames(a *app, api *client.Client, _ *cobra.Command, typed string) []string {
	filter := client.KeyFilter{State: "active"}
	if beginning := min(len(typed), len("key_")); typed[:beginning] != "key_"[:beginning] {
		filter.Query = typed // not an identifier
	}
	return offer(api.Keys(a.Context, filter), func(k *client.Key) (id, name, about string) {
		return k.KeyID, k.Name, k.KeyPrefix + " " + k.Scope
	})
}

func routeNames(a *app, api *client.Client, c *cobra.Command, _ string) []string {
	gateway, err := gatewayOf(a, api, c)
	if err != nil {
		return nil
	}
	return offer(api.Routes(a.Context, gateway, client.ListOptions{}), func(r *client.Route) (id, name, about string) {
		return r.RouteID, r.Path, strings.Join(r.Methods, ",")
	})
}

// gatewayOf returns the gateway that the words of a command name.
func gatewayOf(a *app, api *client.Client, c *cobra.Command) (string, error) {
	given := ""
	if f := c.Flags().Lookup("gateway"); f != nil {
		given = f.Value.String()
	}
	return a.gatewayID(api, given)
}

func upstreamNames(a *app, api *client.Client, c *cobra.Command, _ string) []string {
	gateway, err := gatewayOf(a, api, c)
	if err != nil {
		return nil
	}
	var names []string
	for u, err := range api.Upstreams(a.Context, gateway, client.ListOptions{}) {
		if err != nil {
			return nil
		}
		names = append(names, described(u.Name, targetsText(u.Targets)))
	}
	return names
}

func targetURLs(a *app, api *client.Client, c *cobra.Command, _ string) []string {
	gateway, err := gatewayOf(a, api, c)
	if err != nil {
		return nil
	}
	u, err := api.Upstream(a.Context, gateway, c.Flags().Lookup("upstream").Value.String())
	if err != nil {
		return nil
	}
	var urls []string
	for i := range u.Targets {
		urls = append(urls, u.Targets[i].URL)
	}
	return urls
}

func accountNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Accounts(a.Context, client.AccountFilter{}), func(one *client.Account) (id, name, about string) {
		return one.AccountID, one.Name, string(one.State)
	})
}

func planNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Plans(a.Context, client.PlanFilter{}), func(p *client.Plan) (id, name, about string) {
		return p.PlanID, p.Name, str(p.Title)
	})
}

func issuerNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Issuers(a.Context, client.IssuerFilter{}), func(i *client.Issuer) (id, name, about string) {
		return i.IssuerID, i.Name, i.Issuer
	})
}

func certificateNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Certificates(a.Context, client.CertificateFilter{}), func(c *client.Certificate) (id, name, about string) {
		return c.CertificateID, c.Hostname, string(c.State)
	})
}

// algorithms returns the signature algorithms of tokens.
func algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"}
}

func ownerNames(a *app, api *client.Client, _ *cobra.Command, typed string) []string {
	filter := client.OwnerFilter{Query: typed}
	if beginning := min(len(typed), len("own_")); typed[:beginning] == "own_"[:beginning] {
		filter.Query = "" // the beginning of an identifier
	}
	return offer(api.Owners(a.Context, filter), func(o *client.Owner) (id, name, about string) {
		return o.OwnerID, o.ExternalID, str(o.Name)
	})
}

func webhookNames(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Webhooks(a.Context, client.ListOptions{}), func(w *client.Webhook) (id, name, about string) {
		return w.WebhookID, "", w.URL + " " + string(w.State)
	})
}

func deliveryIDs(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Deliveries(a.Context, client.DeliveryFilter{}), func(d *client.Delivery) (id, name, about string) {
		return d.DeliveryID, "", d.EventType + " " + string(d.State) + " " + terminal.Moment(&d.CreatedAt)
	})
}

func eventIDs(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Events(a.Context, client.EventFilter{}), func(e *client.Event) (id, name, about string) {
		return e.ID, "", e.Type + " " + terminal.Moment(&e.CreatedAt)
	})
}

func requestIDs(a *app, api *client.Client, _ *cobra.Command, _ string) []string {
	return offer(api.Requests(a.Context, client.RequestFilter{}), func(r *client.LoggedRequest) (id, name, about string) {
		return r.RequestID, "", why(&r.Decision) + " " + r.Method + " " + r.Path
	})
}
