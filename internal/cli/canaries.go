package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newCanary(a *app) *cobra.Command {
	return newGroup("canary", "Send a growing share of the callers to another upstream, which is judged",
		newCanaryStart(a), newCanaryList(a), newCanaryGet(a), newCanaryWatch(a),
		canaryChange(a, "pause", "Pause a canary: callers stay on their sides, and nothing is counted", (*client.Client).PauseCanary),
		canaryChange(a, "resume", "Go on with the step of a paused canary", (*client.Client).ResumeCanary),
		canaryChange(a, "promote", "Give the routes of a canary its upstream, and end it", (*client.Client).PromoteCanary),
		canaryChange(a, "abort", "End a canary: all callers go to the upstream of its routes again", (*client.Client).AbortCanary))
}

// canaryCommand is a command on a canary of a gateway.
type canaryCommand struct {
	*one
	gateway string
}

// canaryOf returns a command on a canary. Without one, it is on that which has not ended, or on the newest one if anyOf is set.
func canaryOf(a *app, anyOf bool) *canaryCommand {
	o := &canaryCommand{}
	usage := "`id` of the canary (default: the one that has not ended)"
	if anyOf {
		usage = "`id` of the canary (default: the newest one)"
	}
	o.one = &one{
		app: a, flag: "canary-id", usage: usage + alsoArgument, optional: true,
		find: func(api *client.Client, ref string) (id string, err error) {
			if o.gateway, err = a.gatewayID(api, o.gateway); err != nil || ref != "" {
				return ref, err
			}
			return newestCanary(a.Context, api, o.gateway, anyOf)
		},
	}
	return o
}

// newestCanary returns the newest canary of a gateway, which must not have ended unless anyOf is set. There is at most one such, and
// it is the newest.
func newestCanary(ctx context.Context, api *client.Client, gatewayID string, anyOf bool) (string, error) {
	for c, err := range api.Canaries(ctx, gatewayID, client.ListOptions{PageSize: 1}) {
		if err != nil {
			return "", err
		}
		if anyOf || c.EndedAt == nil {
			return c.CanaryID, nil
		}
		break
	}
	if anyOf {
		return "", &notFoundError{"the gateway has no canary: keygate canary start starts one"}
	}
	return "", &notFoundError{"the gateway has no canary that has not ended: keygate canary list shows those that have"}
}

// gatewayFlag adds the flag for the gateway.
func (o *canaryCommand) gatewayFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	return c
}

// canaryFields returns what a table shows of a canary.
func canaryFields(c *client.Canary) []terminal.Field {
	fields := []terminal.Field{
		{"CANARY ID", c.CanaryID}, {"UPSTREAM", c.Upstream}, {"OTHER", c.Other}, {"ROUTES", terminal.NumberOf(int64(len(c.Routes)), "route", "routes")},
		{"STATE", canaryState(c)}, {"STEPS", percents(c.Steps)}, {"HOLD", c.Hold}, {"ABORT", abortText(&c.Abort)}, {"MIN REQUESTS", strconv.FormatInt(c.MinRequests, 10)}, {"WHEN DONE", string(c.WhenDone)},
	}
	for i := range c.Progress {
		p := &c.Progress[i]
		fields = append(fields, terminal.Field{fmt.Sprintf("STEP %d", p.Step), fmt.Sprintf("%s %%: %s; %s", percent(p.Weight), sideText(c.Upstream, &p.Next), sideText(c.Other, &p.Other))})
	}
	fields = append(fields, terminal.Field{"EXPLANATION", c.Explanation})
	for _, line := range c.Lines {
		fields = append(fields, terminal.Field{"COMMIT", line})
	}
	return append(fields, terminal.Field{"STARTED", terminal.Moment(&c.CreatedAt)}, terminal.Field{"ENDED", terminal.Moment(c.EndedAt)})
}

// canaryState returns the state of a canary, with its step while it has not ended.
func canaryState(c *client.Canary) string {
	if c.Weight == nil {
		return string(c.State)
	}
	return fmt.Sprintf("%s, step %d of %d, %s %%", c.State, c.Step, len(c.Steps), percent(*c.Weight))
}

func sideText(name string, f *client.CanaryFigures) string {
	text := fmt.Sprintf("%s %s, %d bad", name, terminal.NumberOf(f.Requests, "request", "requests"), f.Bad)
	if f.P95Ms != nil {
		text += fmt.Sprintf(", p95 %s ms", strconv.FormatFloat(*f.P95Ms, 'f', 1, 64))
	}
	return text
}

