package upstream

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/netguard"
)

// ReasonOf returns why an exchange with an upstream failed with err, for the drivers of the
// data plane. It is accesslog.NoReason if that is unknown.
func ReasonOf(err error) accesslog.Reason {
	for _, of := range [...]func(error) accesslog.Reason{reasonToConnect, reasonOfTLS, reasonOfResponse} {
		if r := of(err); r != accesslog.NoReason {
			return r
		}
	}
	if fault.CodeOf(err) == fault.UpstreamTimeout {
		return accesslog.ResponseTimeout
	}
	return reasonOfText(err)
}

// reasonToConnect returns the reason of a failure to connect.
func reasonToConnect(err error) accesslog.Reason {
	var (
		refused *netguard.RefusedError
		lookup  *net.DNSError
		dial    *net.OpError
		timeout interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &refused):
		return accesslog.AddressNotAllowed
	case errors.Is(err, errNoFreeConnection):
		return accesslog.NoFreeConnection
	case errors.Is(err, errNoDescriptors), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return accesslog.NoDescriptors
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return accesslog.NameNotFound
	case lookup != nil:
		return accesslog.NameLookupFailed
	case errors.Is(err, errConnectTimeout),
		errors.As(err, &dial) && dial.Op == "dial" && errors.As(err, &timeout) && timeout.Timeout():
		return accesslog.ConnectTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return accesslog.ConnectionRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, syscall.EHOSTDOWN), errors.Is(err, syscall.ENETDOWN):
		return accesslog.HostUnreachable
	}
	return accesslog.NoReason
}

// reasonOfTLS returns the reason of a failure of TLS.
func reasonOfTLS(err error) accesslog.Reason {
	var (
		rejected *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		alert    *net.OpError
	)
	switch {
	case errors.As(err, &rejected):
		return accesslog.CertificateRejected
	case errors.As(err, &record):
		return accesslog.TLSFailed
	case errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error"):
		return accesslog.TLSFailed
	}
	return accesslog.NoReason
}

// streamError has the fields of an HTTP/2 stream error, so that one of net/http, which does
// not export its type, can be assigned to it by errors.As.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return "HTTP/2 stream error" }

// reasonOfResponse returns the reason of a failure to read a response.
func reasonOfResponse(err error) accesslog.Reason {
	var (
		stream    streamError
		reset     *ResetError
		malformed http2.MalformedError
		broken    *http2.ConnError
	)
	switch {
	case errors.Is(err, http1.ErrHead):
		return accesslog.ResponseTooLarge
	case errors.Is(err, http1.ErrSyntax), errors.Is(err, http1.ErrVersion), errors.Is(err, http1.ErrChunk):
		return accesslog.MalformedResponse
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return accesslog.ClosedEarly
	case errors.As(err, &reset) && reset.Local, errors.As(err, &malformed), errors.As(err, &broken):
		return accesslog.MalformedResponse
	case reset != nil, errors.Is(err, errSilent), errors.Is(err, errSendTimeout):
		return accesslog.ClosedEarly
	case errors.As(err, &stream) && (stream.Cause == nil || stream.Cause.Error() == "received from peer"):
		return accesslog.ClosedEarly
	}
	return accesslog.NoReason
}

// reasonOfText returns the reason of an error of net/http that has nothing but a text.
func reasonOfText(err error) accesslog.Reason {
	if err == nil {
		return accesslog.NoReason
	}
	text := err.Error()
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("TLS handshake timeout"):
		return accesslog.ConnectTimeout
	case has("tls: "):
		return accesslog.TLSFailed
	case has("response headers exceeded", "header list larger", "header list too large"):
		return accesslog.ResponseTooLarge
	case has("server closed idle connection", "GOAWAY", "client connection lost", "use of closed network connection"):
		return accesslog.ClosedEarly
	case has("malformed", "PROTOCOL_ERROR", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR", "failed reading the frame payload", "frame too large", "1xx informational", "net/http: HTTP/1.x transport connection broken"):
		return accesslog.MalformedResponse
	}
	return accesslog.NoReason
}

// DetailOf returns the text of the cause of err, for an operator: it may contain addresses
// and names, but nothing that the upstream has sent.
func DetailOf(err error) string {
	for public := (*fault.Error)(nil); errors.As(err, &public); {
		err = public.Err
	}
	if err == nil {
		return ""
	}
	text := err.Error()
	if i := strings.IndexByte(text, '"'); i >= 0 && ReasonOf(err) == accesslog.MalformedResponse {
		text = text[:i] // net/http quotes what it cannot parse
	}
	return strings.TrimSpace(text)
}
