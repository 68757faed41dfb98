package proxy

import (
	"time"
	"unsafe"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// Bounds that all engines share (contract, 4.4 and 4.5).
const (
	// HeadTimeout bounds the receipt of a request's head.
	HeadTimeout = 10 * time.Second
	// FirstRequestGrace is how long a shutdown waits for the first request of a connection that was
	// opened before it. No response has told the client to use another connection yet.
	FirstRequestGrace = time.Second
	// IdleTimeout is how long a client's connection may wait for its next request.
	IdleTimeout = 120 * time.Second
	// StallTimeout is how long a client may neither send nor accept a byte while the
	// gateway waits for it.
	StallTimeout = 30 * time.Second
	// DrainBytes is how much of a refused request's body is read so that its
	// connection can serve the next request.
	DrainBytes = 64 << 10
	// LastPartTime is how long the last part of a request's body may take to be sent once the response is complete.
	LastPartTime = time.Second
	// StartedAfter is how long a request runs before a record of its start is emitted.
	StartedAfter = 150 * time.Millisecond
)

// OriginOf returns the origin of a target.
func OriginOf(t *snapshot.Target) upstream.Origin {
	return upstream.OriginOf(t.Base, upstream.Origin{
		CA: t.CA, Client: t.Client, ServerName: t.ServerName, PublicOnly: t.PublicOnly, Account: t.AccountID, Target: t.ID,
		Address: t.Address, SRV: t.SRV,
		ConnectTimeout: t.ConnectTimeout, IdleTimeout: t.IdleTimeout, MaxConnAge: t.MaxConnAge, MaxConns: t.MaxConns,
	})
}

// Retryable reports whether a request may be sent a second time after a reused connection
// failed before the first byte of a response: GET, HEAD, OPTIONS, PUT and DELETE without a
// body (contract, 4.4).
func Retryable(method string, hasBody bool) bool {
	return !hasBody && balance.Idempotent(method)
}

// ValidStatus reports whether status is allowed for a final response (RFC 9110, 15).
func ValidStatus(status int) bool { return status >= 200 && status <= 599 }

// Text returns b as a string that shares its memory. The string must not be used after b
// changes. A copy would be an allocation for each field.
func Text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // see above
}