func abortText(a *client.CanaryAbort) string {
	var parts []string
	if a.Errors != nil {
		points := " points more"
		if a.Errors.MoreThan == 1 {
			points = " point more"
		}
		parts = append(parts, "errors "+percent(a.Errors.MoreThan)+points)
	}
	if a.Latency != nil {
		parts = append(parts, "latency "+percent(a.Latency.P95Ratio)+" × p95")
	}
	return strings.Join(parts, ", ")
}

func percent(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

func percents(list []float64) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = percent(p)
	}
	return strings.Join(texts, ", ")
}

func newCanaryList(a *app) *cobra.Command {
	options, ofGateway := &client.ListOptions{}, ""
	c := &cobra.Command{Use: "list --gateway ID", Short: "List the canaries of a gateway, newest first", Args: atMost(1)}
	c.Flags().StringVar(&ofGateway, "gateway", "", defaultGatewayUsage+alsoArgument)
	return lists(a, c, lister[client.Canary]{
		options: options, check: optionalGateway(&ofGateway),
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Canary, error], error) {
			id, err := a.gatewayID(api, ofGateway)
			return api.Canaries(ctx, id, *options), err
		},
		columns: []terminal.Column{{Name: "CANARY ID"}, {Name: "UPSTREAM"}, {Name: "STATE"}, {Name: "EXPLANATION", Flex: true}, {Name: "STARTED", Rank: 1}},
		row: func(c *client.Canary) []string {
			return []string{c.CanaryID, c.Upstream, canaryState(c), c.Explanation, terminal.Moment(&c.CreatedAt)}
		},
		empty: always("No canaries."),
	})
}

func newCanaryGet(a *app) *cobra.Command {
	o := canaryOf(a, true)
	return o.gatewayFlag(shows(o.one, &cobra.Command{Use: "get --gateway ID [CANARY]", Short: "Show a canary, and what was counted"},
		func(api *client.Client, ctx context.Context, id string) (*client.Canary, error) {
			return api.Canary(ctx, o.gateway, id)
		}, canaryFields))
}

// canaryChange returns a command that changes a canary.
func canaryChange(a *app, verb, short string, call func(c *client.Client, ctx context.Context, gatewayID, canaryID string, options ...client.Option) (*client.Canary, error)) *cobra.Command {
	o := canaryOf(a, false)
	return o.gatewayFlag(shows(o.one, &cobra.Command{Use: verb + " --gateway ID [CANARY]", Short: short},
		func(api *client.Client, ctx context.Context, id string) (*client.Canary, error) {
			return call(api, ctx, o.gateway, id)
		}, canaryFields))
}

type canaryStart struct {
	*app
	gateway, upstream, hold, whenDone string
	routes                            []string
	steps                             []float64
	moreThan, ratio                   float64
	minRequests                       int64
}

func newCanaryStart(a *app) *cobra.Command {
	o := &canaryStart{app: a}
	c := &cobra.Command{
		Use: "start --gateway ID --upstream NAME", Short: "Start a canary", Args: atMost(0), RunE: o.run,
		Long: `Start a canary: callers of the routes go to another upstream, in steps, and stay on their
side. If more of them fail there, or it is slower, the canary is aborted and all go back.`,
		Example: "  keygate canary start --gateway orders --upstream next\n" +
			"  keygate canary start --gateway orders --upstream next --route /orders --steps 1,10,50 --hold 30m --p95-ratio 1.5 --when-done promote",
	}
	f := c.Flags()
	f.StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	f.StringVar(&o.upstream, "upstream", "", "`name` of the upstream that is judged; required")
	f.StringArrayVar(&o.routes, "route", nil, "`id` or path of a route; may be repeated (default: all that do not have the upstream)")
	f.Float64SliceVar(&o.steps, "steps", nil, "`percent` of the callers in each step, separated by commas")
	f.Lookup("steps").DefValue = "1,5,25,50"
	f.StringVar(&o.hold, "hold", "", "`duration` of a step, at least (default 10m)")
	f.Float64Var(&o.moreThan, "errors-more-than", 1, "by how many percentage `points` more requests may fail than on the other upstream before the canary is aborted")
	f.Float64Var(&o.ratio, "p95-ratio", 0, "`factor` of the other upstream's p95 beyond which a request is slow (default: latency aborts nothing); needs a hold of 4m or more")
	f.Int64Var(&o.minRequests, "min-requests", 0, "`number` of requests of each side before a step ends (default 1000)")
	f.StringVar(&o.whenDone, "when-done", "", "`what` happens after the last step: promote or hold (default hold)")
	return c
}

