package snapshot

import (
	"strings"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
)

// Snapshot is one immutable state of accounts and gateways, and the way to the
// keys in force.
type Snapshot struct {
	accounts map[string]*account.Account
	gateways map[string]*Gateway // by identifier
	hosts    map[string]*Gateway // by hostname, in lower case
	fallback *Gateway            // the only gateway of the account default
	keys     *keyTable
}

// publishable returns the snapshot of accounts and gateways, with the keys of s.
func (s *Snapshot) publishable(accounts map[string]*account.Account, gateways map[string]*Gateway) *Snapshot {
	next := &Snapshot{accounts: accounts, gateways: gateways, hosts: make(map[string]*Gateway, len(gateways)), keys: s.keys}
	ofDefault := 0
	for _, g := range gateways {
		next.hosts[g.hostname] = g
		if a := accounts[g.AccountID]; a != nil && a.IsDefault() {
			ofDefault++
			next.fallback = g
		}
	}
	if ofDefault != 1 {
		next.fallback = nil
	}
	return next
}

// GatewayByHost returns the gateway that a Host or authority reaches (contract,
// 4.1): letter case, port and final dot do not matter; a host that no gateway
// has reaches the gateway of the account default if that has exactly one. Nil
// if there is none. It does not allocate.
func (s *Snapshot) GatewayByHost(host string) *Gateway {
	if g := s.hosts[host]; g != nil {
		return g
	}
	var b [256]byte
	if g := s.hosts[string(appendHost(b[:0], host))]; g != nil {
		return g
	}
	return s.fallback
}

// appendHost appends the name in host: in lower case, without port and final
// dot. A name of more than 253 bytes is none.
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

// GatewayByID returns the gateway, or nil.
func (s *Snapshot) GatewayByID(gatewayID string) *Gateway { return s.gateways[gatewayID] }

// Account returns the account, or nil.
func (s *Snapshot) Account(accountID string) *account.Account { return s.accounts[accountID] }

// FindKey returns the key whose string is secret, of either level, expired or
// not; nil if the string is malformed, unknown or revoked. It does not allocate.
func (s *Snapshot) FindKey(secret string) *Key {
	if _, ok := apikey.LevelOf(secret); !ok {
		return nil
	}
	return s.KeyByDigest(apikey.DigestOf(secret))
}

// KeyByDigest returns the key of a digest, as FindKey does.
//
// Digests are compared like any bytes: how long a comparison takes tells how
// much of the SHA-256 of a guess agrees with a stored one, which brings nobody
// nearer to a string that has the digest.
func (s *Snapshot) KeyByDigest(d apikey.Digest) *Key { return s.keys.find(&d) }
