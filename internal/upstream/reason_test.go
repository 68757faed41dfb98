package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/netguard"
)

// dialError returns an error of net.Dialer.
func dialError(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// Guarantee: each cause has its reason and its status, and an unknown cause has no reason.
func TestReasonOfCause(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  accesslog.Reason
	}{
		{dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED)), accesslog.ConnectionRefused},
		{dialError(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), accesslog.HostUnreachable},
		{dialError(os.NewSyscallError("connect", syscall.ENETUNREACH)), accesslog.HostUnreachable},
		{dialError(os.NewSyscallError("socket", syscall.EMFILE)), accesslog.NoDescriptors},
		{dialError(os.NewSyscallError("socket", syscall.ENFILE)), accesslog.NoDescriptors},
		{dialError(os.ErrDeadlineExceeded), accesslog.ConnectTimeout},
		{dialError(&net.DNSError{Err: "no such host", IsNotFound: true}), accesslog.NameNotFound},
		{dialError(&net.DNSError{Err: "server misbehaving", IsTemporary: true}), accesslog.NameLookupFailed},
		{dialError(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), accesslog.NameLookupFailed},
		{dialError(&netguard.RefusedError{Reason: "it is a private address"}), accesslog.AddressNotAllowed},
		{&tls.CertificateVerificationError{Err: errors.New("x509")}, accesslog.CertificateRejected},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, accesslog.TLSFailed},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, accesslog.TLSFailed},
		{fmt.Errorf("x: %w", http1.ErrHead), accesslog.ResponseTooLarge},
		{fmt.Errorf("x: %w", http1.ErrSyntax), accesslog.MalformedResponse},
		{http1.ErrChunk, accesslog.MalformedResponse},
		{io.ErrUnexpectedEOF, accesslog.ClosedEarly},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, accesslog.ClosedEarly},
		{syscall.EPIPE, accesslog.ClosedEarly},
		{errors.New("tls: server selected unsupported protocol version 301"), accesslog.TLSFailed},
		{errors.New("something else"), accesslog.NoReason},
	} {
		err := Unreachable(c.cause)
		status := fault.UpstreamUnreachable
		if c.want == accesslog.NoDescriptors {
			status = fault.Unavailable
		}
		if got := ReasonOf(err); got != c.want || err.Code != status {
			t.Errorf("%v: got reason %q, code %s; want %q, %s", c.cause, got, err.Code, c.want, status)
		}
		if got := DetailOf(err); got != c.cause.Error() {
			t.Errorf("got detail %q, want %q", got, c.cause)
		}
	}
	if got := ReasonOf(TimedOut(nil)); got != accesslog.ResponseTimeout {
		t.Errorf("a timeout without a cause: got reason %q, want %q", got, accesslog.ResponseTimeout)
	}
}
