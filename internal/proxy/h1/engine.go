package h1

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// Config is the configuration of an Engine.
type Config struct {
	proxy.Config
	// Forward serves an admitted request whose upstream is not plain HTTP/1.1, as an
	// http.Handler would. It emits the access record of x. Required.
	Forward func(w http.ResponseWriter, r *http.Request, x *proxy.Exchange)
	// Now reads the clock of timeouts and of the field Date, once in each tick. Nil is
	// time.Now.
	Now func() time.Time
}

// ConnInfo is what the listener knows about a connection.
type ConnInfo struct {
	// Client is the address of the peer, or the one that a trusted proxy named by the
	// PROXY protocol.
	Client netip.AddrPort
	// Trusted says that the peer is a trusted proxy, whose X-Forwarded-* fields count.
	Trusted bool
	// TLS says that the client's connection is encrypted.
	TLS bool
	// Prefix holds bytes that were received already. It is not kept.
	Prefix []byte
}

var errConfig = errors.New("h1: Forward is required")
