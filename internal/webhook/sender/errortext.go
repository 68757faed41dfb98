package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/netguard"
)

// Causes of failed attempts.
var (
	errTimeout = errors.New("the attempt timed out")
	errSecret  = errors.New("cannot decrypt the signing secret")
	errBadURL  = errors.New("the URL is not valid")
	errPlain   = errors.New("plain http is not allowed to this address")
)

const errorNotHTTP = "the request failed, or the response is not valid HTTP"

// publicText returns the error of an attempt for the endpoint's owner: what went wrong and
// what to do. It contains no address that a name resolved to and no internal text.
func (s *Sender) publicText(ctx context.Context, err error) string {
	var (
		refused   *netguard.RefusedError
		dns       *net.DNSError
		record    tls.RecordHeaderError
		unknown   x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		bounds    servercert.BoundsError
		handshake tls.AlertError
	)
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return "no complete response within 30 s"
	case errors.Is(err, errSecret):
		return "the signing secret could not be decrypted: rotate it, or start the server with the --secret-key-file that encrypted it"
	case errors.Is(err, errBadURL):
		return "the URL is not valid: register it again"
	case errors.As(err, &refused) && !refused.Unlisted:
		return "the receiver's address is not allowed, because " + refused.Reason + ": use another URL"
	case refused != nil:
		return "the receiver's address is not allowed: it must be public, or in a network that the server was started with as --webhook-allow-network"
	case errors.Is(err, errPlain):
		return "plain http is not allowed for the receiver's address: use https, or start the server with --webhook-allow-network and the address's network, or with --webhook-allow-http if the address is public"
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "the host of the URL has no address"
		}
		return "the DNS lookup of the URL's host failed"
	case errors.As(err, &unknown):
		return "the receiver's TLS certificate is signed by an unknown authority"
	case errors.As(err, &host):
		return "the receiver's TLS certificate is for another host"
	case errors.As(err, &invalid):
		return "the receiver's TLS certificate is not valid: it has expired or must not be used for servers"
	case errors.As(err, &bounds):
		return "the receiver sent " + string(bounds)
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the receiver does not use TLS on this port"
	case errors.As(err, &handshake):
		return "the TLS handshake failed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the receiver's network cannot be reached"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before the response was complete"
	default:
		return errorNotHTTP
	}
}
