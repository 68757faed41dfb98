package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

// explain returns the *Error for err. It does not show a tenant where a name leads in a network that is not open to it.
func explain(ctx context.Context, err error) *Error {
	if known, ok := errorOf(err); ok {
		return known
	}
	return &Error{Message: messageOf(ctx, err), Err: err}
}

// messageOf says in words why a request failed.
func messageOf(ctx context.Context, err error) string {
	var (
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
	switch {
	case errors.As(err, &refused) && refused.Unlisted:
		return "the provider's address is not allowed: providers of this account must have public addresses"
	case errors.As(err, &refused):
		return "the provider's address is not allowed, because " + refused.Reason
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "the provider took longer than 10 s"
	case errors.As(err, &bounds):
		return "the provider sent " + string(bounds)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the provider's host has no address: check its name"
	case errors.As(err, &dns):
		return "the DNS lookup of the provider's host failed"
	case errors.As(err, &unknown):
		return "the provider's TLS certificate is signed by an unknown authority: set ca to the certificate of the authority"
	case errors.As(err, &host):
		return "the provider's TLS certificate is for another host"
	case errors.As(err, &invalid):
		return "the provider's TLS certificate is not valid: it has expired or must not be used for servers"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the provider does not use TLS on this port"
	case errors.As(err, &handshake):
		return "the TLS handshake with the provider failed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the provider refused the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the provider's network cannot be reached"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the provider took longer than 10 s"
	case strings.Contains(err.Error(), "gzip"):
		return "the provider's response is not the gzip that it says it is"
	}
	return "the connection to the provider ended before the response was complete"
}
