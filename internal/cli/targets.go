package cli

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

func newTargets(a *app) *cobra.Command {
	return newGroup("targets", "Manage the targets of an upstream",
		newTargetsList(a), newTargetsAdd(a), newTargetsUpdate(a), newTargetsDrain(a), newTargetsRemove(a))
}

// targetCommand is a command on a target of an upstream, which its URL names.
type targetCommand struct {
	*one
	gateway, upstream string
}

func targetOf(a *app) *targetCommand {
	o := &targetCommand{}
	o.one = &one{
		app: a, flag: "target", usage: "`URL` of the target" + alsoArgument,
		find: func(api *client.Client, ref string) (url string, err error) {
			o.gateway, err = a.gatewayID(api, o.gateway)
			return ref, err
		},
	}
	return o
}

// of adds the flags for the gateway and the upstream.
func (o *targetCommand) of(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	c.Flags().StringVar(&o.upstream, "upstream", "default", "`name` of the upstream")
	return c
}

// targetText returns a target in the form that --target takes.
func targetText(t *client.Target) string {
	text := t.URL
	if t.Weight != 1 {
		text += ",weight=" + strconv.FormatInt(t.Weight, 10)
	}
	if t.Backup {
		text += ",backup"
	}
	if t.Drain {
		text += ",drain"
	}
	if t.Resolve != client.TargetResolveNone {
		text += ",resolve=" + string(t.Resolve)
	}
	return text
}

// targetsText returns targets on one line.
func targetsText(list []client.Target) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = targetText(&list[i])
	}
	return strings.Join(texts, " ")
}

// targetsOf returns the values of --target; nil if there is none.
func targetsOf(texts []string) (any, error) {
	var list []client.TargetInput
	for _, text := range texts {
		parts := strings.Split(text, ",")
		t := client.TargetInput{URL: parts[0]}
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(part, "=")
			switch {
			case name == "weight":
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					return nil, usagef("--target %q: weight must be a whole number", text)
				}
				t.Weight = &n
			case part == "backup":
				t.Backup = new(true)
			case part == "drain":
				t.Drain = new(true)
			case name == "resolve":
				t.Resolve = new(client.TargetInputResolve(value))
			default:
				return nil, usagef("--target %q must be a URL, and then weight=N, backup, drain or resolve=a, separated by commas", text)
			}
		}
		list = append(list, t)
	}
	if list == nil {
		return nil, nil
	}
	return list, nil
}

// listedTarget is a target with its upstream.
type listedTarget struct {
	Upstream string `json:"upstream"`
	client.Target
}

func newTargetsList(a *app) *cobra.Command {
	options, ofGateway, upstream := &client.ListOptions{}, "", ""
	c := &cobra.Command{Use: "list --gateway ID", Short: "List the targets of a gateway, by upstream", Args: atMost(1)}
	c.Flags().StringVar(&ofGateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	c.Flags().StringVar(&upstream, "upstream", "", "only targets of the upstream with this `name`")
	return lists(a, c, lister[listedTarget]{
		options: options, check: optionalGateway(&ofGateway),
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[listedTarget, error], error) {
			id, err := a.gatewayID(api, ofGateway)
			if err != nil || upstream == "" {
				return targetsIn(api.Upstreams(ctx, id, *options)), err
			}
			u, err := api.Upstream(ctx, id, upstream)
			if err != nil {
				return nil, err
			}
			return targetsIn(func(yield func(client.Upstream, error) bool) { yield(*u, nil) }), nil
		},
		columns: []terminal.Column{{Name: "UPSTREAM"}, {Name: "TARGET", Flex: true}, {Name: "WEIGHT"}, {Name: "BACKUP", Rank: 1}, {Name: "DRAIN", Rank: 1}, {Name: "RESOLVE", Rank: 1}},
		row: func(t *listedTarget) []string {
			return []string{t.Upstream, t.URL, strconv.FormatInt(t.Weight, 10), yesNo(t.Backup), yesNo(t.Drain), string(t.Resolve)}
		},
		empty: always("No targets."),
	})
}

// targetsIn returns the targets of upstreams.
func targetsIn(upstreams iter.Seq2[client.Upstream, error]) iter.Seq2[listedTarget, error] {
	return func(yield func(listedTarget, error) bool) {
		for u, err := range upstreams {
			if err != nil {
				yield(listedTarget{}, err)
				return
			}
			for _, t := range u.Targets {
				if !yield(listedTarget{u.Name, t}, nil) {
					return
				}
			}
		}
	}
}

const resolveUsage = "how the name in the URL is looked up: `none` at each connect, a or srv every refresh, for its addresses"

