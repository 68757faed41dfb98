package sender_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// errRecorded prevents each connection that the guard allowed: nothing leaves this machine,
// even if the guard is broken.
var errRecorded = errors.New("recorded")

// recorder records the addresses that the sender would have connected to.
type recorder struct {
	mu    sync.Mutex
	addrs []string
}

func (r *recorder) after(_, address string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs = append(r.addrs, address)
	return errRecorded
}

func (r *recorder) reached() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.addrs...)
}

// hostile maps hosts that must not be connected to, as an attacker would write them, to the address
// that the resolver returns if the host is a name.
var hostile = map[string]string{
	"127.0.0.1": "", "127.1.2.3": "", "[::1]": "", "[0:0:0:0:0:0:0:1]": "", "[::ffff:127.0.0.1]": "", "[::ffff:7f00:1]": "",
	"[::127.0.0.1]": "", "[::ffff:0:127.0.0.1]": "", "[64:ff9b::7f00:1]": "", "[64:ff9b:1::7f00:1]": "", "[2002:7f00:1::]": "",
	"0.0.0.0": "", "[::]": "", "[::ffff:0.0.0.0]": "",
	"10.0.0.1": "", "172.16.0.1": "", "192.168.1.1": "", "100.64.0.1": "", "198.18.0.1": "", "[fd00::1]": "", "[fec0::1]": "",
	"[::ffff:10.0.0.1]": "", "[2002:c0a8:101::1]": "", "[64:ff9b::a00:1]": "",
	"169.254.169.254": "", "[::ffff:169.254.169.254]": "", "[::ffff:a9fe:a9fe]": "", "[64:ff9b::a9fe:a9fe]": "", "[2002:a9fe:a9fe::1]": "",
	"[fe80::1]": "", "[fd00:ec2::254]": "", "100.100.100.200": "", "192.0.0.192": "", "168.63.129.16": "",
	"224.0.0.1": "", "255.255.255.255": "", "240.0.0.1": "", "[ff02::1]": "",
	"localhost": "127.0.0.1", "LOCALHOST.": "127.0.0.1", "127.1": "127.0.0.1", "2130706433": "127.0.0.1", "0x7f000001": "127.0.0.1",
	"0x7f.0.0.1": "127.0.0.1", "0177.0.0.1": "127.0.0.1", "017700000001": "127.0.0.1", "0": "0.0.0.0", "2852039166": "169.254.169.254",
	"127.0.0.1.nip.test": "127.0.0.1", "metadata.google.internal": "169.254.169.254", "v6.attacker.test": "::1",
	"mapped.attacker.test": "::ffff:169.254.169.254",
}

