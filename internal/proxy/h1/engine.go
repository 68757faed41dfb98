package h1

import (
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// Config is the configuration of an Engine.
type Config struct {
	proxy.Config
	// Now reads the clock for timeouts and the Date field, once in each tick. Nil means
	// time.Now.
	Now func() time.Time
	// MaxPipes bounds the number of pipes through which long bodies go from socket to socket. Each
	// has two file descriptors. Further bodies are copied. 0 means DefaultMaxPipes.
	MaxPipes int
}

// DefaultMaxPipes is the default of Config.MaxPipes.
const DefaultMaxPipes = 512

// ConnInfo describes a connection as its listener accepted it.
type ConnInfo struct {
	// Client is the address of the peer, or the source address in the PROXY header of a
	// trusted proxy.
	Client netip.AddrPort
	// Trusted is set if the peer is a trusted proxy, whose X-Forwarded-* fields are
	// accepted.
	Trusted bool
	// TLS is set if the client's connection is encrypted.
	TLS bool
	// Entered, if set, is called once the engine has the connection: a Shutdown that begins later waits
	// for it.
	Entered func()
	// Prefix holds bytes that have already been received. It is not retained.
	Prefix []byte
}
