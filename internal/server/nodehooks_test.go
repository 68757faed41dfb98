package server_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/webhook"
)

// receiver is the endpoint of webhooks of several nodes. While it holds, no request is answered.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	held     chan struct{} // closed by answer
	open     map[string]int
	requests map[string]int // by delivery
	twice    []string       // deliveries for which two requests ran at the same time
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{held: make(chan struct{}), open: map[string]int{}, requests: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.answer()
		r.Close()
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	delivery := req.Header.Get(webhook.FieldDelivery)
	r.count(delivery, 1)
	defer r.count(delivery, -1)
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	select {
	case <-held:
		w.WriteHeader(http.StatusNoContent)
	case <-req.Context().Done():
	}
}

func (r *receiver) count(delivery string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[delivery] += n; r.open[delivery] > 1 {
		r.twice = append(r.twice, delivery)
	}
	r.requests[delivery] += max(n, 0)
}

// hold answers no requests from now on.
func (r *receiver) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = make(chan struct{})
}

// answer answers all requests from now on.
func (r *receiver) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
	default:
		close(r.held)
	}
}

// counts returns how many deliveries were sent, and how many requests are open.
func (r *receiver) counts() (sent, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.open {
		open += n
	}
	return len(r.requests), open
}

// hook registers r for key.created, and creates keys, so that there are deliveries.
func (r *receiver) hook(t *testing.T, api *client.Client, keys int) (webhookID string) {
	t.Helper()
	w, err := api.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: r.URL, Events: []string{"key.created"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if _, err := api.CreateKey(t.Context(), client.CreateKeyRequest{Name: fmt.Sprint("k", i), Scope: "read"}); err != nil {
			t.Fatal(err)
		}
	}
	return w.WebhookID
}

// delivered returns how many deliveries have succeeded.
func delivered(t *testing.T, api *client.Client) (n int) {
	t.Helper()
	for d, err := range api.Deliveries(t.Context(), client.DeliveryFilter{State: "delivered"}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.DeliveryID != "" {
			n++
		}
	}
	return n
}

// process starts a node as a process of its own, and returns a client of it and a function that kills it.
func process(t *testing.T, operator string, args ...string) (api *client.Client, kill func()) {
	t.Helper()
	admin := porttest.Reserve(t)
	args = append([]string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--gateway-addr", "127.0.0.1:0", "--admin-addr", admin, "--ops-addr", "127.0.0.1:0"}, args...)
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), serveVariable+"=1", config.AdminKeyVariable+"="+operator)
	log, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(log).ReadString('\n'); line != "ready\n" {
		t.Fatalf("a node printed %q, %v; want that it is ready", line, err)
	}
	return must(client.New(client.Config{URL: "http://" + admin, Key: operator, Retries: -1})), kill
}

// Guarantee: while two nodes live, neither sends deliveries that the other holds. When one is killed, the
// other sends these as soon as the lease has ended, and not only when the claims have run out a minute
// later.
func TestDeliveriesOfAKilledNodeGoOn(t *testing.T) {
	const keys = 10
	r, url, operator := newReceiver(t), postgrestest.Empty(t), must(apikey.Generate(apikey.AccountLevel, rand.Reader))
	flags := []string{"--webhook-allow-network", "127.0.0.0/8", "--lease-ttl", "2s", "--database-url", url, "--secret-key-file", secretKey(t, 1)}
	api, kill := process(t, operator, append(flags, "--node-name", "killed")...)
	r.hook(t, api, keys)
	awaittest.True(t, "the first node sends", func() bool { sent, _ := r.counts(); return sent > 0 })
	log := &lockedBuffer{}
	second := keygatetest.StartWith(t, keygatetest.Options{Log: log, Args: append(flags, "--node-name", "second"), Settings: map[string]string{config.AdminKeyVariable: operator}})
	kill()
	r.answer()
	awaittest.True(t, "everything is delivered", func() bool { return delivered(t, second.Admin) == keys })
	if len(r.twice) > 0 {
		t.Errorf("the deliveries %q were sent twice at the same time", r.twice)
	}
	if metric(t, second, "keygate_webhook_taken_over_total") == 0 {
		t.Error("the second node took over nothing: the deliveries went on when the claims had run out")
	}
}

