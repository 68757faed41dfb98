package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
)

// errCancelled reports that a person did not confirm a command. Standard error says so.
var errCancelled = errors.New("cancelled")

// loss is what a command is about to destroy.
type loss struct {
	verb string   // what the command does: delete or revoke
	what string   // such as: gateway orders (gw_…)
	with []string // what is lost with it
	name string   // to be typed to confirm; "" if y is enough
}

// confirmFlag adds --yes to a command that destroys.
func (a *app) confirmFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation on a terminal")
	return c
}

// asks reports whether a command has to ask: a person is at a terminal, and --yes was not given.
func (a *app) asks() bool {
	_, typed := isTerminal(a.In)
	_, seen := isTerminal(a.Err)
	return !a.yes && typed && seen
}

// confirm asks a person at a terminal whether to go on, and returns errCancelled if not.
// Elsewhere, and with --yes, it does nothing. find is only called to ask.
func (a *app) confirm(find func() (loss, error)) error {
	if !a.asks() {
		return nil
	}
	l, err := find()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "This %ss %s", l.verb, clean(l.what))
	if len(l.with) == 0 {
		fmt.Fprintln(a.Err, ".")
	} else {
		fmt.Fprintln(a.Err, ":")
	}
	for _, line := range l.with {
		a.say("  %s", clean(line))
	}
	if l.name != "" {
		return a.answered("Type its name to confirm: ", func(answer string) bool { return answer == strings.TrimSpace(l.name) })
	}
	return a.answered(title(l.verb)+" it? [y/N] ", isYes)
}

// isYes reports whether an answer is a yes.
func isYes(answer string) bool {
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

// answered asks a question and returns errCancelled unless the answer is accepted.
func (a *app) answered(question string, accepted func(answer string) bool) error {
	fmt.Fprint(a.Err, question)
	answer, err := bufio.NewReader(io.LimitReader(a.In, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(a.Err) // the answer did not end the line
	}
	if !accepted(strings.TrimSpace(answer)) {
		fmt.Fprintln(a.Err, "Cancelled.")
		return errCancelled
	}
	return nil
}

// destroyed says on standard error what a command destroyed. show prints the record that
// the server returned; a table on a terminal would only repeat the sentence.
func (a *app) destroyed(verb, what string, show func() error) error {
	if !a.forPeople() || a.width(a.Out) == 0 {
		if err := show(); err != nil {
			return err
		}
	}
	a.say("%sd %s.", title(verb), clean(what))
	return nil
}

// title returns a verb with a capital letter.
func title(verb string) string { return strings.ToUpper(verb[:1]) + verb[1:] }

// maxCounted bounds how many records are counted to tell what will be lost.
const maxCounted = 1000

// counted returns how many records there are, at most one more than maxCounted.
func counted[T any](lists ...iter.Seq2[T, error]) (n int64, err error) {
	for _, records := range lists {
		for _, err := range records {
			if err != nil {
				return 0, err
			}
			if n++; n > maxCounted {
				return n, nil
			}
		}
	}
	return n, nil
}

// amount returns n, which was counted up to maxCounted, with its noun.
func amount(n int64, one, many string) string {
	if n > maxCounted {
		return fmt.Sprintf("more than %d %s", maxCounted, many)
	}
	return numberOf(n, one, many)
}

// lastDay returns how many requests there were in the last 24 hours.
func lastDay(ctx context.Context, api *client.Client, q client.TrafficQuery) (string, error) {
	q.Interval, q.Since = "1h", time.Now().Add(-24*time.Hour)
	rows, err := api.Traffic(ctx, q)
	if err != nil {
		return "", err
	}
	var n int64
	for i := range rows {
		n += rows[i].Requests
	}
	if n == 1 {
		return "1 request in the last 24 hours", nil
	}
	return strconv.FormatInt(n, 10) + " requests in the last 24 hours", nil
}

// lossOfGateway returns what deleting a gateway destroys.
func lossOfGateway(ctx context.Context, api *client.Client, id string) (loss, error) {
	g, err := api.Gateway(ctx, id)
	if err != nil {
		return loss{}, err
	}
	routes, err := counted(api.Routes(ctx, g.GatewayID, client.ListOptions{}))
	if err != nil {
		return loss{}, err
	}
	keys, err := counted(api.Keys(ctx, client.KeyFilter{GatewayID: g.GatewayID, State: "active"}))
	if err != nil {
		return loss{}, err
	}
	requests, err := lastDay(ctx, api, client.TrafficQuery{GatewayID: g.GatewayID})
	return loss{
		verb: "delete", what: gatewayLabel(g), name: g.Name,
		with: []string{amount(routes, "route", "routes"), amount(keys, "key that is restricted to it and will be revoked", "keys that are restricted to it and will be revoked"), requests},
	}, err
}

// lossOfRoute returns what deleting a route destroys.
func lossOfRoute(ctx context.Context, api *client.Client, gatewayID, id string) (loss, error) {
	r, err := api.Route(ctx, gatewayID, id)
	if err != nil {
		return loss{}, err
	}
	requests, err := lastDay(ctx, api, client.TrafficQuery{GatewayID: r.GatewayID, RouteID: r.RouteID})
	return loss{verb: "delete", what: routeLabel(r), with: []string{requests}}, err
}

// lossOfKey returns what revoking a key destroys.
func lossOfKey(ctx context.Context, api *client.Client, id string) (loss, error) {
	k, err := api.Key(ctx, id)
	if err != nil {
		return loss{}, err
	}
	requests, err := lastDay(ctx, api, client.TrafficQuery{KeyID: k.KeyID})
	l := loss{verb: "revoke", what: keyLabel(k), with: []string{requests}}
	if owner := str(k.Owner); owner != "" {
		l.with = []string{"its owner is " + owner, requests}
	}
	return l, err
}

// lossOfWebhook returns what deleting a webhook destroys.
func lossOfWebhook(ctx context.Context, api *client.Client, id string) (loss, error) {
	w, err := api.Webhook(ctx, id)
	if err != nil {
		return loss{}, err
	}
	n, err := counted(
		api.Deliveries(ctx, client.DeliveryFilter{WebhookID: w.WebhookID, State: "pending"}),
		api.Deliveries(ctx, client.DeliveryFilter{WebhookID: w.WebhookID, State: "retry_scheduled"}))
	return loss{verb: "delete", what: webhookLabel(w), with: []string{amount(n, "pending delivery", "pending deliveries")}}, err
}

// The labels name records in sentences.
func gatewayLabel(g *client.Gateway) string { return "gateway " + withID(g.Name, g.GatewayID) }
func keyLabel(k *client.Key) string         { return "key " + withID(k.Name, k.KeyID) }
func webhookLabel(w *client.Webhook) string { return "webhook " + withID(w.URL, w.WebhookID) }
func routeLabel(r *client.Route) string {
	return "route " + withID(strings.Join(r.Methods, ",")+" "+r.Path, r.RouteID)
}
