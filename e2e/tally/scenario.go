package tally

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/keygate/keygate/client"
)

// Service is the upstream of a scenario: /n/{n} responds with n bytes, /status/{n}
// with that status, and /slow never responds.
func Service() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/n/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, strings.Repeat("x", n)) // fails only if the client closed the connection
	})
	mux.HandleFunc("/status/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			n = http.StatusBadRequest
		}
		w.WriteHeader(n)
		if n != http.StatusNoContent && n != http.StatusNotModified {
			_, _ = io.WriteString(w, "status "+strconv.Itoa(n))
		}
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

// Scenario is three gateways, with routes, limits and keys for requests of every
// kind: one in front of the service, one in front of the service with a short
// timeout, and one whose upstream cannot be reached.
type Scenario struct {
	Calls []Call
	// Slow is a call that takes a second. It is not one of Calls.
	Slow Call
}

// NewScenario creates the scenario through the management API. upstream is the URL of a Service,
// and nothing a URL at which no server listens.
func NewScenario(ctx context.Context, api *client.Client, upstream, nothing string) (*Scenario, error) {
	m := builder{ctx: ctx, api: api}
	timeout := "1s"
	// The first gateway is the default gateway. Once it is deleted there is no default gateway, so
	// that requests for unknown hosts reach no gateway.
	first := m.gateway(client.CreateGatewayRequest{Name: "first", UpstreamURL: upstream})
	live := m.gateway(client.CreateGatewayRequest{Name: "live", UpstreamURL: upstream})
	impatient := m.gateway(client.CreateGatewayRequest{Name: "impatient", UpstreamURL: upstream, Timeout: &timeout})
	dead := m.gateway(client.CreateGatewayRequest{Name: "dead", UpstreamURL: nothing})
	m.remove(first)
	n := m.route(live, "/n/{n}", nil, "GET", "POST", "DELETE")
	status := m.route(live, "/status/{n}", nil, "GET")
	slow := m.route(impatient, "/slow", nil, "GET")
	limited := m.route(live, "/limited/{n}", &client.RateLimitInput{Sustained: ptr("20/s")}, "GET")
	public := m.public(live, "/n/public")
	gone := m.route(dead, "/gone", nil, "GET")
	all, read, capped := m.key("admin", nil, nil), m.key("read", nil, nil), m.key("read", ptr("50/s"), nil)
	elsewhere := m.key("admin", nil, &dead.GatewayID)
	s := &Scenario{}
	expired := m.expired(m.key("admin", nil, nil))
	if m.err != nil {
		return nil, fmt.Errorf("create the scenario: %w", m.err)
	}
	on := func(c Call, g *client.Gateway, routeID string, k *client.NewKey) Call {
		c.Host, c.Gateway, c.Route = g.Hostname, g.GatewayID, routeID
		if c.Method == "" {
			c.Method = http.MethodGet
		}
		if k != nil {
			c.Key, c.KeyID = k.Secret, k.KeyID
		}
		return c
	}
	// The name of a call says so if it is refused or fails.
	s.Calls = []Call{
		on(Call{Name: "small", Target: "/n/10", Want: []int{200}}, live, n, all),
		on(Call{Name: "another key", Target: "/n/300", Want: []int{200}}, live, n, read),
		on(Call{Name: "with a body", Method: http.MethodPost, Target: "/n/7", Body: make([]byte, 2000), Want: []int{200}}, live, n, all),
		on(Call{Name: "large", Target: "/n/40000", Want: []int{200}}, live, n, all),
		on(Call{Name: "public", Target: "/n/public", Want: []int{400}}, live, public, nil),
		on(Call{Name: "upstream 204", Target: "/status/204", Want: []int{204}}, live, status, all),
		on(Call{Name: "upstream 302", Target: "/status/302", Want: []int{302}}, live, status, all),
		on(Call{Name: "upstream 404", Target: "/status/404", Want: []int{404}}, live, status, read),
		on(Call{Name: "upstream 500", Target: "/status/500", Want: []int{500}, Upstream: true}, live, status, all),
		on(Call{Name: "upstream 503", Target: "/status/503", Want: []int{503}, Upstream: true}, live, status, read),
		on(Call{Name: "limited route", Target: "/limited/1", Want: []int{404, 429}}, live, limited, all),
		on(Call{Name: "limited key", Target: "/n/1", Want: []int{200, 429}}, live, n, capped),
		on(Call{Name: "no key", Target: "/n/1", Want: []int{401}}, live, "", nil),
		on(Call{Name: "unknown key", Target: "/n/1", Want: []int{401}}, live, "", &client.NewKey{Secret: "kg_nonsense"}),
		on(Call{Name: "expired key", Target: "/n/1", Want: []int{401}}, live, "", expired),
		on(Call{Name: "key of another gateway", Target: "/n/1", Want: []int{403}}, live, "", elsewhere),
		on(Call{Name: "scope too low", Method: http.MethodDelete, Target: "/n/1", Want: []int{403}}, live, n, read),
		on(Call{Name: "no route", Target: "/nowhere", Want: []int{404}}, live, "", all),
		on(Call{Name: "no method", Method: http.MethodPut, Target: "/n/1", Want: []int{405}}, live, "", all),
		on(Call{Name: "upstream away", Target: "/gone", Want: []int{502}, Upstream: true}, dead, gone, all),
		{Name: "no gateway", Method: http.MethodGet, Host: "nowhere.example", Target: "/n/1", Key: all.Secret, Want: []int{404}},
	}
	s.Slow = on(Call{Name: "slow", Target: "/slow", Want: []int{504}, Upstream: true}, impatient, slow, all)
	return s, nil
}

