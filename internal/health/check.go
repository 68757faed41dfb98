package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// A result is why a check failed, in a few words that do not change; good, or notKnown.
type result string

const (
	good       result = ""
	notKnown   result = "-" // it says nothing about the target
	notAllowed result = "address_not_allowed"
	noConnect  result = "connect" // there was no connection, for another reason than the time
	timedOut   result = "timeout"
	badTLS     result = "tls"
	reset      result = "reset"     // the connection ended before the response had
	malformed  result = "malformed" // the response cannot be read, or its head is too long
)

// statusResult returns the result of a response with a status that is not good.
func statusResult(status int) result { return result("status " + strconv.Itoa(status)) }

// maxRead is how much of a response is read at most.
const maxRead = 16 << 10

// settings is the settings of checks, with what follows from them.
type settings struct {
	*snapshot.Check

	once sync.Once
	tls  *tls.Config
	err  error
}

// tlsConfig returns what TLS handshakes need.
func (s *settings) tlsConfig() (*tls.Config, error) {
	s.once.Do(func() {
		if s.tls, s.err = upstream.TLSConfig(upstream.Origin{CA: s.CA, Client: s.Client}); s.err != nil {
			return
		}
		s.tls.NextProtos = []string{"http/1.1", "h2"}
		if s.Service != nil {
			s.tls.NextProtos = []string{"h2"}
		}
	})
	return s.tls, s.err
}

// check is what is checked.
type check struct {
	health   *balance.Health
	settings *settings
	origin   upstream.Origin
	host     string // the Host that the target gets
}

func newCheck(h *balance.Health, s *settings) *check {
	c := &check{health: h, settings: s}
	key := h.Address().Key()
	c.origin = upstream.Origin{Account: key.Account, PublicOnly: s.PublicOnly, ServerName: s.ServerName}
	host, port := "", ""
	if u, err := url.Parse(key.Origin); err == nil { // always
		c.origin.Scheme, c.origin.Host, host, port = u.Scheme, u.Host, u.Hostname(), u.Port()
	}
	// A name may have led to the address, and the certificate is for the name.
	c.origin.ServerName = cmp.Or(s.ServerName, host)
	switch {
	case s.Host != "":
		c.host = s.Host
	case port == "443" && c.origin.Scheme == "https", port == "80" && c.origin.Scheme != "https":
		c.host = strings.TrimSuffix(c.origin.Host, ":"+port)
	default:
		c.host = c.origin.Host
	}
	return c
}

func (c *check) key() balance.Key { return c.health.Address().Key() }

// do checks once. It also returns the IP address and port that it has connected to, or has tried last; "" if there is none.
func (c *check) do(ctx context.Context, pools *upstream.Pools, version string) (found result, reached string) {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	connectOnly := c.settings.Path == "" && c.settings.Service == nil
	var cfg *tls.Config
	if c.origin.Scheme == "https" && !connectOnly {
		var err error
		if cfg, err = c.settings.tlsConfig(); err != nil {
			return badTLS, ""
		}
		cfg = cfg.Clone()
		cfg.ServerName = c.origin.ServerName
	}
	connected := false
	err := pools.Visit(ctx, &c.origin, c.key().Address, cfg, func(conn net.Conn, protocol string) error {
		connected, reached = true, conn.RemoteAddr().String()
		var err error
		switch {
		case connectOnly:
		case c.origin.Scheme == "h2c", protocol == "h2":
			found, err = c.exchange2(conn, version)
		case c.settings.Service != nil:
			found = badTLS // the server does not speak HTTP/2
		default:
			found, err = c.exchange1(conn, version)
		}
		return err
	})
	if err != nil {
		return resultOf(err, connected), cmp.Or(reached, triedBy(err))
	}
	return found, reached
}

// triedBy returns the address that a failed attempt to connect has tried, or "".
func triedBy(err error) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" && dial.Addr != nil {
		return dial.Addr.String()
	}
	return ""
}

// resultOf returns the result of an error.
func resultOf(err error, connected bool) result {
	var timeout interface{ Timeout() bool }
	switch reason := upstream.ReasonOf(err); {
	case reason == accesslog.AddressNotAllowed:
		return notAllowed
	case upstream.IsLocal(err), reason == accesslog.NoDescriptors:
		return notKnown
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), reason == accesslog.ConnectTimeout,
		errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	case reason == accesslog.CertificateRejected, reason == accesslog.TLSFailed:
		return badTLS
	case !connected:
		return noConnect
	case reason == accesslog.MalformedResponse, reason == accesslog.ResponseTooLarge, errors.Is(err, errTooLong):
		return malformed
	}
	return reset
}

// errTooLong is the error of a response whose first maxRead bytes do not say what it is.
var errTooLong = errors.New("health: the response is too long")

// buffers are what responses are read into.
var buffers = sync.Pool{New: func() any { return new([maxRead]byte) }} //nolint:gochecknoglobals // memory

// agent returns the User-Agent.
func agent(version string) string { return "Keygate-Health/" + version }

// exchange1 asks over HTTP/1.1.
func (c *check) exchange1(conn net.Conn, version string) (result, error) {
	buf := buffers.Get().(*[maxRead]byte)
	defer buffers.Put(buf)
	b := buf[:0]
	b = append(b, "GET "...)
	b = append(b, c.settings.Path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.host...)
	b = append(b, "\r\nUser-Agent: "...)
	b = append(b, agent(version)...)
	b = append(b, "\r\nConnection: close\r\n"...)
	for _, h := range c.settings.Headers {
		b = append(b, h.Name...)
		b = append(b, ": "...)
		b = append(b, h.Value...)
		b = append(b, "\r\n"...)
	}
	if _, err := conn.Write(append(b, "\r\n"...)); err != nil {
		return good, err
	}
	var parser http1.ResponseParser
	var head http1.Response
	n, from := 0, 0 // bytes read, and where the response begins
	for {
		done, err := parser.Parse(buf[from:n], &head)
		switch {
		case err != nil:
			return good, err
		case done && head.Status >= 200:
			readRest(conn, buf, n, int64(n-from-head.End), &head)
			if !c.settings.IsGood(head.Status) {
				return statusResult(head.Status), nil
			}
			return good, nil
		case done: // an interim response
			from += head.End
			parser.Reset()
			continue
		case n == len(buf):
			return good, errTooLong
		}
		more, err := conn.Read(buf[n:])
		if n += more; more == 0 && err != nil {
			return good, fmt.Errorf("read the response: %w", err)
		}
	}
}

// restTime is how long the rest of a response is read, whose status is known.
const restTime = 100 * time.Millisecond

// readRest reads what a response has beyond the n bytes in buf, of which have belong to the body, as far as it comes soon: the close of
// a connection with unread bytes is a reset, which servers may log.
func readRest(conn net.Conn, buf *[maxRead]byte, n int, have int64, head *http1.Response) {
	switch head.Framing(false) {
	case http1.NoBody:
		return
	case http1.ByLength:
		if head.ContentLength() <= have {
			return
		}
	case http1.ByChunks, http1.UntilClose:
	}
	_ = conn.SetReadDeadline(time.Now().Add(restTime))
	for n < len(buf) {
		more, err := conn.Read(buf[n:])
		if n += more; err != nil {
			return
		}
	}
}
