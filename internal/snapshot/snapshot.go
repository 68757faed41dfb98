package snapshot

import (
	"net/url"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
)

// Snapshot is one immutable state of accounts and gateways, and the way to the
// keys in force.
type Snapshot struct{}

// GatewayByHost returns the gateway that a Host or authority reaches (contract,
// 4.1): letter case, port and final dot do not matter; a host that no gateway
// has reaches the gateway of the account default if that has exactly one. Nil
// if there is none.
func (s *Snapshot) GatewayByHost(host string) *Gateway { panic("x") }

// GatewayByID returns the gateway, or nil.
func (s *Snapshot) GatewayByID(gatewayID string) *Gateway { panic("x") }

// Account returns the account, or nil.
func (s *Snapshot) Account(accountID string) *account.Account { panic("x") }

// FindKey returns the key whose string is secret, of either level, expired or
// not; nil if the string is malformed, unknown or revoked. It does not allocate.
func (s *Snapshot) FindKey(secret string) *Key { panic("x") }

// Key is one key in force. It is immutable but for the mark of its use.
type Key struct{}

// ID returns the key's identifier. It allocates; AppendID does not.
func (k *Key) ID() string { panic("x") }

// AppendID appends the key's identifier to dst.
func (k *Key) AppendID(dst []byte) []byte { panic("x") }

// AccountID returns the identifier of the key's account.
func (k *Key) AccountID() string { panic("x") }

// Level returns which plane the key opens.
func (k *Key) Level() apikey.Level { panic("x") }

// Scope returns what the key may do.
func (k *Key) Scope() apikey.Scope { panic("x") }

// Owner returns whose key it is, or "".
func (k *Key) Owner() string { panic("x") }

// GatewayID returns the gateway that the key is restricted to, or "".
func (k *Key) GatewayID() string { panic("x") }

// BucketID names the per-key bucket that the key shares with its partner in a
// rotation.
func (k *Key) BucketID() [16]byte { panic("x") }

// Expired reports whether the key's expiry has come at the time now.
func (k *Key) Expired(now time.Time) bool { panic("x") }

// MarkUsed records that the key authenticated a request at the time at. It does
// not allocate or block.
func (k *Key) MarkUsed(at time.Time) { panic("x") }

// Gateway is a compiled gateway.
type Gateway struct {
	ID        string
	AccountID string
	Upstream  Upstream
	// CORS is nil if preflights are forwarded like any request.
	CORS *CORS
	// MaxBodyBytes is the largest request body; 0 is no bound.
	MaxBodyBytes int64
}

// Upstream is where a gateway forwards to. Two upstreams with equal URL, CA and
// Timeout can share connections.
type Upstream struct {
	URL     string   // as stored
	Base    *url.URL // URL parsed; not to be changed
	CA      string   // PEM that replaces the system's roots, or ""
	Timeout time.Duration
	Headers []Header // set on every forwarded request; opened, sorted by name
	// PublicOnly tells that the gateway's account may reach public addresses
	// alone (contract, 4.6).
	PublicOnly bool
}

// Header is one field that is set on forwarded requests.
type Header struct{ Name, Value string }

// CORS is a compiled answer to browsers of other origins.
type CORS struct {
	Methods string // the value of Access-Control-Allow-Methods, or ""
	Headers string // the value of Access-Control-Allow-Headers, or ""
	MaxAge  string // the value of Access-Control-Max-Age, or ""
}

// AllowOrigin returns the value of Access-Control-Allow-Origin for a request
// with the given Origin, or "" if the origin is not allowed.
func (c *CORS) AllowOrigin(origin string) string { panic("x") }

// Route is a compiled route.
type Route struct {
	ID      string
	Path    string   // the template as stored
	Methods []string // as stored
	Public  bool     // auth: none
}