// Guarantee: a node that is cut off from the database stops sending before another node sends the
// deliveries that it holds, although it lives on, and although its requests are under way.
func TestNodeThatIsCutOffStopsSending(t *testing.T) {
	const keys = 10
	r := newReceiver(t)
	c := startCluster(t, 1, "--webhook-allow-network", "127.0.0.0/8", "--lease-ttl", "2s")
	r.hook(t, c.nodes[0].Admin, keys)
	awaittest.True(t, "the node sends", func() bool { sent, _ := r.counts(); return sent > 0 })
	second := c.start("second", c.url, "--webhook-allow-network", "127.0.0.0/8")
	c.cable.Sever()
	awaittest.True(t, "the second node takes over", func() bool { return metric(t, second, "keygate_webhook_taken_over_total") > 0 })
	awaittest.True(t, "the second node sends", func() bool { _, open := r.counts(); return open > 0 })
	r.answer()
	awaittest.True(t, "everything is delivered", func() bool { return delivered(t, second.Admin) == keys })
	if len(r.twice) > 0 {
		t.Errorf("the deliveries %q were sent twice at the same time", r.twice)
	}
	c.cable.Mend()
	c.cable.HangUp()
}

// metric returns a metric of a node.
func metric(t *testing.T, node *keygatetest.Server, name string) (value int) {
	t.Helper()
	_, body := fetch(t, node.OpsURL()+"/metrics")
	_, rest, _ := strings.Cut(body, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &value); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return value
}

// raise creates events of key.created in the database, as another node would.
func (c *cluster) raise(accountID string, n int) {
	c.Helper()
	db := must(postgres.Open(c.Context(), postgres.Config{URL: c.url}))
	defer db.Close()
	events := make([]event.Event, n)
	for i := range events {
		events[i] = must(event.New(accountID, event.KeyCreated, time.Now(), event.Key{Name: "k"}))
	}
	if err := db.AppendEvents(c.Context(), events); err != nil {
		c.Fatal(err)
	}
}

// queued makes a node hold deliveries for r that wait for their turn, behind requests that are not answered,
// and returns a client of the other node. A node holds more deliveries than it sends only for endpoints that
// respond quickly.
func (c *cluster) queued(r *receiver, accountID string) (other *client.Client) {
	c.Helper()
	before, _ := r.counts()
	r.answer()
	c.raise(accountID, 400)
	awaittest.True(c.T, "the endpoint is quick", func() bool {
		sent, _ := r.counts()
		return sent >= before+400 && metric(c.T, c.nodes[0], "keygate_webhook_waiting") == 0
	})
	r.hold()
	c.raise(accountID, 400)
	awaittest.True(c.T, "a node holds more than it sends", func() bool {
		for i, n := range c.nodes {
			if metric(c.T, n, "keygate_webhook_held") > metric(c.T, n, "keygate_webhook_in_flight") {
				other = c.nodes[1-i].Admin
			}
		}
		return other != nil
	})
	return other
}

// Guarantee: when a call that disables, moves or deletes an endpoint returns from one node, no other node
// starts to send to the endpoint as it was, although it held deliveries for it.
func TestChangesOfEndpointsReachEverySender(t *testing.T) {
	c := startCluster(t, 2, "--webhook-allow-network", "127.0.0.0/8")
	api := c.nodes[0].Admin
	me := must(api.Account(t.Context()))
	elsewhere := newReceiver(t)
	elsewhere.answer()
	for what, change := range map[string]func(api *client.Client, webhookID string) error{
		"disable": func(api *client.Client, id string) error {
			_, err := api.UpdateWebhook(t.Context(), id, client.WebhookPatch{State: client.Set("disabled")})
			return err
		},
		"move": func(api *client.Client, id string) error {
			_, err := api.UpdateWebhook(t.Context(), id, client.WebhookPatch{URL: client.Set(elsewhere.URL)})
			return err
		},
		"delete": func(api *client.Client, id string) error {
			_, err := api.DeleteWebhook(t.Context(), id)
			return err
		},
	} {
		r := newReceiver(t)
		id := r.hook(t, api, 0)
		if err := change(c.queued(r, me.AccountID), id); err != nil {
			t.Fatal(err)
		}
		sent, _ := r.counts()
		r.answer()
		awaittest.True(t, "nothing is held", func() bool {
			return metric(t, c.nodes[0], "keygate_webhook_held") == 0 && metric(t, c.nodes[1], "keygate_webhook_held") == 0
		})
		if after, _ := r.counts(); after != sent {
			t.Errorf("%s: %d deliveries were sent when the call returned, and %d in the end", what, sent, after)
		}
		if what == "move" {
			awaittest.True(t, "a delivery to the new address", func() bool {
				got, _ := elsewhere.counts()
				return got > 0
			})
			if _, err := api.DeleteWebhook(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
}