func newTargetsAdd(a *app) *cobra.Command {
	o, in := targetOf(a), client.AddTargetRequest{}
	var weight int64
	var backup bool
	var resolve, key string
	c := o.of(&cobra.Command{
		Use: "add --gateway ID URL", Short: "Add a target to an upstream",
		Long: `Add a target to an upstream. If the upstream has headers or a client key, they are given
again, unless a certificate for its host proves that the target is the same service.`,
		Example: "  keygate targets add --gateway orders https://10.0.0.3:8443 --weight 2",
		PreRunE: func(c *cobra.Command, _ []string) error {
			set := c.Flags()
			if set.Changed("weight") {
				in.Weight = &weight
			}
			if set.Changed("backup") {
				in.Backup = &backup
			}
			if set.Changed("resolve") {
				in.Resolve = new(client.AddTargetRequestResolve(resolve))
			}
			var err error
			if in.Headers, err = a.headersAgain(set, "header"); err != nil {
				return err
			}
			ofChecks, err := a.headersAgain(set, healthHeaderFlag)
			if err != nil {
				return err
			}
			if ofChecks != nil {
				in.Health = &client.TargetHealthInput{Headers: ofChecks}
			}
			if key == "" {
				return nil
			}
			content, err := a.ReadInput(key)
			in.ClientKey = new(string(content))
			return err
		},
	})
	f := c.Flags()
	f.Int64Var(&weight, "weight", 1, "`share` of the requests, compared with the weights of the other targets")
	f.BoolVar(&backup, "backup", false, "let the target take part only while no other one does")
	f.StringVar(&resolve, "resolve", "none", resolveUsage)
	settingFlag(f, gateway.KindHeaders, gateway.Flag{Name: "header", Usage: "header of the upstream, given again, as `NAME=VALUE`; may be repeated"}, false)
	settingFlag(f, gateway.KindHeaders, gateway.Flag{Name: healthHeaderFlag, Usage: "header of the upstream's checks, given again, as `NAME=VALUE`; may be repeated"}, false)
	f.StringVar(&key, "client-key", "", "`file` with the private key of the client certificate, given again, or - for standard input")
	return shows(o.one, c, func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
		in.URL = url
		return api.AddTarget(ctx, o.gateway, o.upstream, in)
	}, upstreamFields)
}

// headersAgain returns the headers that a flag and its file give; nil if neither is given.
func (a *app) headersAgain(f *pflag.FlagSet, flag string) (*map[string]string, error) {
	if !f.Changed(flag) && !f.Changed(flag+headersFileFlag) {
		return nil, nil
	}
	given, err := a.headersOf(f, flag)
	return &given, err
}

func newTargetsUpdate(a *app) *cobra.Command {
	o, p := targetOf(a), client.TargetPatch{}
	var weight int64
	var backup, drain bool
	var resolve string
	c := o.of(&cobra.Command{
		Use: "update --gateway ID TARGET", Short: "Change the weight of a target, whether it takes part, or how its name is looked up",
		Example: "  keygate targets update --gateway orders https://10.0.0.3:8443 --weight 5 --backup=false",
		PreRunE: func(c *cobra.Command, _ []string) error {
			set := c.Flags()
			if set.Changed("weight") {
				p.Weight = client.Set(weight)
			}
			if set.Changed("backup") {
				p.Backup = client.Set(backup)
			}
			if set.Changed("drain") {
				p.Drain = client.Set(drain)
			}
			if set.Changed("resolve") {
				p.Resolve = client.Set(resolve)
			}
			if p == (client.TargetPatch{}) {
				return usagef("nothing to change: give at least one of --weight, --backup, --drain and --resolve")
			}
			return nil
		},
	})
	f := c.Flags()
	f.Int64Var(&weight, "weight", 1, "`share` of the requests, compared with the weights of the other targets")
	f.BoolVar(&backup, "backup", false, "let the target take part only while no other one does")
	f.BoolVar(&drain, "drain", false, "take the target away, or with --drain=false let it take part again")
	f.StringVar(&resolve, "resolve", "none", resolveUsage)
	return shows(o.one, c, func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
		return api.UpdateTarget(ctx, o.gateway, o.upstream, url, p)
	}, upstreamFields)
}

func newTargetsDrain(a *app) *cobra.Command {
	o := targetOf(a)
	c := o.of(&cobra.Command{
		Use: "drain --gateway ID TARGET", Short: "Take a target away: it gets no more requests",
		Long: "Take a target away: once the command has returned, it gets no more requests.\nkeygate targets update --drain=false lets it take part again.",
	})
	return shows(o.one, c, func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
		return api.UpdateTarget(ctx, o.gateway, o.upstream, url, client.TargetPatch{Drain: client.Set(true)})
	}, upstreamFields)
}

func newTargetsRemove(a *app) *cobra.Command {
	o := targetOf(a)
	target := ""
	return o.of(destroys(o.one, &cobra.Command{Use: "remove --gateway ID TARGET", Short: "Remove a target from an upstream"}, destroyer[client.Upstream]{
		"remove",
		func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
			target = url
			return api.Upstream(ctx, o.gateway, o.upstream)
		},
		func(context.Context, *client.Client, *client.Upstream) (lost, error) { return lost{}, nil },
		func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
			target = url
			return api.DeleteTarget(ctx, o.gateway, o.upstream, url)
		},
		func(u *client.Upstream) string { return "target " + target + " of " + upstreamLabel(u) }, upstreamFields,
	}))
}
