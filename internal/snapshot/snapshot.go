package snapshot

import (
	"strings"
	"sync"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
)

// Snapshot is an immutable state of accounts and gateways, with access to the keys in
// force. See the package documentation.
type Snapshot struct {
	accounts map[string]*account.Account
	gateways map[string]*Gateway // by ID
	hosts    map[string]*Gateway // by hostname, in lower case; nil for gateways of suspended accounts
	fallback *Gateway            // the default gateway, or nil
	keys     *keyTable

	indexAccounts sync.Once
	byAccount     map[string][]*Gateway // set by indexAccounts: most snapshots are never asked
}

// publishable returns a snapshot of accounts and gateways with the keys of s. The gateways of a suspended
// account are compiled and keep the state of their limits, but no host leads to them. If two gateways have
// the same hostname, or are both the default gateway, because one has taken it over from the other, the
// gateway whose record was read later counts. If none of gateways is the default gateway, because the new
// default gateway is not compiled yet or cannot be, the former one remains.
func (s *Snapshot) publishable(accounts map[string]*account.Account, gateways map[string]*Gateway) *Snapshot {
	next := &Snapshot{accounts: accounts, gateways: gateways, hosts: make(map[string]*Gateway, len(gateways)), keys: s.keys}
	reads := make(map[string]int64, len(gateways)) // by hostname
	for _, g := range gateways {
		if g.isDefault && (next.fallback == nil || next.fallback.read < g.read) {
			next.fallback = g
		}
		if last, taken := reads[g.hostname]; taken && last > g.read {
			continue
		}
		reads[g.hostname] = g.read
		next.hosts[g.hostname] = g
		if a := accounts[g.AccountID]; a == nil || a.State == account.Suspended { // nil: deleted
			next.hosts[g.hostname] = nil // not the fallback
		}
	}
	if next.fallback == nil && s.fallback != nil {
		next.fallback = gateways[s.fallback.ID]
	}
	return next
}

// GatewayByHost returns the gateway for the value of Host or :authority (contract, 4.1), or nil,
// also for a gateway of a suspended account. It ignores letter case, the port and a final dot. For
// an unknown host it returns the default gateway, if there is one. GatewayByHost does not allocate.
func (s *Snapshot) GatewayByHost(host string) *Gateway {
	if g, known := s.hosts[host]; known {
		return g
	}
	var b [256]byte
	if g, known := s.hosts[string(appendHost(b[:0], host))]; known {
		return g
	}
	return s.fallback
}

// Withdrawn reports whether host, as in GatewayByHost, belongs to a gateway of a suspended account.
func (s *Snapshot) Withdrawn(host string) bool {
	var b [256]byte
	g, known := s.hosts[string(appendHost(b[:0], host))]
	return known && g == nil
}

// appendHost appends the name in host, in lower case, without port and final dot. It
// appends nothing if the name is longer than 253 bytes, which no hostname is.
func appendHost(dst []byte, host string) []byte {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 { // not within an IPv6 address
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	if len(host) > 253 {
		return dst
	}
	for i := range len(host) {
		c := host[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// Serving returns the gateway as it is now, or nil if requests do not reach it any more: it is deleted,
// or its account is suspended or deleted.
func (s *Snapshot) Serving(gatewayID, accountID string) *Gateway {
	if a := s.accounts[accountID]; a == nil || a.State == account.Suspended {
		return nil
	}
	return s.gateways[gatewayID]
}

// Renewed returns c, the caller of a key, as it is now, or nil if the key is revoked.
func (s *Snapshot) Renewed(c *Caller) *Caller {
	if k := s.keys.findShort(&c.digest); k != nil {
		return &k.Caller
	}
	return nil
}

// GatewayByID returns the gateway, also of a suspended account, or nil.
func (s *Snapshot) GatewayByID(gatewayID string) *Gateway { return s.gateways[gatewayID] }

// Account returns the account, even if it is suspended, or nil if there is none or it is deleted.
func (s *Snapshot) Account(accountID string) *account.Account { return s.accounts[accountID] }

// FindKey returns the key with the given key string, of either level, expired or not. It
// returns nil if the string is malformed, unknown or revoked. It does not allocate.
func (s *Snapshot) FindKey(secret string) *Key {
	if _, ok := apikey.LevelOf(secret); !ok {
		return nil
	}
	return s.KeyByDigest(apikey.DigestOf(secret))
}

// HasImported reports whether any account has an imported key in force. It costs one atomic load.
func (s *Snapshot) HasImported() bool { return s.keys.imported.Load() != 0 }

// KeyByDigest returns the key with the digest d, or nil.
//
// The comparison of digests need not take constant time: its duration reveals how much of
// the SHA-256 of a guess agrees with a stored digest, which does not help to find a key
// string with that digest.
func (s *Snapshot) KeyByDigest(d apikey.Digest) *Key { return s.keys.find(&d) }

// KnownHost returns the hostname of the gateway that host, as in GatewayByHost, belongs to. It is "" if host belongs to none, or to one
// of a suspended account.
func (s *Snapshot) KnownHost(host string) string {
	var b [256]byte
	if g := s.hosts[string(appendHost(b[:0], host))]; g != nil {
		return g.hostname
	}
	return ""
}