func (o *canaryStart) run(c *cobra.Command, _ []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if o.upstream == "" {
		return usagef("give --upstream: the upstream to which the canary sends requests")
	}
	in := client.StartCanaryRequest{Upstream: o.upstream}
	f := c.Flags()
	if f.Changed("steps") {
		in.Steps = &o.steps
	}
	if f.Changed("hold") {
		in.Hold = &o.hold
	}
	if f.Changed("min-requests") {
		in.MinRequests = &o.minRequests
	}
	if f.Changed("when-done") {
		in.WhenDone = given(client.StartCanaryRequestWhenDone(o.whenDone))
	}
	if f.Changed("errors-more-than") || f.Changed("p95-ratio") {
		in.Abort = &client.CanaryAbortInput{Errors: &client.CanaryErrorsInput{MoreThan: o.moreThan}}
	}
	if f.Changed("p95-ratio") {
		in.Abort.Latency = &client.CanaryLatencyInput{P95Ratio: o.ratio}
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	gatewayID, err := o.gatewayID(api, o.gateway)
	if err != nil {
		return err
	}
	for _, ref := range o.routes {
		id, err := o.routeID(api, gatewayID, ref)
		if err != nil {
			return err
		}
		if in.Routes == nil {
			in.Routes = &[]string{}
		}
		*in.Routes = append(*in.Routes, id)
	}
	started, err := api.StartCanary(c.Context(), gatewayID, in)
	if err != nil {
		return err
	}
	if started.Warnings != nil {
		o.printWarnings(*started.Warnings)
	}
	return show(o.app, started, func(*client.StartedCanary) []terminal.Field { return startedFields(started) })
}

// startedFields returns what a table shows of a new canary.
func startedFields(s *client.StartedCanary) []terminal.Field {
	return canaryFields(&client.Canary{
		CanaryID: s.CanaryID, GatewayID: s.GatewayID, Upstream: s.Upstream, Other: s.Other, Routes: s.Routes, Steps: s.Steps, Hold: s.Hold, Abort: s.Abort,
		MinRequests: s.MinRequests, WhenDone: client.CanaryWhenDone(s.WhenDone), State: client.CanaryState(s.State), Step: s.Step, Weight: s.Weight,
		Progress: s.Progress, Explanation: s.Explanation, Lines: s.Lines, CreatedAt: s.CreatedAt, EndedAt: s.EndedAt,
	})
}

// watchInterval is how often keygate canary watch looks.
const watchInterval = 2 * time.Second

// abortedError reports that the canary that was watched was aborted.
type abortedError struct{ why string }

func (e *abortedError) Error() string {
	return "the canary was " + inState(string(client.CanaryStateAborted), e.why)
}

// inState returns an explanation with the state of its canary in front, unless it begins with that.
func inState(state, explanation string) string {
	if strings.HasPrefix(explanation, state) {
		return explanation
	}
	return state + ": " + explanation
}

func newCanaryWatch(a *app) *cobra.Command {
	o := canaryOf(a, true)
	return o.gatewayFlag(o.runs(&cobra.Command{
		Use: "watch --gateway ID [CANARY]", Short: "Print a line at each change of a canary, until it has ended or is held",
		Long: `Print a line at each change of a canary, until it has ended or is held after its last step. The
exit status is 0 if it was promoted or is held, and 6 if it was aborted.`,
		PreRunE: func(*cobra.Command, []string) error { return a.refuseYAML() },
	}, func(ctx context.Context, api *client.Client, id string) error {
		return o.watch(ctx, api, id)
	}))
}

// watch prints a line whenever the canary has changed, but for what it has counted.
func (o *canaryCommand) watch(ctx context.Context, api *client.Client, id string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for last := ""; ; {
		c, err := api.Canary(ctx, o.gateway, id)
		var unreachable *client.UnreachableError
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Ctrl-C is the normal end
		case errors.As(err, &unreachable) && last != "": // a server that restarts
		case err != nil:
			return err
		case canaryState(c) != last:
			last = canaryState(c)
			if err := o.showChange(c); err != nil {
				return err
			}
		}
		if err == nil && (c.EndedAt != nil || c.State == client.CanaryStateHeld) {
			if c.State == client.CanaryStateAborted {
				return &abortedError{c.Explanation}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// showChange prints a canary on one line, and the lines to commit below it.
func (o *canaryCommand) showChange(c *client.Canary) error {
	if !o.ForPeople() {
		return o.PrintLine(c)
	}
	now := time.Now()
	_, err := fmt.Fprintf(o.Out, "%s  %s\n", terminal.Moment(&now), inState(canaryState(c), terminal.Clean(c.Explanation)))
	for _, line := range c.Lines {
		if err == nil {
			_, err = fmt.Fprintf(o.Out, "  commit %s\n", terminal.Clean(line))
		}
	}
	return err
}