// Guarantee: the sender never connects to an address that is not public, however it is
// spelled or resolved, over https or http. The delivery log says what to do and contains no
// address (contract, section 6).
func TestPrivateAddressesAreNotConnectedTo(t *testing.T) {
	var rec recorder
	h := newHarness(t)
	cfg := h.config()
	cfg.Allow, cfg.AllowHTTP = nil, true
	cfg.Resolver = dnstest.Resolver(func(name string) []netip.Addr {
		for host, addr := range hostile {
			if addr != "" && strings.EqualFold(strings.TrimSuffix(host, "."), name) {
				return []netip.Addr{netip.MustParseAddr(addr)}
			}
		}
		return nil
	})
	var urls []string
	for host := range hostile {
		urls = append(urls, "https://"+host+":9999/hook", "http://"+host+":9999/hook")
	}
	hooks := h.endpoints(urls...)
	h.raise(1)
	h.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
	told := map[string]bool{}
	for url, hook := range hooks {
		list := h.await(hook, url+" fails", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
		a := list[0].Attempts[0]
		refused := strings.HasPrefix(a.Error, "the receiver's address is not allowed")
		if a.Error == "the host of the URL has no address" {
			refused = true // Go's own resolver does not accept numbers as names
		}
		if a.Status != 0 || !refused {
			t.Errorf("%s: got the attempt %+v, want the address refused", url, a)
		}
		told[a.Error] = true
	}
	if delete(told, "the host of the URL has no address"); len(told) != 1 {
		t.Errorf("the errors tell addresses apart, which shows where a name leads: %v", told)
	}
	if reached := rec.reached(); len(reached) > 0 {
		t.Errorf("the guard allowed %v, want none", reached)
	}
}

// Guarantee: public addresses and the networks of --webhook-allow-network are connected to.
// Plain http is allowed only in those networks, or at public addresses with
// --webhook-allow-http.
func TestAllowedAddressesAreConnectedTo(t *testing.T) {
	h := newHarness(t)
	metadata := netip.MustParsePrefix("169.254.169.254/32")
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, tc := range []struct {
		url   string
		allow []netip.Prefix
		http  bool
		want  string // part of the error; "" if the address is connected to
	}{
		{"https://93.184.215.14/", nil, false, ""},
		{"https://[2606:2800:220:1:248:1893:25c8:1946]/", nil, false, ""},
		{"https://public.test/", nil, false, ""},
		{"http://93.184.215.14/", nil, false, "--webhook-allow-http"},
		{"http://public.test/", nil, false, "--webhook-allow-http"},
		{"http://public.test/", nil, true, ""},
		{"http://public.test/", []netip.Prefix{private}, false, "--webhook-allow-http"},
		{"https://10.1.2.3/", nil, true, "--webhook-allow-network"},
		{"http://10.1.2.3/", nil, true, "--webhook-allow-network"},
		{"http://10.1.2.3/", []netip.Prefix{private}, false, ""},
		{"https://10.1.2.3/", []netip.Prefix{private}, false, ""},
		{"https://private.test/", []netip.Prefix{private}, false, ""},
		{"http://169.254.169.254/", []netip.Prefix{private}, true, "--webhook-allow-network"},
		{"http://169.254.169.254/", []netip.Prefix{metadata}, false, ""},
		{"https://224.0.0.1/", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, true, "use another URL"},
		{"https://127.0.0.1:8081/", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, true, "Keygate's own"},
		{"https://unknown.test/", nil, true, "has no address"},
	} {
		var rec recorder
		cfg := h.config()
		cfg.Allow, cfg.AllowHTTP, cfg.Guard = tc.allow, tc.http, netguard.New()
		cfg.Guard.SetListeners(netip.MustParseAddrPort("127.0.0.1:8081"))
		cfg.Resolver = dnstest.Resolver(func(name string) []netip.Addr {
			return map[string][]netip.Addr{
				"public.test": {netip.MustParseAddr("93.184.215.14")}, "private.test": {netip.MustParseAddr("10.1.2.3")},
			}[name]
		})
		hook := h.endpoint(tc.url)
		h.raise(1)
		s := h.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
		list := h.await(hook, tc.url, func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
		a := list[0].Attempts[0]
		switch reached := rec.reached(); {
		case tc.want == "" && len(reached) == 0:
			t.Errorf("%s with %v, http %v: not connected to: %q", tc.url, tc.allow, tc.http, a.Error)
		case tc.want != "" && len(reached) > 0:
			t.Errorf("%s with %v, http %v: connected to %v, want an error that contains %q", tc.url, tc.allow, tc.http, reached, tc.want)
		case tc.want != "" && !strings.Contains(a.Error, tc.want):
			t.Errorf("%s with %v, http %v: got the error %q, want one that contains %q", tc.url, tc.allow, tc.http, a.Error, tc.want)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		h.update(func(tx control.Tx) error { return tx.DeleteWebhook(t.Context(), h.owner, hook) })
	}
}

// Guarantee: a name that resolved to a public address at the first attempt and to the
// loopback at the second is refused at the second (DNS rebinding). Of a name that resolves
// to both, only the public address is connected to.
func TestAddressIsCheckedOnEveryAttempt(t *testing.T) {
	public, loopback := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")
	var (
		rec   recorder
		mu    sync.Mutex
		asked = map[string]int{}
	)
	h := newHarness(t)
	cfg := h.config()
	cfg.Allow, cfg.Backoff = nil, [4]time.Duration{1, 1, 1, 1}
	cfg.Resolver = dnstest.Resolver(func(name string) []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		switch asked[name]++; {
		case name == "both.test":
			return []netip.Addr{loopback, public}
		case len(rec.reached()) == 0:
			return []netip.Addr{public}
		default:
			return []netip.Addr{loopback}
		}
	})
	hook := h.endpoint("https://rebinding.test:9999/")
	h.raise(1)
	s := h.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
	list := h.await(hook, "five attempts", in(1, webhook.Failed))
	for i, a := range list[0].Attempts {
		refused := strings.Contains(a.Error, "is not allowed: it must be public")
		if i == 0 && refused {
			t.Errorf("the first attempt, at a public address, was refused: %q", a.Error)
		}
		if i > 0 && !refused {
			t.Errorf("attempt %d: got the error %q, want the loopback refused", i+1, a.Error)
		}
	}
	both := h.endpoint("https://both.test:9998/")
	h.raise(1)
	s.Wake()
	h.await(both, "five attempts", in(1, webhook.Failed))
	for _, address := range rec.reached() {
		if strings.HasPrefix(address, "127.") {
			t.Errorf("the guard allowed %s", address)
		}
	}
	if n := len(rec.reached()); n < 2 {
		t.Errorf("got %d connections to public addresses (%v), want at least 2", n, rec.reached())
	}
}

// Guarantee: connecting ends when its attempt does, so that there are never more connections being
// made than attempts allow.
func TestConnectingEndsWithTheAttempt(t *testing.T) {
	virtual(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, h *harness, _ func(*sender.Sender)) {
		asked, ended := make(chan struct{}, 64), make(chan time.Time, 64)
		cfg := h.config()
		cfg.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			asked <- struct{}{}
			<-ctx.Done()
			ended <- time.Now()
			return nil, ctx.Err()
		}}
		h.endpoint("https://receiver.test/")
		h.raise(1)
		s := h.start(cfg)
		<-asked
		start := time.Now()
		if err := s.Stop(t.Context()); err != nil { // interrupts the attempt after 5 s
			t.Fatal(err)
		}
		if took := (<-ended).Sub(start); took > 6*time.Second {
			t.Errorf("connecting ended %v after the attempt was to be interrupted, want at most 6 s", took)
		}
	})
}
