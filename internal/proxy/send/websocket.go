package send

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it, and no secret depends on it
	"encoding/base64"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

const (
	webSocket       = "websocket"
	webSocketKey    = "sec-websocket-key"
	webSocketAccept = "sec-websocket-accept"
)

// NewWebSocketKey returns a value for Sec-WebSocket-Key (RFC 6455, 4.1).
func NewWebSocketKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// AcceptsWebSocket reports whether a 101 accepts the WebSocket that a request with key asked for.
func AcceptsWebSocket(head []byte, r *http1.Response, key string) bool {
	const fixed = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // RFC 6455, 1.3
	sum := sha1.Sum([]byte(key + fixed))                 //nolint:gosec // see above
	value, n := proxy.HeaderValue(r.Fields(), head, webSocketAccept)
	return n == 1 && value == base64.StdEncoding.EncodeToString(sum[:]) &&
		proxy.Offered(webSocket, proxy.Text(proxy.ValueOf(head, r.Fields(), http1.Upgrade)))
}

func isWebSocketKey(name []byte) bool { return http1.EqualFold(name, webSocketKey) }

// IsWebSocketAccept reports whether a field is Sec-WebSocket-Accept, which responses over HTTP/2
// do not have.
func IsWebSocketAccept(name []byte) bool { return http1.EqualFold(name, webSocketAccept) }