func ptr[T any](v T) *T { return &v }

// builder creates records until the first error.
type builder struct {
	ctx context.Context //nolint:containedctx // it lives for one scenario
	api *client.Client
	err error
}

func (m *builder) gateway(in client.CreateGatewayRequest) *client.Gateway {
	if m.err != nil {
		return &client.Gateway{}
	}
	g, err := m.api.CreateGateway(m.ctx, in)
	if m.err = err; err != nil {
		return &client.Gateway{}
	}
	return g
}

func (m *builder) remove(g *client.Gateway) {
	if m.err == nil {
		_, m.err = m.api.DeleteGateway(m.ctx, g.GatewayID)
	}
}

func (m *builder) create(g *client.Gateway, in client.CreateRouteRequest) string {
	if m.err != nil {
		return ""
	}
	r, err := m.api.CreateRoute(m.ctx, g.GatewayID, in)
	if m.err = err; err != nil {
		return ""
	}
	return r.RouteID
}

func (m *builder) route(g *client.Gateway, path string, limit *client.RateLimitInput, methods ...string) string {
	return m.create(g, client.CreateRouteRequest{Path: path, Methods: methods, RateLimit: limit})
}

func (m *builder) public(g *client.Gateway, path string) string {
	return m.create(g, client.CreateRouteRequest{Path: path, Methods: []string{http.MethodGet}, Auth: ptr(client.CreateRouteRequestAuthNone)})
}

func (m *builder) key(scope string, limit, gatewayID *string) *client.NewKey {
	if m.err != nil {
		return &client.NewKey{}
	}
	in := client.CreateKeyRequest{Name: "tally", Scope: scope, GatewayID: gatewayID}
	if limit != nil {
		in.RateLimit = &client.KeyRateLimit{Rate: *limit}
	}
	k, err := m.api.CreateKey(m.ctx, in)
	if m.err = err; err != nil {
		return &client.NewKey{}
	}
	return k
}

// expired expires k by a rotation without overlap.
func (m *builder) expired(k *client.NewKey) *client.NewKey {
	if m.err == nil {
		_, m.err = m.api.RotateKey(m.ctx, k.KeyID, client.RotateKeyRequest{OverlapDays: 0})
	}
	return k
}
