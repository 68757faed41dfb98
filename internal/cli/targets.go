package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

func newTargets(a *app) *cobra.Command {
	return newGroup("targets", "Manage the targets of an upstream",
		newTargetsList(a), newTargetsAdd(a), newTargetsUpdate(a), newTargetsDrain(a), newTargetsReturn(a), newTargetsRemove(a))
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

// listedTarget is a target with its upstream, and its state on each node.
type listedTarget struct {
	Upstream string `json:"upstream"`
	client.Target
	Status []client.TargetStatus `json:"status"`
}

// statesText returns the state of a target, node by node if it differs, with the time of an ejection.
func statesText(list []client.TargetStatus) string {
	words := func(s *client.TargetStatus) string {
		text := string(s.State)
		if s.Reason != nil {
			text += " (" + *s.Reason + ")"
		}
		if s.Until != nil {
			text += " since " + terminal.Moment(&s.Since) + " until " + terminal.Moment(s.Until)
		}
		if s.Degraded {
			text += ", degraded"
		}
		return text
	}
	same := true
	for i := range list {
		same = same && words(&list[i]) == words(&list[0])
	}
	if same && len(list) > 0 {
		return words(&list[0])
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].Node + " " + words(&list[i])
	}
	return strings.Join(texts, "; ")
}

// inFlightText returns what is in flight at a target, node by node if there are several.
func inFlightText(list []client.TargetStatus) string {
	open, nodes := map[string]int64{}, []string{}
	total := int64(0)
	for i := range list {
		s := &list[i]
		if _, known := open[s.Node]; !known {
			nodes = append(nodes, s.Node)
		}
		open[s.Node] += s.InFlight
		total += s.InFlight
	}
	slices.Sort(nodes)
	var texts []string
	for _, node := range nodes {
		if open[node] > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", node, open[node]))
		}
	}
	text := strconv.FormatInt(total, 10)
	if len(nodes) > 1 && total > 0 {
		text += " (" + strings.Join(texts, ", ") + ")"
	}
	return text
}

// statusOf returns the part of a status that is about one target.
func statusOf(u *client.Upstream, url string) []client.TargetStatus {
	list := []client.TargetStatus{}
	if u.Status != nil {
		for _, s := range *u.Status {
			if s.Target == url {
				list = append(list, s)
			}
		}
	}
	return list
}

// statusFields returns the state of the targets of an upstream, those that were removed included.
func statusFields(u *client.Upstream) (fields []terminal.Field) {
	var urls []string
	for i := range u.Targets {
		urls = append(urls, u.Targets[i].URL)
	}
	if u.Status != nil {
		for _, s := range *u.Status {
			if !slices.Contains(urls, s.Target) {
				urls = append(urls, s.Target)
			}
		}
	}
	for _, url := range urls {
		list := statusOf(u, url)
		if len(list) > 0 {
			fields = append(fields, terminal.Field{"STATE", url + ": " + statesText(list) + ", in flight " + inFlightText(list)})
		}
	}
	if u.AllUnhealthy != nil && *u.AllUnhealthy {
		fields = append(fields, terminal.Field{"ALL UNHEALTHY", "yes: requests go to all targets that do not drain"})
	}
	return fields
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
			if err != nil {
				return nil, err
			}
			names := func(yield func(string, error) bool) { yield(upstream, nil) }
			if upstream == "" {
				names = func(yield func(string, error) bool) {
					for u, err := range api.Upstreams(ctx, id, *options) {
						if !yield(u.Name, err) {
							return
						}
					}
				}
			}
			return targetsIn(names, func(name string) (*client.Upstream, error) { return api.Upstream(ctx, id, name) }), nil
		},
		columns: []terminal.Column{{Name: "UPSTREAM"}, {Name: "TARGET", Flex: true}, {Name: "WEIGHT", Rank: 1}, {Name: "BACKUP", Rank: 2}, {Name: "DRAIN", Rank: 1}, {Name: "RESOLVE", Rank: 2}, {Name: "STATE", Flex: true}, {Name: "IN FLIGHT"}},
		row: func(t *listedTarget) []string {
			return []string{t.Upstream, t.URL, strconv.FormatInt(t.Weight, 10), yesNo(t.Backup), yesNo(t.Drain), string(t.Resolve), statesText(t.Status), inFlightText(t.Status)}
		},
		empty: always("No targets."),
	})
}

