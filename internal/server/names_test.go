package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
)

// namedTarget is a target at an address of a name. A request for /slow is answered in two parts, the second after release.
type namedTarget struct {
	got     atomic.Int64
	release chan struct{}
}

// ServeHTTP implements http.Handler.
func (n *namedTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.got.Add(1)
	_, _ = io.WriteString(w, r.Host)
	if r.URL.Path == "/slow" {
		_ = http.NewResponseController(w).Flush()
		<-n.release
		_, _ = io.WriteString(w, " whole")
	}
}

// startNamed starts a target at each of some addresses, all with the same port.
func startNamed(t *testing.T, addrs ...string) (targets []*namedTarget, port string) {
	t.Helper()
	var listeners []net.Listener
	for range 20 {
		for i, addr := range addrs {
			if i == 0 {
				port = "0"
			}
			l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
			if err != nil {
				break
			}
			listeners = append(listeners, l)
			_, port, _ = net.SplitHostPort(l.Addr().String())
		}
		if len(listeners) == len(addrs) {
			break
		}
		for _, l := range listeners {
			_ = l.Close()
		}
		listeners = nil
	}
	if listeners == nil {
		t.Skip("this machine cannot listen on other addresses than 127.0.0.1")
	}
	for _, l := range listeners {
		target := &namedTarget{release: make(chan struct{})}
		s := httptest.NewUnstartedServer(target)
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
		targets = append(targets, target)
	}
	return targets, port
}

// putUpstream creates or replaces the upstream default of a gateway.
func putUpstream(t *testing.T, s *keygatetest.Server, key, gatewayID, body string) {
	t.Helper()
	if r := s.Call("PUT", "/v1/gateways/"+gatewayID+"/upstreams/default", key, body); r.Status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", r.Status, r.Body)
	}
}

// Guarantee (targets.md, section 5): requests are spread over the addresses of a name. One that is gone from the name gets no more
// requests, and those in flight end; one that is new joins; one to which Keygate may not connect gets none, and costs no request.
func TestRequestsFollowAName(t *testing.T) {
	targets, port := startNamed(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	var z dnstest.Zone
	z.SetHost("app.test", "127.0.0.1", "127.0.0.2")
	s := keygatetest.StartWith(t, keygatetest.Options{Resolver: z.Resolver()})
	g := openGateway(t, s, "http://app.test:"+port)
	putUpstream(t, s, s.AdminKey, g.GatewayID, `{"targets":[{"url":"http://app.test:`+port+`","resolve":"a"}],"refresh":"1s"}`)

	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != http.StatusOK || r.Body != "app.test:"+port {
					t.Errorf("got %d %q; want 200 with the host of the URL", r.Status, r.Body)
					return
				}
			}
		})
	}
	more := func(what string, of ...*namedTarget) {
		t.Helper()
		for _, one := range of {
			before := one.got.Load()
			awaittest.True(t, what, func() bool { return one.got.Load() > before+10 })
		}
	}
	more("both addresses get requests", targets[0], targets[1])

	var slow []keygatetest.Response
	var mu sync.Mutex
	var ends sync.WaitGroup
	for range 6 {
		ends.Go(func() {
			r := s.Through("", http.MethodGet, "/slow", "", "")
			mu.Lock()
			defer mu.Unlock()
			slow = append(slow, r)
		})
	}
	more("slow requests begin", targets[0], targets[1])
	z.SetHost("app.test", "127.0.0.1", "127.0.0.3")
	more("the new address gets requests", targets[2])
	quiet := targets[1].got.Load()
	more("the others get requests", targets[0], targets[2])
	if n := targets[1].got.Load(); n != quiet {
		t.Errorf("the address that is gone got %d more requests", n-quiet)
	}
	for _, one := range targets {
		close(one.release)
	}
	ends.Wait()
	for _, r := range slow {
		if r.Status != http.StatusOK || r.Body != "app.test:"+port+" whole" {
			t.Errorf("a request in flight got %d %q; want it whole", r.Status, r.Body)
		}
	}

	z.SetHost("app.test", "127.0.0.1", "169.254.169.254")
	asked := z.Asked("app.test")
	awaittest.True(t, "the name is looked up again", func() bool { return z.Asked("app.test") > asked+4 })
	more("the address that is allowed gets requests", targets[0])
	z.SetBroken("app.test", true)
	asked = z.Asked("app.test")
	awaittest.True(t, "look-ups fail", func() bool { return z.Asked("app.test") > asked+4 })
	more("the last address gets requests", targets[0])
	close(stop)
	callers.Wait()
	if got := scrape(t, s); !strings.Contains(got, `keygate_target_requests_total{gateway="`+g.GatewayID+`",target="127.0.0.1:`+port+`",upstream="default"}`) {
		t.Error("there are no metrics of the address")
	}
}

