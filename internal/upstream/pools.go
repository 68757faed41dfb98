package upstream

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/netguard"
)

// Config configures Pools.
type Config struct {
	// Guard checks every address before a connection to it. Required.
	Guard *netguard.Guard
	// Allow lists networks in which upstreams of a PublicOnly origin may be, in addition to public
	// networks (--upstream-allow-network).
	Allow []netip.Prefix
	// Resolver resolves the names of upstreams. Nil means the system's.
	Resolver *net.Resolver
	// ConnectTimeout bounds name resolution and connecting together. Zero means 10 s.
	ConnectTimeout time.Duration
	// ContinueTimeout is how long a request with Expect: 100-continue waits for the
	// upstream's 100 before its body is sent anyway. Zero means 5 s.
	ContinueTimeout time.Duration
	// Retain is how long an unused pool is kept. Zero means 5 minutes.
	Retain time.Duration
	// IdleTimeout is how long an idle connection is kept. Zero means 90 s.
	IdleTimeout time.Duration
	// MaxConnAge is the age after which a connection is not used for new requests, so that
	// an upstream whose name moves is followed. Zero means 5 minutes; otherwise it is at
	// least a second.
	MaxConnAge time.Duration
	// MaxConns is the limit of connections to one origin. Zero means no limit. An HTTP/2
	// request that finds no free stream on these connections waits until one of the
	// connections has ended all its exchanges.
	MaxConns int
	// MaxDescriptors is the number of file descriptors that connections to upstreams may
	// hold, dials included. Beyond it a request fails with fault.Unavailable. Zero means no
	// limit.
	MaxDescriptors int
	// RestTime is how long a connection rests after a response without a body: see H1Conn.Rest. Zero means
	// 5 ms. If an upstream sends a body by mistake, it arrives within that time, unless the upstream is far away.
	RestTime time.Duration
}

// Origin is everything that a connection depends on: scheme, host, port and connection
// settings. Pools are keyed by it.
type Origin struct {
	Scheme string // http, https or h2c
	Host   string // includes the port if the URL has one
	// Address is the IP address and port to which connections go, for a server that has the name in Host. "" looks that name
	// up at each connect: its addresses, or if SRV is set its SRV records.
	Address string
	SRV     bool
	CA      string // PEM certificates that replace the system's roots, or ""
	// Client is the client certificate with its chain, and its private key, both in PEM.
	// The zero Handle means none. Handles compare by identity, and print as an address
	// rather than as the key.
	Client unique.Handle[[2]string]
	// ServerName is the name that the server's certificate must have; "" for that in Host.
	ServerName string
	PublicOnly bool // connect only to public addresses and Config.Allow
	// Account is the account whose gateways use the connections. Accounts do not share
	// connections, and each has its share of Config.MaxDescriptors.
	Account string

	// These override the fields of Config unless they are zero. ConnectTimeout bounds connecting,
	// and again the TLS handshake.
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	MaxConnAge     time.Duration
	MaxConns       int
	// Target names the target of a gateway whose connections MaxConns limits, so that targets do
	// not use up each other's connections. It is "" if MaxConns is zero: then targets share
	// connections.
	Target string
}

// OriginOf returns o with the scheme and host of base, an upstream_url.
func OriginOf(base *url.URL, o Origin) Origin {
	o.Scheme, o.Host = base.Scheme, base.Host
	if o.MaxConns == 0 {
		o.Target = ""
	}
	return o
}

// Pools finds the pools of an origin. It is safe for concurrent use.
type Pools struct {
	cfg     Config
	budget  budget
	replays replays
	h1State
	h2State h2State

	now func() time.Duration // the time since the start, by a monotonic clock, for the age of connections

	making  sync.Mutex // held to add or remove a pool
	weights weights

	sessions sessionRoom
}

// NewPools returns a Pools without any pool. The only error is a missing Config.Guard.
func NewPools(cfg Config) (*Pools, error) {
	if cfg.Guard == nil {
		return nil, errors.New("upstream: Config.Guard is required")
	}
	setDefault(&cfg.ConnectTimeout, 10*time.Second)
	setDefault(&cfg.ContinueTimeout, 5*time.Second)
	setDefault(&cfg.Retain, 5*time.Minute)
	setDefault(&cfg.IdleTimeout, 90*time.Second)
	setDefault(&cfg.MaxConnAge, 5*time.Minute)
	setDefault(&cfg.RestTime, 5*time.Millisecond)
	p := &Pools{cfg: cfg, budget: budget{max: int64(cfg.MaxDescriptors)}, weights: weights{max: maxAccountWeight}}
	p.h1State.init()
	start := time.Now()
	p.h2State.start = start
	p.now = func() time.Duration { return time.Since(start) }
	return p, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// ContinueTimeout returns Config.ContinueTimeout or its default.
func (p *Pools) ContinueTimeout() time.Duration { return p.cfg.ContinueTimeout }

// drainPreviousOrigin drains the pools of by.Target's other origins, if the target has its own
// limit. These are the origins that it had before its settings changed. Their connections then do
// not count in addition to the new ones. It leaves other targets of the gateway alone. The caller
// holds p.making.
func (p *Pools) drainPreviousOrigin(by Origin) {
	if by.Target == "" {
		return
	}
	p.h1State.pools.Range(func(key, value any) bool {
		if o := key.(Origin); o.Target == by.Target && o != by {
			p.forget(value.(*H1Pool))
		}
		return true
	})
	p.h2State.pools.Range(func(key, value any) bool {
		if o := key.(Origin); o.Target == by.Target && o != by {
			p.forgetMultiplexed(value.(*H2Pool))
		}
		return true
	})
}

// Close closes every connection that is not in use. Requests may still follow; their
// connections close when they end or when they have been idle for too long.
func (p *Pools) Close() {
	p.closePlain()
	p.closeMultiplexed()
}
