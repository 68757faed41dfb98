package admit

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// imported stores a key of the account with a string that is not one of Keygate's; edit may change it first.
func (h *harness) imported(accountID, secret string, edit func(*apikey.Key)) apikey.Key {
	h.t.Helper()
	of, ok := id.Parse(id.Account, accountID)
	if !ok {
		h.t.Fatalf("%q is not an account ID", accountID)
	}
	k := apikey.Key{
		ID: id.New(id.Key), AccountID: accountID, Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Admin}},
		Digest: apikey.ImportedDigest(of, apikey.DigestOf(secret)), Imported: true,
	}
	k.BucketID = k.ID
	if edit != nil {
		edit(&k)
	}
	h.source.PutKey(k)
	h.catchUp()
	return k
}

const foreignKey = "sk_live_51HxAbCdEfGhIjKlMnOpQr"

// Guarantee: an imported key is accepted as Bearer, in the gateway's key_headers and as api_key, on the gateways of its
// account alone; like any other key it may be restricted to a gateway, expire, be revoked, and be limited to scopes.
func TestImportedKey(t *testing.T) {
	h := newHarness(t)
	other := account.Account{ID: id.New(id.Account), Name: "other"}
	h.source.PutAccount(other)
	one := h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = "one.example", true }, route("/*", "GET", "DELETE"))
	h.gateway(func(g *gateway.Gateway) {
		g.Hostname, g.HostGiven = "headers.example", true
		g.Requests.KeyHeaders = []string{"X-Old-Key"}
	}, route("/*", "GET"))
	h.gateway(func(g *gateway.Gateway) { g.Hostname, g.HostGiven, g.AccountID = "other.example", true, other.ID }, route("/*", "GET"))
	long := strings.Repeat("aB3$", 128)
	k := h.imported(h.account.ID, foreignKey, nil)
	whole := h.imported(h.account.ID, long, nil)
	h.imported(h.account.ID, foreignKey+"-expired", func(k *apikey.Key) { k.ExpiresAt = h.clock.Wall().Add(-time.Second) })
	h.imported(h.account.ID, foreignKey+"-of-one", func(k *apikey.Key) { k.GatewayID = one.ID })
	h.imported(h.account.ID, foreignKey+"-reads", func(k *apikey.Key) { k.Scope = apikey.Scopes{{Word: apikey.Read, Resource: "a"}} })
	both := h.imported(h.account.ID, foreignKey+"-of-both", nil)
	bothToo := h.imported(other.ID, foreignKey+"-of-both", nil)
	bearer := func(host, secret string) Request {
		return Request{Host: host, Target: "/a", Authorization: "Bearer " + secret}
	}
	for _, tc := range []struct {
		name   string
		req    Request
		code   fault.Code
		auth   fault.AuthCode
		caller string
	}{
		{"as Bearer", bearer("one.example", foreignKey), "", "", k.ID},
		{"512 characters", bearer("one.example", long), "", "", whole.ID},
		{"as api_key", Request{Host: "one.example", Target: "/a?api_key=" + strings.ReplaceAll(foreignKey, "_", "%5F")}, "", "", k.ID},
		{"in a key header", Request{Host: "headers.example", Target: "/a", Header: headers{"X-Old-Key", foreignKey}}, "", "", k.ID},
		{"with another character", bearer("one.example", foreignKey+"x"), fault.Unauthorized, fault.KeyInvalid, ""},
		{"513 characters", bearer("one.example", long+"a"), fault.Unauthorized, fault.KeyInvalid, ""},
		{"on a gateway of another account", bearer("other.example", foreignKey), fault.Unauthorized, fault.KeyInvalid, ""},
		{"that two accounts have, on one", bearer("one.example", foreignKey+"-of-both"), "", "", both.ID},
		{"that two accounts have, on the other", bearer("other.example", foreignKey+"-of-both"), "", "", bothToo.ID},
		{"expired", bearer("one.example", foreignKey+"-expired"), fault.Unauthorized, fault.KeyExpired, ""},
		{"for its gateway", bearer("one.example", foreignKey+"-of-one"), "", "", "any"},
		{"for another gateway", Request{Host: "headers.example", Target: "/a?api_key=" + foreignKey + "-of-one", Header: headers{}}, fault.Forbidden, fault.ScopeInsufficient, ""},
		{"with a scope", bearer("one.example", foreignKey+"-reads"), "", "", "any"},
		{"with another scope", Request{Method: "DELETE", Host: "one.example", Target: "/a", Authorization: "Bearer " + foreignKey + "-reads"}, fault.Forbidden, fault.ScopeInsufficient, ""},
	} {
		v := h.decide(tc.req)
		if v.Code != tc.code || v.Auth != tc.auth || (tc.code == "") != (v.Action == Forward) {
			t.Errorf("a key %s: got action %d, %q, %q, want %q, %q", tc.name, v.Action, v.Code, v.Auth, tc.code, tc.auth)
		}
		if tc.caller != "" && tc.caller != "any" && (v.Caller == nil || v.Caller.ID() != tc.caller) {
			t.Errorf("a key %s: got another caller, want %s", tc.name, tc.caller)
		}
	}
	k.RevokedAt = h.clock.Wall()
	h.source.PutKey(k)
	h.catchUp()
	v := h.decide(bearer("one.example", foreignKey))
	if v.Auth != fault.KeyInvalid || id.Format(id.Key, v.RevokedKey) != k.ID {
		t.Errorf("a revoked key: got %q and the key %x, want key_invalid and its identifier for records", v.Auth, v.RevokedKey)
	}
}