// Guarantee (contract, 4.6; the guard at the second look-up): a name that had an address to which an account may connect, and has
// another one at the next look-up, leads no request of the account there.
func TestGuardAtTheSecondLookUp(t *testing.T) {
	targets, port := startNamed(t, "127.0.0.1", "127.0.0.2")
	var z dnstest.Zone
	z.SetHost("app.test", "127.0.0.1")
	s := keygatetest.StartWith(t, keygatetest.Options{Resolver: z.Resolver(), Args: []string{"--upstream-allow-network", "127.0.0.1/32"}})
	a, err := s.Admin.CreateAccount(t.Context(), client.CreateAccountRequest{Name: "acme", Plan: "starter"})
	if err != nil {
		t.Fatal(err)
	}
	admin := s.Client(a.Secret)
	g, err := admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: "http://app.test:" + port})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PushConfig(t.Context(), g.GatewayID, []byte("routes: [{path: /*, methods: [GET], auth: none}]"), false); err != nil {
		t.Fatal(err)
	}
	putUpstream(t, s, a.Secret, g.GatewayID, `{"targets":[{"url":"http://app.test:`+port+`","resolve":"a"}],"refresh":"1s"}`)
	if r := s.Through(g.Hostname, http.MethodGet, "/a", "", ""); r.Status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", r.Status, r.Body)
	}
	z.SetHost("app.test", "127.0.0.2")
	awaittest.True(t, "the address is refused", func() bool {
		return s.Through(g.Hostname, http.MethodGet, "/a", "", "").Status == http.StatusBadGateway
	})
	for range 20 {
		if r := s.Through(g.Hostname, http.MethodGet, "/a", "", ""); r.Status != http.StatusBadGateway || !strings.Contains(r.Body, "upstream_unreachable") {
			t.Errorf("got %d %s, want 502 upstream_unreachable", r.Status, r.Body)
		}
	}
	if n := targets[1].got.Load(); n > 0 {
		t.Errorf("an address that is not allowed got %d requests", n)
	}
	// Where the name leads in the operator's network is shown nowhere, not even while it also has an address that is allowed.
	z.SetHost("app.test", "127.0.0.1", "127.0.0.2")
	before := targets[0].got.Load()
	awaittest.True(t, "the other address gets requests", func() bool {
		s.Through(g.Hostname, http.MethodGet, "/a", "", "")
		return targets[0].got.Load() > before+10
	})
	shown := scrape(t, s)
	for r, err := range admin.Requests(t.Context(), client.RequestFilter{}) {
		text, errJSON := json.Marshal(r)
		if err != nil || errJSON != nil {
			t.Fatal(err, errJSON)
		}
		shown += string(text)
	}
	if !strings.Contains(shown, "app.test:"+port) || strings.Contains(shown, "127.0.0.2") {
		t.Errorf("metrics and records do not have the name alone:\n%s", shown)
	}
}

