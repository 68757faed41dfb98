package tlspump

import (
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/tlspump/tlspumptest"
)

// testTimeout bounds every wait of a test. Reaching it is a failure.
const testTimeout = time.Minute

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// harness is a server's connection, which is pumped, and its client.
type harness struct {
	t      *testing.T
	server *tls.Conn
	conn   *Conn
	tcp    *net.TCPConn
	raw    syscall.RawConn
	client *tls.Conn
	wire   *wire
	keys   *tlspumptest.Keys
}

// wire is the client's TCP connection. It keeps what is written while captured is not nil.
type wire struct {
	*net.TCPConn
	captured *[]byte
}

func (w *wire) Write(b []byte) (int, error) {
	if w.captured != nil {
		*w.captured = append(*w.captured, b...)
		return len(b), nil
	}
	return w.TCPConn.Write(b)
}

// SetWriteDeadline does nothing: CloseWrite of a *tls.Conn ends writes by a deadline.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

func start(t *testing.T, version uint16) *harness {
	t.Helper()
	pair := certificatetest.New(t, "localhost")
	dir := t.TempDir()
	cert, err := tls.LoadX509KeyPair(pair.Write(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, tcp: accepted.(*net.TCPConn), wire: &wire{TCPConn: dialed.(*net.TCPConn)}, keys: &tlspumptest.Keys{}}
	for _, c := range []net.Conn{accepted, dialed} {
		_ = c.SetDeadline(time.Now().Add(testTimeout))
	}
	h.conn = Wrap(h.tcp, h.tcp)
	h.server = tls.Server(h.conn, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: version, MaxVersion: version, DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true})
	h.client = tls.Client(h.wire, &tls.Config{ServerName: "localhost", RootCAs: pair.Pool(t), MaxVersion: version, KeyLogWriter: h.keys, DynamicRecordSizingDisabled: true})
	var both sync.WaitGroup
	var failed error
	both.Go(func() { failed = h.server.Handshake() })
	err = h.client.Handshake()
	both.Wait()
	if err != nil || failed != nil {
		t.Fatalf("handshake: client %v, server %v", err, failed)
	}
	if h.raw, err = h.tcp.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	if Of(h.server) != h.conn {
		t.Fatal("Of does not return the Conn below the server's connection")
	}
	t.Cleanup(func() { _ = accepted.Close(); _ = dialed.Close() })
	return h
}

// capture returns the ciphertext of what f writes to the client.
func (h *harness) capture(f func()) (ciphertext []byte) {
	h.wire.captured = &ciphertext
	f()
	h.wire.captured = nil
	return ciphertext
}

// seal returns the records of messages, one for each.
func (h *harness) seal(messages ...string) []byte {
	return h.capture(func() {
		for _, m := range messages {
			if _, err := h.client.Write([]byte(m)); err != nil {
				h.t.Fatal(err)
			}
		}
	})
}

// arrive sends bytes to the server and waits until they are in its socket.
func (h *harness) arrive(b []byte) {
	h.t.Helper()
	if _, err := h.wire.TCPConn.Write(b); err != nil {
		h.t.Fatal(err)
	}
	if err := h.raw.Read(func(fd uintptr) bool {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		return err != nil || n >= len(b)
	}); err != nil {
		h.t.Fatal(err)
	}
}

// result is what ReadNow returned.
type result struct {
	n    int
	more bool
	err  error
}

func (h *harness) readNow(b []byte) (r result) {
	h.t.Helper()
	if err := h.raw.Control(func(fd uintptr) { r.n, r.more, r.err = h.conn.ReadNow(h.server, fd, b) }); err != nil {
		h.t.Fatal(err)
	}
	return r
}

// pump reads in pieces of size until there is nothing left.
func (h *harness) pump(size int) (data []byte, err error) {
	h.t.Helper()
	b := make([]byte, size)
	for {
		r := h.readNow(b)
		data = append(data, b[:r.n]...)
		if r.err != nil || !r.more {
			return data, r.err
		}
	}
}
