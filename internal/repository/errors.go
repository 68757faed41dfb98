package repository

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

// finish returns the error of a call: nil, an *Error without secrets, or the end of the caller's
// context.
func finish(ctx context.Context, s *Source, err error) error {
	if err == nil {
		return nil
	}
	var reported *serverError
	if errors.As(err, &reported) { // before it is cut
		err = &serverError{s.Credential.redact(reported.text)}
	}
	known := explain(ctx, err)
	if known == nil {
		return ctx.Err()
	}
	known.Message = s.Credential.redact(known.Message)
	return known
}

// explain returns the *Error for err, and nil if the caller gave up.
func explain(ctx context.Context, err error) *Error {
	var (
		known     *Error
		reported  *serverError
		refused   *netguard.RefusedError
		dns       *net.DNSError
		unknown   x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		bounds    servercert.BoundsError
		record    tls.RecordHeaderError
		handshake tls.AlertError
		timeout   net.Error
	)
	say := func(k Kind, format string, args ...any) *Error {
		p := problem(k, format, args...)
		p.Err = err
		return p
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, errStalled):
		return say(TooSlow, "the server sends too slowly: less than 16 KiB in 30 s")
	case errors.Is(err, errUnprepared):
		return say(TooSlow, "the server takes too long to prepare the commit: its first byte did not come in 2 minutes")
	case errors.Is(ctx.Err(), context.Canceled):
		return nil
	case errors.As(err, &refused):
		if refused.Unlisted {
			return say(Refused, "the server's address is not allowed: repositories of this account must have public addresses")
		}
		return say(Refused, "the server's address is not allowed, because %s", refused.Reason)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return say(TooSlow, "the server took too long")
	case errors.As(err, &reported):
		return say(NoRepository, "the server reports: %s", printable(reported.text, 200))
	case errors.As(err, &bounds):
		return say(Unreachable, "the server sent %s", string(bounds))
	case errors.As(err, &dns) && dns.IsNotFound:
		return say(Unreachable, "the host of the URL has no address: check its name")
	case errors.As(err, &dns):
		return say(Unreachable, "the DNS lookup of the URL's host failed")
	case errors.As(err, &unknown):
		return say(Unreachable, "the server's TLS certificate is signed by an unknown authority")
	case errors.As(err, &host):
		return say(Unreachable, "the server's TLS certificate is for another host")
	case errors.As(err, &invalid):
		return say(Unreachable, "the server's TLS certificate is not valid: it has expired or must not be used for servers")
	case errors.As(err, &record):
		return say(Unreachable, "the server does not use TLS on this port")
	case errors.As(err, &handshake):
		return say(Unreachable, "the TLS handshake failed")
	case errors.Is(err, syscall.ECONNREFUSED):
		return say(Unreachable, "the server refused the connection")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return say(Unreachable, "the server's network cannot be reached")
	case errors.As(err, &timeout) && timeout.Timeout():
		return say(TooSlow, "the server took too long")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return say(Unreachable, "the connection ended before the response was complete")
	}
	return say(Malformed, "the server's response does not follow Git's protocol")
}

// redact removes the secrets of a credential from a text of the server.
func (c *Credential) redact(text string) string {
	for _, secret := range []string{c.Password, c.Token} {
		if len(secret) < 4 {
			continue
		}
		text = strings.ReplaceAll(text, secret, "***")
		basic := base64.StdEncoding.EncodeToString([]byte(c.user() + ":" + secret))
		text = strings.ReplaceAll(text, basic, "***")
	}
	return text
}

// printable returns a text from outside as one line of at most n characters, without what could
// control a terminal.
func printable(text string, n int) string {
	var b strings.Builder
	space := true
	for _, r := range text {
		if n == 0 {
			b.WriteString("…")
			break
		}
		if unicode.IsSpace(r) {
			r = ' '
		}
		if r == ' ' && space || r == utf8.RuneError || !unicode.IsPrint(r) {
			continue
		}
		space = r == ' '
		b.WriteRune(r)
		n--
	}
	return strings.TrimSpace(b.String())
}
