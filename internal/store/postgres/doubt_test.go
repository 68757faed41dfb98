package postgres

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// cutter is a proxy that cuts the connection on which the next COMMIT arrives, and counts round trips.
type cutter struct {
	to       string
	listener net.Listener

	mu      sync.Mutex
	armed   bool
	when    cutWhen
	refuse  bool // no connection is accepted afterwards
	refused bool
	wg      sync.WaitGroup
	// trips is the number of round trips over all connections: how often a client has sent something after it
	// got a response.
	trips atomic.Int64
}

// cutWhen is when a cutter cuts.
type cutWhen int

const (
	cutBefore cutWhen = iota // the server does not get COMMIT
	cutDuring                // the server gets COMMIT, and maybe a request to cancel it, which the driver sends
	cutAfter                 // the server has carried COMMIT out
)

// throughCutter returns a database URL that leads through a cutter.
func throughCutter(t *testing.T, to string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	addr := porttest.Reserve(t)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{to: u.Host, listener: l}
	u.Host = addr
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.wg.Wait()
	})
	return c, u.String()
}

func (c *cutter) arm(when cutWhen, refuse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.when, c.refuse, c.refused = true, when, refuse, false
}

func (c *cutter) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.refused = false, false
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		refused := c.refused
		c.mu.Unlock()
		server, err := net.Dial("tcp", c.to)
		if err != nil || refused {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		r := &responses{Conn: server}
		c.wg.Go(func() {
			_, _ = io.Copy(client, r)
			_ = client.Close()
		})
		c.wg.Go(func() {
			c.relay(client, r)
			_, _ = client.Close(), server.Close()
		})
	}
}

// responses is the connection to the server.
type responses struct {
	net.Conn
	asked atomic.Bool // since the server has sent something
	lose  atomic.Bool // the next response does not arrive
}

func (r *responses) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.asked.Store(false)
	if r.lose.Load() {
		return 0, io.EOF
	}
	return n, err
}

// prepared is the message that prepares COMMIT, with the name of the statement.
var prepared = regexp.MustCompile(`(stmtcache_[0-9a-f]+\x00)COMMIT\x00`)

// relay copies what the client sends until it has to cut the connection. COMMIT arrives as a text, or as the name
// under which the client has prepared it.
func (c *cutter) relay(client net.Conn, server *responses) {
	b := make([]byte, 64<<10)
	commit := []byte("COMMIT\x00")
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if !server.asked.Swap(true) {
			c.trips.Add(1)
		}
		cut, when := false, cutAfter
		if m := prepared.FindSubmatch(b[:n]); m != nil {
			commit = bytes.Clone(m[1])
		} else if bytes.Contains(b[:n], commit) || bytes.Contains(b[:n], []byte("COMMIT\x00")) {
			c.mu.Lock()
			if cut = c.armed; cut {
				when, c.refused, c.armed = c.when, c.refuse, false
			}
			c.mu.Unlock()
		}
		if cut {
			server.lose.Store(true)
			if when != cutAfter {
				_ = client.Close()
			}
			if when == cutBefore {
				return
			}
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
		if cut && when == cutDuring {
			if s, ok := server.Conn.(*net.TCPConn); ok {
				_ = s.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, server.Conn) // until the server has ended the session
			return
		}
	}
}

// Guarantee: if the connection is lost during COMMIT, or the statements that are sent with it, Update finds out
// whether its changes are stored, and says so. Only if the database stays away, this is in doubt, and then the
// error has control.ErrInDoubt.
func TestLostCommit(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testLostCommit(t, mode)
		})
	}
}

// modes returns values of a database URL's default_query_exec_mode: how statements are sent, which poolers
// restrict. The first is the default.
func modes() []string { return []string{"cache_statement", "exec", "simple_protocol"} }

func testLostCommit(t *testing.T, mode string) {
	direct := migrated(t)
	c, through := throughCutter(t, direct)
	through += "&default_query_exec_mode=" + mode
	db, other := openWith(t, Config{URL: through}), openWith(t, Config{URL: direct})
	insert := func(name string) error {
		return db.Update(t.Context(), func(tx control.Tx) error { return insertAccount(t, tx, name) })
	}
	stored := func(name string) bool {
		err := other.View(t.Context(), func(tx control.ReadTx) error {
			_, err := tx.AccountByName(t.Context(), name)
			return err
		})
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			t.Fatal(err)
		}
		return err == nil
	}
	for range 3 {
		name := id.New(id.Account)
		c.arm(cutAfter, false)
		if err := insert(name); err != nil || !stored(name) {
			t.Errorf("the response was lost: Update returned %v, stored %t; want nil, true", err, stored(name))
		}
		name = id.New(id.Account)
		c.arm(cutDuring, false)
		if err := insert(name); (err == nil) != stored(name) || errors.Is(err, control.ErrInDoubt) {
			t.Errorf("the connection was lost during COMMIT: Update returned %v, stored %t", err, stored(name))
		}
	}
	c.arm(cutBefore, false)
	if err := insert("lost"); fault.CodeOf(err) != fault.Unavailable || errors.Is(err, control.ErrInDoubt) || stored("lost") {
		t.Errorf("the COMMIT was lost: Update returned %v, stored %t; want an error that is not in doubt, false", err, stored("lost"))
	}
	c.arm(cutAfter, true)
	if err := insert("doubt"); fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, control.ErrInDoubt) || db.Trouble() == "" {
		t.Errorf("the database stayed away: Update returned %v, trouble %q; want an error in doubt", err, db.Trouble())
	}
	c.disarm()
	if err := insert("next"); err != nil || !stored("next") {
		t.Errorf("afterwards: Update returned %v", err)
	}
	if db.Trouble() != "" {
		t.Errorf("afterwards the store is in trouble: %s", db.Trouble())
	}
}
