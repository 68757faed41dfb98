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

// ReasonOf returns why an exchange with an upstream failed with err, for the engines of the
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
	return accesslog.NoReason
}

// IsLocal reports whether a failure to connect says nothing about the server: this machine has no port, memory or descriptor
// left.
func IsLocal(err error) bool {
	for _, errno := range [...]syscall.Errno{syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, errNoDescriptors)
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
	case err != nil && strings.Contains(err.Error(), "tls: "): // most errors of crypto/tls have no type
		return accesslog.TLSFailed
	}
	return accesslog.NoReason
}

// reasonOfResponse returns the reason of a failure to read a response.
func reasonOfResponse(err error) accesslog.Reason {
	var (
		reset     *ResetError
		malformed http2.MalformedError
		broken    *http2.ConnError
	)
	switch {
	case errors.Is(err, http1.ErrHead):
		return accesslog.ResponseTooLarge
	case errors.Is(err, http1.ErrSyntax), errors.Is(err, http1.ErrVersion), errors.Is(err, http1.ErrChunk):
		return accesslog.MalformedResponse
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ETIMEDOUT): // the host has vanished
		return accesslog.ClosedEarly
	case errors.As(err, &reset) && reset.Local, errors.As(err, &malformed), errors.As(err, &broken):
		return accesslog.MalformedResponse
	case reset != nil, errors.Is(err, errSilent), errors.Is(err, errSendTimeout):
		return accesslog.ClosedEarly
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
	return strings.TrimSpace(err.Error())
}
