package sender_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// errRecorded ends each connection that the guard would have let pass: nothing
// leaves this machine, even if the guard is broken.
var errRecorded = errors.New("recorded")

// recorder notes the addresses that would have been connected to.
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

// nameServer returns a resolver whose name server is in memory and answers for
// every name, with addrs. Nothing is lost on the way there, and nothing is late.
func nameServer(addrs func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &nameConn{addrs: addrs}, nil
	}}
}

// nameConn is a connection to a name server, as over TCP: a message has its length
// before it. What it answers is there as soon as the question is written.
type nameConn struct {
	addrs   func(name string) []netip.Addr
	in, out bytes.Buffer
}

func (c *nameConn) Write(p []byte) (int, error) {
	c.in.Write(p)
	const prefix = 2
	for c.in.Len() >= prefix {
		n := int(binary.BigEndian.Uint16(c.in.Bytes()))
		if c.in.Len() < prefix+n {
			break
		}
		answer, err := answerTo(c.in.Next(prefix + n)[prefix:], c.addrs)
		if err != nil {
			return 0, err
		}
		c.out.Write(binary.BigEndian.AppendUint16(nil, uint16(len(answer))))
		c.out.Write(answer)
	}
	return len(p), nil
}

func (c *nameConn) Read(p []byte) (int, error)       { return c.out.Read(p) }
func (c *nameConn) Close() error                     { return nil }
func (c *nameConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *nameConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *nameConn) SetDeadline(time.Time) error      { return nil }
func (c *nameConn) SetReadDeadline(time.Time) error  { return nil }
func (c *nameConn) SetWriteDeadline(time.Time) error { return nil }

func answerTo(query []byte, addrs func(name string) []netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	for _, a := range addrs(strings.TrimSuffix(q.Name.String(), ".")) {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, Type: q.Type}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

// hostile are hosts that must not be reached, as somebody would write them, with
// the address that a resolver gives for those that are no addresses.
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

// Guarantee: no spelling of an address that is not public is connected to, by
// https or http, with whatever a name resolves to; the log names the remedy and
// no address (contract, 6).
func TestHostileAddresses(t *testing.T) {
	var rec recorder
	b := newBed(t)
	cfg := b.config()
	cfg.Allow, cfg.AllowHTTP = nil, true
	cfg.Resolver = nameServer(func(name string) []netip.Addr {
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
	hooks := b.endpoints(urls...)
	b.raise(1)
	b.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
	for url, hook := range hooks {
		list := b.await(hook, url+" fails", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
		a := list[0].Attempts[0]
		refused := strings.HasPrefix(a.Error, "the receiver's address is refused")
		if a.Error == "the host of the URL has no address" {
			refused = true // Go's own resolver takes no numbers for names
		}
		if a.Status != 0 || !refused || strings.Contains(a.Error, "9999") {
			t.Errorf("%s: %+v", url, a)
		}
	}
	if reached := rec.reached(); len(reached) > 0 {
		t.Errorf("would have connected to %v", reached)
	}
}

// Guarantee: public addresses, and those that a setting names, are let through,
// plain http only where a setting names the network or allows it in public.
func TestAllowedAddresses(t *testing.T) {
	b := newBed(t)
	metadata := netip.MustParsePrefix("169.254.169.254/32")
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, tc := range []struct {
		url   string
		allow []netip.Prefix
		http  bool
		want  string // part of the error; "" if it is connected to
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
		{"https://224.0.0.1/", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, true, "give another URL"},
		{"https://127.0.0.1:8081/", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, true, "Keygate's own"},
		{"https://unknown.test/", nil, true, "has no address"},
	} {
		var rec recorder
		cfg := b.config()
		cfg.Allow, cfg.AllowHTTP, cfg.Guard = tc.allow, tc.http, netguard.New()
		cfg.Guard.SetListeners(netip.MustParseAddrPort("127.0.0.1:8081"))
		cfg.Resolver = nameServer(func(name string) []netip.Addr {
			return map[string][]netip.Addr{
				"public.test": {netip.MustParseAddr("93.184.215.14")}, "private.test": {netip.MustParseAddr("10.1.2.3")},
			}[name]
		})
		hook := b.endpoint(tc.url)
		b.raise(1)
		s := b.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
		list := b.await(hook, tc.url, func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
		a := list[0].Attempts[0]
		if reached := len(rec.reached()) > 0; reached != (tc.want == "") || tc.want != "" && !strings.Contains(a.Error, tc.want) {
			t.Errorf("%s with %v, %v: reached %v, %q", tc.url, tc.allow, tc.http, reached, a.Error)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		b.update(func(tx control.Tx) error { return tx.DeleteWebhook(t.Context(), b.owner, hook) })
	}
}

// Guarantee: a name that was public at the first attempt and is the loopback at
// the second is refused then, and so is one that is both at once, but for its
// public part.
func TestRebinding(t *testing.T) {
	public, loopback := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")
	var (
		rec   recorder
		mu    sync.Mutex
		asked = map[string]int{}
	)
	b := newBed(t)
	cfg := b.config()
	cfg.Allow, cfg.Backoff = nil, [4]time.Duration{1, 1, 1, 1}
	cfg.Resolver = nameServer(func(name string) []netip.Addr {
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
	hook := b.endpoint("https://rebinding.test:9999/")
	b.raise(1)
	s := b.start(cfg, func(s *sender.Sender) { s.Refuse(rec.after) })
	list := b.await(hook, "five attempts", in(1, webhook.Failed))
	for i, a := range list[0].Attempts {
		if refused := strings.Contains(a.Error, "loopback"); refused != (i > 0) {
			t.Errorf("attempt %d: %q", i+1, a.Error)
		}
	}
	both := b.endpoint("https://both.test:9998/")
	b.raise(1)
	s.Wake()
	b.await(both, "five attempts", in(1, webhook.Failed))
	for _, address := range rec.reached() {
		if strings.HasPrefix(address, "127.") {
			t.Errorf("would have connected to %s", address)
		}
	}
	if n := len(rec.reached()); n < 2 {
		t.Errorf("%d connections to public addresses: %v", n, rec.reached())
	}
}
