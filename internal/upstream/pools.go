package upstream

import (
	"errors"
	"net/netip"
	"net/url"
	"sync"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/netguard"
)

// Config is what Pools are made of.
type Config struct {
	// Guard judges every address before a connection to it. Required.
	Guard *netguard.Guard
	// Allow names the networks that upstreams of a PublicOnly origin may be in
	// beside public ones (--upstream-allow-network).
	Allow []netip.Prefix
	// ConnectTimeout bounds name resolution and connecting together. Zero is
	// 10 s.
	ConnectTimeout time.Duration
	// ContinueTimeout is how long a request with Expect: 100-continue waits for
	// the upstream's 100 before its body is sent all the same. Zero is 5 s.
	ContinueTimeout time.Duration
	// Retain is how long a pool that nobody uses is kept. Zero is 5 minutes.
	Retain time.Duration
	// IdleTimeout is how long a connection is kept idle. Zero is 90 s.
	IdleTimeout time.Duration
	// MaxConns bounds the connections of one origin. Zero is no bound. Requests
	// draining HTTP/2 beyond the streams that the upstream allows on so many wait until
	// a connection has ended all it has.
	MaxConns int
}

// Origin is everything that connections depend on.
type Origin struct {
	Scheme string // http, https or h2c
	Host   string // with the port, if the URL has one
	CA     string // PEM that replaces the system's roots, or ""
	// Client is the certificate that tells the upstream who calls, with those of its
	// issuers, and its private key, both in PEM. The zero Handle is none. It is found
	// by identity, and prints as an address.
	Client     unique.Handle[[2]string]
	PublicOnly bool // public addresses and Config.Allow alone

	// These replace those of Config unless they are zero. ConnectTimeout bounds
	// the handshake of TLS, too, once more.
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	MaxConns       int
	// Gateway is whose connections MaxConns bounds, so that gateways do not take
	// each other's; without that bound they share, and it is "".
	Gateway string
}

// OriginOf returns the origin of an upstream_url; o has what else there is to it.
func OriginOf(base *url.URL, o Origin) Origin {
	o.Scheme, o.Host = base.Scheme, base.Host
	if o.MaxConns == 0 {
		o.Gateway = ""
	}
	return o
}

// Pools finds the pool of an origin. It is safe for concurrent use.
type Pools struct {
	cfg   Config
	pools sync.Map // Origin to *Pool
	h1State

	making sync.Mutex // held while pools are added and removed
}

// NewPools returns an empty Pools.
func NewPools(cfg Config) (*Pools, error) {
	if cfg.Guard == nil {
		return nil, errors.New("upstream: a guard is required")
	}
	setDefault(&cfg.ConnectTimeout, 10*time.Second)
	setDefault(&cfg.ContinueTimeout, 5*time.Second)
	setDefault(&cfg.Retain, 5*time.Minute)
	setDefault(&cfg.IdleTimeout, 90*time.Second)
	p := &Pools{cfg: cfg}
	p.h1State.init()
	return p, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// ContinueTimeout returns how long a request with Expect: 100-continue waits for
// the upstream's leave to send its body before it is sent all the same.
func (p *Pools) ContinueTimeout() time.Duration { return p.cfg.ContinueTimeout }

// Get returns the pool of o, made at its first use. It fails only if o's CA
// cannot be read, or its client certificate. The pool is not to be kept beyond the request.
func (p *Pools) Get(o Origin) (*Pool, error) {
	now := time.Now().Unix()
	if found, ok := p.pools.Load(o); ok {
		pool := found.(*Pool)
		if pool.used.Load() != now {
			pool.used.Store(now)
		}
		return pool, nil
	}
	return p.add(o, now)
}

// add makes a pool. New origins come with changes of the configuration, so this
// is also where pools go that such changes have left behind; connections that
// are in use end with their requests.
func (p *Pools) add(o Origin, now int64) (*Pool, error) {
	p.making.Lock()
	defer p.making.Unlock()
	if found, ok := p.pools.Load(o); ok {
		return found.(*Pool), nil
	}
	pool, err := newPool(p, o)
	if err != nil {
		return nil, err
	}
	pool.used.Store(now)
	p.pools.Store(o, pool)
	p.drainPreviousOrigin(o)
	if pool.limiter != nil {
		p.startSweeping()
	}
	p.pools.Range(func(key, value any) bool {
		old := value.(*Pool)
		retain := max(p.cfg.Retain, old.origin.IdleTimeout)
		if old.used.Load() < now-int64(retain/time.Second) && !old.limiter.inUse() {
			p.pools.Delete(key)
			old.closeIdle()
		}
		return true
	})
	return pool, nil
}

// drainPreviousOrigin closes what is kept for a gateway under a bound of its own when it has
// come to another origin, so that it does not count beside what is made for that.
// p.making must be held.
func (p *Pools) drainPreviousOrigin(by Origin) {
	if by.Gateway == "" {
		return
	}
	p.h1State.pools.Range(func(key, value any) bool {
		if o := key.(Origin); o.Gateway == by.Gateway && o != by {
			p.forget(value.(*H1Pool))
		}
		return true
	})
	p.pools.Range(func(key, value any) bool {
		if o := key.(Origin); o.Gateway == by.Gateway && o != by {
			p.pools.Delete(key)
			value.(*Pool).drain()
		}
		return true
	})
}

// Close closes every connection that is not in use. Requests may still follow;
// their connections are closed when they end, or after a while.
func (p *Pools) Close() {
	p.closePlain()
	p.pools.Range(func(_, value any) bool {
		value.(*Pool).closeIdle()
		return true
	})
}
