package server

import (
	"log/slog"
	"net"
	"testing"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
)

// addressed is a listener that only has an address.
type addressed struct {
	net.Listener
	addr net.Addr
}

func (l addressed) Addr() net.Addr { return l.addr }

// Guarantee: a management API beyond loopback without TLS is warned about in the log; on
// loopback, or with TLS, nothing is.
func TestExposedManagementListenerIsWarnedAbout(t *testing.T) {
	for _, c := range []struct {
		ip      string
		secured bool
		want    int
	}{
		{"127.0.0.1", false, 0}, {"127.8.0.1", false, 0}, {"::1", false, 0}, {"::ffff:127.0.0.1", false, 0},
		{"0.0.0.0", false, 1}, {"::", false, 1}, {"192.0.2.1", false, 1}, {"2001:db8::1", false, 1},
		{"0.0.0.0", true, 0}, {"2001:db8::1", true, 0},
	} {
		var log logtest.Recorder
		s := &Server{log: slog.New(slog.NewTextHandler(&log, nil))}
		s.listeners.admin = addressed{addr: &net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8081}}
		if c.secured {
			s.certificates.admin = &certificate.Set{}
		}
		if s.warnExposed(); log.Count("level=WARN") != c.want {
			t.Errorf("%s, TLS %v: got log %q, want %d warnings", c.ip, c.secured, log.String(), c.want)
		}
	}
}