// targetsIn returns the targets of upstreams, each of which read returns by its name.
func targetsIn(names iter.Seq2[string, error], read func(name string) (*client.Upstream, error)) iter.Seq2[listedTarget, error] {
	return func(yield func(listedTarget, error) bool) {
		for name, err := range names {
			var u *client.Upstream
			if err == nil {
				u, err = read(name)
			}
			if err != nil {
				yield(listedTarget{}, err)
				return
			}
			for _, t := range u.Targets {
				if !yield(listedTarget{u.Name, t, statusOf(u, t.URL)}, nil) {
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
	wait := drainWait{targetCommand: o}
	c := wait.of(&cobra.Command{
		Use: "drain --gateway ID TARGET", Short: "Take a target away: it gets no more requests",
		Long: `Take a target away: once the command has returned, it gets no more requests. With --wait, the
command also waits until the requests that were in flight there have ended, on every node. If some
are left then, it says on which node, and the exit status is 1.
keygate targets update --drain=false lets the target take part again.`,
		Example: "  keygate targets drain --gateway orders https://10.0.0.3:8443 --wait 35s",
	})
	return shows(o.one, c, func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
		return wait.call(ctx, api, url, func(options ...client.Option) (*client.Upstream, error) {
			return api.UpdateTarget(ctx, o.gateway, o.upstream, url, client.TargetPatch{Drain: client.Set(true)}, options...)
		})
	}, upstreamFields)
}

func newTargetsReturn(a *app) *cobra.Command {
	o := targetOf(a)
	c := o.of(&cobra.Command{
		Use: "return --gateway ID TARGET", Short: "End an ejection of a target by hand, on every node",
		Long: "End an ejection of a target by hand, on every node. If it is not ejected, nothing happens, and the command says so.",
	})
	return shows(o.one, c, func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
		before, err := api.Upstream(ctx, o.gateway, o.upstream)
		if err != nil {
			return nil, err
		}
		u, err := api.ReturnTarget(ctx, o.gateway, o.upstream, url)
		if known := statusOf(before, url); err == nil && len(known) > 0 && !isEjected(known) {
			o.Say("%s was not ejected on any node: there was nothing to return.", terminal.Clean(url))
		}
		return u, err
	}, upstreamFields)
}

// isEjected reports whether a target is ejected on some node.
func isEjected(list []client.TargetStatus) bool {
	return slices.ContainsFunc(list, func(s client.TargetStatus) bool { return s.State == client.TargetStatusStateEjected })
}

// drainWait is the flag of commands that wait until nothing is in flight at a target.
type drainWait struct {
	*targetCommand
	within time.Duration
	given  func() bool // whether the flag is
}

// of adds the flags.
func (w *drainWait) of(c *cobra.Command) *cobra.Command {
	c.Flags().DurationVar(&w.within, "wait", 0, "wait for up to this `duration`, from 1s to 10m, until nothing is in flight at the target any more")
	w.given = func() bool { return c.Flags().Changed("wait") }
	c.PreRunE = func(*cobra.Command, []string) error {
		if w.given() && (w.within < minWait || w.within > maxWait) {
			return usagef("--wait must be from 1s to 10m, such as 35s, not %s", w.within)
		}
		return nil
	}
	return w.targetCommand.of(c)
}

// The bounds of --wait, which are those of the API.
const (
	minWait = time.Second
	maxWait = 10 * time.Minute
)

// drainShown is how often the command looks what is in flight while it waits.
const drainShown = 2 * time.Second

// call makes a call that takes the target away. While it waits, what is in flight is shown on standard error.
func (w *drainWait) call(ctx context.Context, api *client.Client, url string, change func(...client.Option) (*client.Upstream, error)) (*client.Upstream, error) {
	if !w.given() {
		return change()
	}
	watching, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		w.watch(watching, api, url)
	}()
	u, err := change(client.AwaitDrained(w.within))
	end()
	<-watched
	var left *client.NotDrainedError
	if errors.As(err, &left) {
		return nil, fmt.Errorf("%s, after %s: %w", url, w.within, err)
	}
	return u, err
}

// watch shows what is in flight at the target whenever it has changed, until ctx ends.
func (w *drainWait) watch(ctx context.Context, api *client.Client, url string) {
	ticker := time.NewTicker(drainShown)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		u, err := api.Upstream(ctx, w.gateway, w.upstream)
		if err != nil {
			continue // the call that waits says what is wrong
		}
		if text := inFlightText(statusOf(u, url)); text != last {
			last = text
			w.Say("In flight at %s: %s", url, text)
		}
	}
}

func newTargetsRemove(a *app) *cobra.Command {
	o := targetOf(a)
	wait, target := drainWait{targetCommand: o}, ""
	return wait.of(destroys(o.one, &cobra.Command{Use: "remove --gateway ID TARGET", Short: "Remove a target from an upstream",
		Long: "Remove a target from an upstream: it gets no more requests. With --wait, the command also waits until\nthose that were in flight there have ended; if some are left then, the exit status is 1.",
	}, destroyer[client.Upstream]{
		"remove",
		func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
			target = url
			return api.Upstream(ctx, o.gateway, o.upstream)
		},
		func(context.Context, *client.Client, *client.Upstream) (lost, error) { return lost{}, nil },
		func(api *client.Client, ctx context.Context, url string) (*client.Upstream, error) {
			target = url
			return wait.call(ctx, api, url, func(options ...client.Option) (*client.Upstream, error) {
				return api.DeleteTarget(ctx, o.gateway, o.upstream, url, options...)
			})
		},
		func(u *client.Upstream) string { return "target " + target + " of " + upstreamLabel(u) }, upstreamFields,
	}))
}
