package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/receiver"
	"github.com/keygate/keygate/internal/cli/terminal"
)

type webhooksListen struct {
	*app
	forwardTo string
	events    []string

	probed  chan struct{} // closed when the probe has arrived
	probing sync.Once
	forward *http.Client
	print   sync.Mutex      // keeps lines whole
	rows    *terminal.Table // nil until the first delivery
}

func newWebhooksListen(a *app) *cobra.Command {
	o := &webhooksListen{app: a, probed: make(chan struct{}), forward: &http.Client{
		// Redirects are returned to the server like any other response.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       forwardTimeout,
	}}
	c := &cobra.Command{
		Use:   "listen --forward-to URL",
		Short: "Receive events on this machine, and print and forward them until Ctrl-C",
		Long: `Register a temporary endpoint on this machine, verify each delivery, print a line for
each event and forward it with its headers to --forward-to. The response is returned
to the server, which retries failed deliveries. The endpoint is deleted when the
command ends, also on Ctrl-C.

The server must run on this machine and be allowed to deliver to it: start it with
--webhook-allow-network 127.0.0.0/8.

` + eventTypes,
		Example: "  keygate webhooks listen --forward-to http://localhost:3000/hooks --events key.created,key.revoked",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.forwardTo, "forward-to", "", "`url` to forward each event to; without it, events are only printed")
	f.StringSliceVar(&o.events, "events", allEvents(), "`types` of the events to receive, separated by commas")
	f.Lookup("events").DefValue = "all" // in the help
	return c
}

// allEvents returns the event types that an endpoint can subscribe to.
func allEvents() []string {
	return []string{
		"key.created", "key.rotated", "key.revoked", "key.expired", "rate_limit.exceeded", "gateway.upstream_error", "gateway.spec_pushed", "gateway.sync_failed",
		"owner.suspended", "owner.resumed", "quota.threshold", "usage.finalized",
		"upstream.target_down", "upstream.target_up",
		"canary.advanced", "canary.aborted", "canary.promoted", "canary.paused",
		"issuer.unreachable", "user.role_changed", "user.suspended",
		"certificate.renewed", "certificate.failed", "certificate.expiring",
	}
}

func (o *webhooksListen) run(c *cobra.Command, _ []string) (err error) {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if o.forwardTo != "" {
		if u, err := url.Parse(o.forwardTo); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usagef("--forward-to %q is not a valid URL: it must begin with http:// or https:// and have a host", o.forwardTo)
		}
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if err := mayDelete(c.Context(), api); err != nil {
		return err
	}
	signals := notify()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(c.Context())
	o.Context = ctx
	here, err := receiver.Start(c.Context(), receiver.Config{Name: "keygate-listen", Handle: o.handle, Refused: o.refused})
	if err != nil {
		cancel()
		return err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	defer cancel() // ends --jq, for which Close would wait
	w, err := o.register(c.Context(), api, here)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.unregister(c.Context(), api, w.WebhookID)) }()
	if stopped, err := o.probe(c.Context(), api, here, w.WebhookID, signals); stopped || err != nil {
		return err
	}
	o.Say("Ready: receiving events at %s (%s). Press Ctrl-C to stop.", here.URL, w.WebhookID)
	select {
	case <-c.Context().Done():
	case <-signals:
	}
	return nil
}

// mayDelete refuses a key that could create the endpoint but not delete it.
func mayDelete(ctx context.Context, api *client.Client) error {
	a, err := api.Account(ctx)
	if err != nil {
		return err
	}
	scope := a.Scope()
	if may := strings.Fields(scope); !slices.Contains(may, "admin") && !slices.Contains(may, "admin:webhooks") {
		return &noKeyError{fmt.Sprintf("the key's scope is %s: deleting the temporary endpoint at the end requires admin or admin:webhooks", terminal.Clean(scope))}
	}
	return nil
}

// register creates the endpoint, with the receiver's secret.
func (o *webhooksListen) register(ctx context.Context, api *client.Client, here *receiver.Receiver) (*client.NewWebhook, error) {
	w, err := api.CreateWebhook(ctx, client.CreateWebhookRequest{URL: here.URL, Events: o.events, SigningSecret: here.Secret})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Field == "url" {
		return nil, fmt.Errorf("the server does not deliver to this machine: start it with --webhook-allow-network 127.0.0.0/8 (%w)", err)
	}
	return w, err
}

// unregister deletes the endpoint, even if ctx is done.
func (o *webhooksListen) unregister(ctx context.Context, api *client.Client, webhookID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := api.DeleteWebhook(ctx, webhookID); err != nil && !client.IsNotFound(err) {
		return fmt.Errorf("the temporary endpoint %[1]s was not deleted: run keygate webhooks delete %[1]s: %[2]w", webhookID, err)
	}
	return nil
}

// probeInterval is the time between checks of the probe's delivery.
const probeInterval = 100 * time.Millisecond

