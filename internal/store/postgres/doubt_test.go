package postgres

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// cutter is a proxy that cuts the connection on which the next COMMIT arrives.
type cutter struct {
	to       string
	listener net.Listener

	mu      sync.Mutex
	armed   bool
	forward bool // the COMMIT reaches the server
	refuse  bool // no connection is accepted afterwards
	refused bool
	wg      sync.WaitGroup
}

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

func (c *cutter) arm(forward, refuse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.forward, c.refuse, c.refused = true, forward, refuse, false
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
		c.wg.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		c.wg.Go(func() {
			c.relay(client, server)
			_, _ = client.Close(), server.Close()
		})
	}
}

// relay copies what the client sends until it has to cut.
func (c *cutter) relay(client, server net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		cut, forward := false, true
		if bytes.Contains(b[:n], []byte("COMMIT\x00")) {
			c.mu.Lock()
			if cut = c.armed; cut {
				forward, c.refused, c.armed = c.forward, c.refuse, false
			}
			c.mu.Unlock()
		}
		if cut {
			_ = client.Close() // first: the response must not arrive
		}
		if forward {
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
		if cut {
			if s, ok := server.(*net.TCPConn); ok {
				_ = s.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, server) // until the server has ended the session
			return
		}
	}
}

// Guarantee: if the connection is lost during COMMIT, Update finds out whether its changes are stored, and
// says so. Only if the database stays away is that in doubt, and then the error has control.ErrInDoubt.
func TestLostCommit(t *testing.T) {
	direct := migrated(t)
	c, through := throughCutter(t, direct)
	db, other := openWith(t, Config{URL: through}), openWith(t, Config{URL: direct})
	insert := func(name string) error {
		return db.Update(t.Context(), func(tx control.Tx) error {
			return tx.InsertAccount(t.Context(), &account.Account{ID: id.New(id.Account), Name: name, Plan: account.Scale})
		})
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
		c.arm(true, false)
		if err := insert(name); err != nil || !stored(name) {
			t.Errorf("the response was lost: Update returned %v, stored %t; want nil, true", err, stored(name))
		}
	}
	c.arm(false, false)
	if err := insert("lost"); fault.CodeOf(err) != fault.Unavailable || errors.Is(err, control.ErrInDoubt) || stored("lost") {
		t.Errorf("the COMMIT was lost: Update returned %v, stored %t; want an error that is not in doubt, false", err, stored("lost"))
	}
	c.arm(true, true)
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
