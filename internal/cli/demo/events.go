package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/receiver"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// demoHooks is the first path segment of the demo's webhook receiver, and demoBilling the first
// path segment of a second receiver, which fails at times.
const (
	demoHooks   = "keygate-demo"
	demoBilling = "keygate-demo-billing"
)

// demoBackoff is the demo's waits between attempts unless they are set. They are short, so that a
// failing delivery ends within a minute.
const demoBackoff = "2s,5s,10s,20s"

// billingRecovers is for how long after an event the second receiver fails for it. All attempts
// with demoBackoff are made within this time, and a redelivery afterwards succeeds.
const billingRecovers = time.Minute

// registerDemo registers the demo's receivers as endpoints; billing is nil without sample traffic. It
// deletes the endpoints that an earlier demo may have left in the same data directory.
func registerDemo(ctx context.Context, api *client.Client, events []string, hooks, billing *receiver.Receiver) error {
	for w, err := range api.Webhooks(ctx, client.ListOptions{}) {
		if err != nil {
			return err
		}
		if !strings.Contains(w.URL, "/"+demoHooks+"/") && !strings.Contains(w.URL, "/"+demoBilling+"/") {
			continue
		}
		if _, err := api.DeleteWebhook(ctx, w.WebhookID); err != nil {
			return err
		}
	}
	_, err := api.CreateWebhook(ctx, client.CreateWebhookRequest{URL: hooks.URL, Events: events, SigningSecret: hooks.Secret})
	if err == nil && billing != nil {
		events = []string{"key.created", "key.revoked", "rate_limit.exceeded", "gateway.upstream_error"}
		_, err = api.CreateWebhook(ctx, client.CreateWebhookRequest{URL: billing.URL, Events: events, SigningSecret: billing.Secret})
	}
	return err
}

// handleBilling is the handler of the second receiver. It fails for errors of the upstream until
// some time has passed, and for refused requests at the first attempt.
func handleBilling(_ context.Context, d *receiver.Delivery) (status int, body []byte) {
	switch {
	case d.Event.Type == "gateway.upstream_error" && time.Since(d.Event.CreatedAt) < billingRecovers:
		return http.StatusInternalServerError, []byte(`{"message":"the billing database is read-only"}`)
	case d.Event.Type == "rate_limit.exceeded" && time.Since(d.Event.CreatedAt) < time.Second:
		return http.StatusServiceUnavailable, []byte(`{"message":"try again in a second"}`)
	default:
		return http.StatusNoContent, nil
	}
}

// demoEventData is the part of the events' data that distinguishes sample traffic from what the user does.
type demoEventData struct {
	KeyID     string `json:"key_id"`
	GatewayID string `json:"gateway_id"`
	Path      string `json:"path"`
	Revision  int    `json:"revision"`
}

// demoEvents prints each event that arrives on a line, except events of the sample traffic.
// Deliveries block until begin is called.
type demoEvents struct {
	out   io.Writer
	data  bool                        // print the events' data too
	quiet func(d *demoEventData) bool // reports which events are not printed; nil prints all; set before begin
	begun chan struct{}               // closed by begin
	once  sync.Once
	mu    sync.Mutex // keeps lines whole
}

func newDemoEvents(out io.Writer, data bool) *demoEvents {
	return &demoEvents{out: out, data: data, begun: make(chan struct{})}
}

func (e *demoEvents) begin() { e.once.Do(func() { close(e.begun) }) }

func (e *demoEvents) handle(ctx context.Context, d *receiver.Delivery) (status int, body []byte) {
	select {
	case <-e.begun:
	case <-ctx.Done():
		return http.StatusServiceUnavailable, nil
	}
	var data demoEventData
	if err := json.Unmarshal(d.Event.Data, &data); err == nil && e.quiet != nil && e.quiet(&data) {
		return http.StatusNoContent, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e.out, "event %s %-22s %s", terminal.Moment(&d.Event.CreatedAt), terminal.Clean(d.Event.Type), terminal.Clean(d.Event.ID))
	if e.data {
		fmt.Fprint(e.out, "  ", terminal.Clean(string(d.Event.Data)))
	}
	fmt.Fprintln(e.out)
	return http.StatusNoContent, nil
}