// Guarantee (section 5): SRV records give the ports; those with the lowest priority get the requests, and others only while none
// of these is left. Over https every address proves with a certificate that it is the host.
func TestRequestsFollowSRVRecords(t *testing.T) {
	pair := certificatetest.New(t, "orders.internal")
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	var z dnstest.Zone
	z.SetHost("one.test", "127.0.0.1")
	var servers []*httptest.Server
	var got [2]atomic.Int64
	var records []net.SRV
	for i := range got {
		up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got[i].Add(1)
			_, _ = io.WriteString(w, r.Host+" "+r.TLS.ServerName)
		}))
		up.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		up.StartTLS()
		t.Cleanup(up.Close)
		servers = append(servers, up)
		records = append(records, net.SRV{Target: "one.test.", Port: uint16(up.Listener.Addr().(*net.TCPAddr).Port), Priority: uint16(i)})
	}
	z.SetServices("_https._tcp.test", records...)
	s := keygatetest.StartWith(t, keygatetest.Options{Resolver: z.Resolver()})
	g := openGateway(t, s, "https://127.0.0.1:1")
	ca, err := json.Marshal(string(pair.Cert))
	if err != nil {
		t.Fatal(err)
	}
	const target = `"targets":[{"url":"https://_https._tcp.test","resolve":"srv"}]`
	if r := s.Call("PUT", "/v1/gateways/"+g.GatewayID+"/upstreams/default", s.AdminKey, `{`+target+`}`); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, `"host"`) {
		t.Errorf("without host: got %d %s, want a 422 of host", r.Status, r.Body)
	}
	putUpstream(t, s, s.AdminKey, g.GatewayID, `{`+target+`,"host":"orders.internal","ca":`+string(ca)+`,"refresh":"1s"}`)
	for range 20 {
		if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != http.StatusOK || r.Body != "orders.internal orders.internal" {
			t.Fatalf("got %d %s, want 200 and the host", r.Status, r.Body)
		}
	}
	// The first requests may have come before the look-up, and took the records in their order, too.
	if got[0].Load() != 20 || got[1].Load() != 0 {
		t.Errorf("the targets got %d and %d requests; want 20 and 0", got[0].Load(), got[1].Load())
	}
	servers[0].Close()
	if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != http.StatusOK || got[1].Load() != 1 {
		t.Errorf("without the first target: got %d %s, and the other one has %d requests; want 200 and 1", r.Status, r.Body, got[1].Load())
	}
	putUpstream(t, s, s.AdminKey, g.GatewayID, `{`+target+`,"host":"other.internal","ca":`+string(ca)+`}`)
	if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != http.StatusBadGateway {
		t.Errorf("with the certificate of another host: got %d %s, want 502", r.Status, r.Body)
	}
}

// Guarantee (section 5): over https an address of a name proves with a certificate that it is the name in the URL, which it is asked for.
func TestAddressesProveTheirName(t *testing.T) {
	pair := certificatetest.New(t, "app.test")
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.TLS.ServerName) }))
	up.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	_, port, _ := net.SplitHostPort(up.Listener.Addr().String())
	var z dnstest.Zone
	z.SetHost("app.test", "127.0.0.1")
	z.SetHost("other.test", "127.0.0.1")
	s := keygatetest.StartWith(t, keygatetest.Options{Resolver: z.Resolver()})
	g := openGateway(t, s, "https://127.0.0.1:1")
	ca, err := json.Marshal(string(pair.Cert))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"app.test": http.StatusOK, "other.test": http.StatusBadGateway} {
		putUpstream(t, s, s.AdminKey, g.GatewayID, `{"targets":[{"url":"https://`+host+":"+port+`","resolve":"a"}],"ca":`+string(ca)+`}`)
		at := `target="127.0.0.1:` + port + `"`
		awaittest.True(t, "the name is looked up", func() bool { return strings.Contains(scrape(t, s), at) })
		if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != want || want == http.StatusOK && r.Body != host {
			t.Errorf("%s: got %d %s, want %d", host, r.Status, r.Body, want)
		}
	}
}

// Guarantee: a server starts, and serves its other gateways, while no name server responds. A name that was never looked up is a 502
// whose record says why.
func TestStartWithoutNameServer(t *testing.T) {
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	var z dnstest.Zone
	up := keygatetest.NewUpstream(t)
	s := keygatetest.StartWith(t, keygatetest.Options{Resolver: silent})
	g := openGateway(t, s, up.URL)
	putUpstream(t, s, s.AdminKey, g.GatewayID, `{"targets":[{"url":"http://app.test","resolve":"a"},{"url":"`+up.URL+`"}]}`)
	s.Restart()
	for range 10 {
		if r := s.Through("", http.MethodGet, "/a", "", ""); r.Status != http.StatusOK {
			t.Fatalf("got %d %s, want 200 of the target that needs no name", r.Status, r.Body)
		}
	}

	named := keygatetest.StartWith(t, keygatetest.Options{Resolver: z.Resolver()})
	g = openGateway(t, named, up.URL)
	for _, kind := range []string{"a", "srv"} {
		putUpstream(t, named, named.AdminKey, g.GatewayID, fmt.Sprintf(`{"targets":[{"url":"http://app.test","resolve":%q}]}`, kind))
		r := named.Through("", http.MethodGet, "/a", "", "")
		if r.Status != http.StatusBadGateway || !strings.Contains(r.Body, "upstream_unreachable") {
			t.Errorf("%s: got %d %s, want 502 upstream_unreachable", kind, r.Status, r.Body)
		}
		record, err := named.Admin.RequestByID(t.Context(), r.Header.Get("X-Request-Id"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(record); err != nil || !strings.Contains(string(text), "name_not_found") {
			t.Errorf("%s: got the record %s, error %v; want name_not_found", kind, text, err)
		}
	}
}
