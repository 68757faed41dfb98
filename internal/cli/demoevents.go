package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/keygate/keygate/client"
)

// demoHooks is the first path segment of the demo's webhook receiver.
const demoHooks = "keygate-demo"

// registerDemo registers the demo's receiver as an endpoint. It deletes the one that
// an earlier demo may have left in the same data directory.
func registerDemo(ctx context.Context, api *client.Client, hooks *receiver) error {
	for w, err := range api.Webhooks(ctx, client.ListOptions{}) {
		if err != nil {
			return err
		}
		if !strings.Contains(w.URL, "/"+demoHooks+"/") {
			continue
		}
		if _, err := api.DeleteWebhook(ctx, w.WebhookID); err != nil {
			return err
		}
	}
	_, err := api.CreateWebhook(ctx, client.CreateWebhookRequest{URL: hooks.URL, Events: allEvents(), SigningSecret: hooks.Secret})
	return err
}

// demoEvents prints each event that arrives on a line. Deliveries block until begin
// is called.
type demoEvents struct {
	out   io.Writer
	data  bool          // print the events' data too
	begun chan struct{} // closed by begin
	once  sync.Once
	mu    sync.Mutex // keeps lines whole
}

func newDemoEvents(out io.Writer, data bool) *demoEvents {
	return &demoEvents{out: out, data: data, begun: make(chan struct{})}
}

func (e *demoEvents) begin() { e.once.Do(func() { close(e.begun) }) }

func (e *demoEvents) handle(ctx context.Context, d *receivedDelivery) (status int, body []byte) {
	select {
	case <-e.begun:
	case <-ctx.Done():
		return http.StatusServiceUnavailable, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e.out, "event %s %-22s %s", moment(&d.Event.CreatedAt), clean(d.Event.Type), clean(d.Event.ID))
	if e.data {
		fmt.Fprint(e.out, "  ", clean(string(d.Event.Data)))
	}
	fmt.Fprintln(e.out)
	return http.StatusNoContent, nil
}