// Guarantee: a string with the form of Keygate's own keys is never looked up as an imported key, even if its hash was
// imported, and an own key's string is not accepted as another account's.
func TestOwnFormIsNotImported(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/*", "GET"))
	secret, err := apikey.Generate(apikey.GatewayLevel, h.random)
	if err != nil {
		t.Fatal(err)
	}
	h.imported(h.account.ID, secret, nil)
	mistyped := secret[:len(secret)-1] + "!"
	h.imported(h.account.ID, mistyped, nil)
	for _, s := range []string{secret, mistyped} {
		if v := h.decide(Request{Target: "/", Authorization: "Bearer " + s}); v.Auth != fault.KeyInvalid {
			t.Errorf("got action %d, want key_invalid for a string with the form of an own key", v.Action)
		}
	}
}

// Guarantee: after 60 failed authentications of an address within 60 seconds, imported keys are not looked up for it:
// a valid one is refused like one that does not exist, and no 401 that follows from that prolongs this. Own keys,
// other addresses and the same address later are not affected. The failures do not count while no account has an
// imported key.
func TestFailuresOfAnAddress(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/*", "GET"))
	_, own := h.key(nil)
	ask := func(client, secret string) *Verdict {
		return h.decide(Request{Target: "/", Authorization: "Bearer " + secret, Client: netip.MustParseAddr(client)})
	}
	for range 2 * maxFailures {
		ask("192.0.2.1", "wrong-wrong-wrong-wrong")
	}
	h.imported(h.account.ID, foreignKey, nil)
	for i := range maxFailures {
		if v := ask("192.0.2.1", foreignKey); v.Action != Forward {
			t.Fatalf("after %d failures: got %q, want a valid key to be accepted", i, v.Code)
		}
		wrong := []string{"wrong-wrong-wrong-wrong", "", "kg_short"}[i%3]
		if v := ask("192.0.2.1", wrong); v.Auth != fault.KeyInvalid || v.KeyReason == accesslog.AddressFailed {
			t.Fatalf("got %q and the reason %v, want key_invalid with another reason", v.Auth, v.KeyReason)
		}
		h.clock.Advance(500 * time.Millisecond)
	}
	for range 3 * maxFailures {
		if v := ask("192.0.2.1", foreignKey); v.Auth != fault.KeyInvalid || v.KeyReason != accesslog.AddressFailed || v.Caller != nil {
			t.Fatalf("got action %d and the reason %v, want key_invalid and %v", v.Action, v.KeyReason, accesslog.AddressFailed)
		}
	}
	if v := ask("192.0.2.1", own); v.Action != Forward {
		t.Errorf("an own key at the address: got %q, want it accepted", v.Code)
	}
	for _, other := range []string{"192.0.2.2", "2001:db8::1"} {
		if v := ask(other, foreignKey); v.Action != Forward {
			t.Errorf("at %s: got %q, want the key accepted", other, v.Code)
		}
	}
	h.clock.Advance(30*time.Second - time.Nanosecond) // 60 s after the first failure, less 1 ns
	if v := ask("192.0.2.1", foreignKey); v.Action == Forward {
		t.Error("the key was accepted while 60 failures were within 60 s")
	}
	h.clock.Advance(time.Nanosecond)
	if v := ask("192.0.2.1", foreignKey); v.Action != Forward {
		t.Errorf("60 s after the first failure: got %q, want the key accepted", v.Code)
	}
}

// Guarantee: an IPv6 network of 64 bits is one address, so that a client's many addresses do not help it to guess.
func TestFailuresOfANetwork(t *testing.T) {
	h := newHarness(t)
	h.gateway(nil, route("/*", "GET"))
	h.imported(h.account.ID, foreignKey, nil)
	for i := range maxFailures {
		h.decide(Request{Target: "/", Client: netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1))})
	}
	if v := h.decide(Request{Target: "/", Authorization: "Bearer " + foreignKey, Client: netip.MustParseAddr("2001:db8::ffff")}); v.Action == Forward {
		t.Error("the key was accepted for another address of the network, want key_invalid")
	}
}

// Guarantee: whatever the times of failures, an address has failed too often exactly if 60 of its failures lie within
// the last 60 s.
func TestFailuresAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, now, times := newFailures(), int64(0), []int64(nil)
		client := clientip.GroupOf(netip.MustParseAddr("192.0.2.1"))
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.Int64Range(0, 2*failureWindow/maxFailures).Draw(t, "wait")
			f.add(client, now)
			times = append(times, now)
			within := 0
			for _, at := range times {
				if now-at < failureWindow {
					within++
				}
			}
			if got := f.tooMany(client, now); got != (within >= maxFailures) {
				t.Fatalf("after %d failures within the window: tooMany is %v", within, got)
			}
		}
	})
}

// Guarantee: however many addresses fail, a bounded number is counted on their own; the others count together, so that
// none of them has more guesses. When the failures are old, there is room again.
func TestFailuresAreBounded(t *testing.T) {
	f := newFailures()
	nth := func(i int) clientip.Group {
		return clientip.GroupOf(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	const addresses = 4 * failureShards * maxFailing
	for i := range addresses {
		f.add(nth(i), int64(i))
	}
	own := 0
	for i := range f.shards {
		own += len(f.shards[i].of)
		if n := len(f.shards[i].of); n > maxFailing {
			t.Fatalf("a shard counts %d addresses, want at most %d", n, maxFailing)
		}
	}
	if own != failureShards*maxFailing {
		t.Errorf("%d addresses are counted on their own, want %d", own, failureShards*maxFailing)
	}
	if !f.tooMany(nth(addresses), addresses) {
		t.Error("an address that is not counted on its own has guesses left, want none while so many fail")
	}
	late := 2 * failureWindow
	if f.tooMany(nth(addresses), late) {
		t.Error("an address has failed too often without failures within the window")
	}
	f.add(nth(addresses), late)
	if s := f.shard(nth(addresses)); s.of[nth(addresses)] == nil || len(s.of) != 1 {
		t.Errorf("%d addresses are counted after the window, want the one that failed", len(s.of))
	}
}

// manyImported is a source with n imported keys of an account, which are generated when they are read.
type manyImported struct {
	snapshot.Source
	accountID string
	n         int
}

func (m *manyImported) secret(i int) string { return fmt.Sprintf("sk_live_%022d", i*7919) }

func (m *manyImported) EachKey(_ context.Context, _ time.Time, f func(*apikey.Key) error) error {
	of, _ := id.Parse(id.Account, m.accountID)
	k := apikey.Key{AccountID: m.accountID, Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}}, Imported: true}
	for i := range m.n {
		k.ID = id.New(id.Key)
		k.Digest, k.BucketID = apikey.ImportedDigest(of, apikey.DigestOf(m.secret(i))), k.ID
		if err := f(&k); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkImportedLookUp looks imported keys up among a million, each with the same bound of 150 ns (contract, edge, section 4),
// and reports the live heap for each of them, which is at most 120 bytes. The address has failed before, as those of large
// networks often have.
func BenchmarkImportedLookUp(b *testing.B) {
	const keys = 1_000_000
	var many *manyImported
	h := newHarnessWith(b, func(cfg *snapshot.Config) {
		many = &manyImported{Source: cfg.Source}
		cfg.Source = many
	})
	g := h.gateway(nil, route("/*", "GET"))
	empty := liveHeap()
	many.accountID, many.n = h.account.ID, keys
	if err := h.follower.Load(context.Background()); err != nil {
		b.Fatal(err)
	}
	perKey := float64(liveHeap()-empty) / keys
	secrets := make([]string, 4096)
	for i := range secrets {
		secrets[i] = many.secret(i * 233)
	}
	s := h.follower.Current()
	client := netip.MustParseAddr("192.0.2.1")
	h.admit.failures.add(clientip.GroupOf(client), h.clock.Now().Mono)
	d := decision{req: &Request{Client: client}, verdict: new(Verdict), follower: h.follower, failures: h.admit.failures, now: h.clock.Now()}
	compiled := s.GatewayByID(g.ID)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if k, _ := d.findImported(s, compiled, secrets[i%len(secrets)]); k == nil {
			b.Fatal("not found")
		}
		i++
	}
	b.ReportMetric(perKey, "B/key")
	if perKey > 120 {
		b.Errorf("%.0f bytes of live heap per key, want at most 120", perKey)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