// probe has the server deliver a test event and waits for it, so that an endpoint
// that the server cannot reach is reported at once.
func (o *webhooksListen) probe(ctx context.Context, api *client.Client, here *receiver.Receiver, webhookID string, signals <-chan os.Signal) (stopped bool, err error) {
	deliveryID, err := api.TestWebhook(ctx, webhookID)
	if err != nil {
		return false, err
	}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-o.probed:
			return false, nil
		case <-ctx.Done():
			return true, nil
		case <-signals:
			return true, nil
		case <-tick.C:
		}
		d, err := api.Delivery(ctx, deliveryID)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Status == http.StatusForbidden {
			tick.Stop() // the key may not read deliveries: wait for the event itself
			continue
		}
		if err != nil {
			return false, err
		}
		if n := len(d.Attempts); n > 0 && d.State != client.DeliveryStateDelivered {
			return false, fmt.Errorf("the server cannot deliver to %s: %s. It must run on this machine, with --webhook-allow-network 127.0.0.0/8",
				here.URL, attemptResult(&d.Attempts[n-1]))
		}
	}
}

// forwardTimeout is shorter than the 30 s that the server waits, so that the server
// receives a response.
const forwardTimeout = 25 * time.Second

// maxRelayed is how many bytes of a response body are returned to the server, which
// does not read more.
const maxRelayed = 64 << 10

// handle prints a delivery, forwards it and returns the response. The first test
// event is the probe's; it is not printed or forwarded.
func (o *webhooksListen) handle(ctx context.Context, d *receiver.Delivery) (status int, body []byte) {
	probe := false
	if d.Event.Type == "webhook.test" {
		o.probing.Do(func() {
			probe = true
			close(o.probed)
		})
	}
	if probe {
		return http.StatusNoContent, nil
	}
	if o.forwardTo == "" {
		o.show(d, "")
		return http.StatusNoContent, nil
	}
	start := time.Now()
	status, body, err := o.send(ctx, d)
	if err != nil {
		o.show(d, "not forwarded: "+err.Error())
		return http.StatusBadGateway, []byte("the receiver cannot be reached: " + err.Error())
	}
	o.show(d, fmt.Sprintf("forwarded: %d in %s", status, time.Since(start).Round(time.Millisecond)))
	return status, body
}

// send forwards a delivery with its headers.
func (o *webhooksListen) send(ctx context.Context, d *receiver.Delivery) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.forwardTo, bytes.NewReader(d.Payload))
	if err != nil {
		return 0, nil, err
	}
	for name, values := range d.Header {
		if name == "Content-Type" || name == "User-Agent" || strings.HasPrefix(name, "X-Service-") || strings.HasPrefix(name, "Webhook-") {
			req.Header[name] = values
		}
	}
	res, err := o.forward.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxRelayed))
	return res.StatusCode, body, err
}

// show prints one delivery: a row of a table, else the event itself. A failed write to
// standard output does not end the command.
func (o *webhooksListen) show(d *receiver.Delivery, note string) {
	o.print.Lock()
	defer o.print.Unlock()
	if o.ForPeople() {
		o.row(d, note)
		return
	}
	if note != "" {
		o.Say("%s %s", terminal.Clean(d.Event.ID), terminal.Clean(note))
	}
	switch {
	case o.Format == terminal.FormatYAML:
		fmt.Fprintln(o.Out, "---")
		_ = o.PrintData(json.RawMessage(d.Payload))
	case o.Format == terminal.FormatJSON && o.Filter == nil:
		fmt.Fprintf(o.Out, "%s\n", d.Payload)
	default:
		if err := o.PrintLine(json.RawMessage(d.Payload)); err != nil && o.Context.Err() == nil {
			o.Say("%s %s", terminal.Clean(d.Event.ID), terminal.Clean(err.Error()))
		}
	}
}

// row prints a delivery as a row of a table.
func (o *webhooksListen) row(d *receiver.Delivery, note string) {
	if o.rows == nil {
		columns := []terminal.Column{{Name: "TIME"}, {Name: "EVENT TYPE", Least: 22}, {Name: "EVENT ID"}}
		if o.forwardTo != "" {
			columns = append(columns, terminal.Column{Name: "RESULT", Least: 30, Flex: true})
		}
		o.rows = o.NewStream(columns...)
	}
	at := terminal.Moment(&d.Event.CreatedAt)
	if o.Fitted() {
		at = d.Event.CreatedAt.UTC().Format("15:04:05Z")
	}
	cells := []string{at, d.Event.Type, d.Event.ID}
	if o.forwardTo != "" {
		cells = append(cells, note)
	}
	o.rows.Row(cells...)
	_ = o.rows.Flush()
}

func (o *webhooksListen) refused(err error) {
	o.print.Lock()
	defer o.print.Unlock()
	o.Say("Refused a delivery: %s", terminal.Clean(err.Error()))
}
