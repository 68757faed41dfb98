package e2e

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/keygate/keygate/client"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// run changes keys with all clients until the server does not answer any more or stop is called.
func (m *changeModel) run() (stop func()) {
	end := make(chan struct{})
	var group sync.WaitGroup
	for client, admin := range m.admins {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(client)))
			for {
				select {
				case <-end:
					return
				default:
					m.change(r, admin)
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(end); group.Wait() })
}

// acknowledged returns the keys as they were acknowledged until now.
func (m *changeModel) acknowledged() map[string]keyState {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]keyState{}
	for id, k := range m.known {
		all[id] = *k
	}
	return all
}

// await waits until there are n acknowledged keys, and the given number of revoked keys.
func (m *changeModel) await(t *testing.T, n, revoked int) map[string]keyState {
	t.Helper()
	var all map[string]keyState
	if !awaittest.Holds(func() bool {
		all = m.acknowledged()
		ended := 0
		for _, k := range all {
			if k.revoked {
				ended++
			}
		}
		return len(all) >= n && ended >= revoked
	}) {
		t.Fatalf("got %d keys, want %d, and %d revoked ones", len(all), n, revoked)
	}
	return all
}

// sealEverything seals the audit log of a stopped server at once, as a running server does after a while.
func sealEverything(t *testing.T, dataDir, accountID string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dataDir, "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w, err := auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: accountID})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// drill is what a restored server must have: everything that was acknowledged before the backup began.
type drill struct {
	keys    map[string]keyState
	events  map[string]bool
	witness string // the identifier of a key with 20 authentications
	head    *client.AuditHead
}

// check checks a server that was started on the restored store.
func (d *drill) check(t *testing.T, s *server) {
	t.Helper()
	for id, k := range d.keys {
		if a := s.call(http.StatusOK, "GET", "/v1/keys/"+id, nil); k.revoked && a.field(t, "state") != "revoked" {
			t.Errorf("the key %s was revoked before the backup, and is %s", id, a.body)
		}
		if got := s.sendStatus("GET", "/x", k.secret); k.revoked && got != http.StatusUnauthorized {
			t.Errorf("a request with the revoked key %s got %d, want 401", id, got)
		}
	}
	now := s.allEventIDs()
	for id := range d.events {
		if !now[id] {
			t.Errorf("the event %s is missing", id)
		}
	}
	if n := len(s.list("/v1/audit-log?kind=authentication&limit=100&key_id=" + d.witness)); n != 20 {
		t.Errorf("got %d authentications of a key from before the backup, want 20", n)
	}
	recorded := map[string]bool{}
	for e, err := range s.adminAPI().AuditLog(t.Context(), client.AuditFilter{Kind: "management"}) {
		if err != nil {
			t.Fatal(err)
		}
		recorded[e.Action+" "+e.Target] = true
	}
	for id, k := range d.keys {
		if !recorded["key.create "+id] || k.revoked && !recorded["key.revoke "+id] {
			t.Errorf("a management record of the key %s is missing", id)
		}
	}
}

// Guarantee: a backup that is made with the command under load, of a server that is killed afterwards, is restored with
// the command into an empty directory, and has everything that was acknowledged before the backup began: keys,
// revocations, events and audit records. The audit chain is intact, and the server goes on.
func TestRestoreDrill(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--log-level", "error")
	s.newGateway(up.URL, nil)
	d := drill{}
	var secret string
	d.witness, secret = s.newKey(nil)
	for range 20 {
		s.mustSend(http.StatusOK, "GET", "/x", secret)
	}
	account := s.call(http.StatusOK, "GET", "/v1/account", nil).field(t, "account_id")
	s.end(syscall.SIGTERM)
	sealEverything(t, s.dataDir, account)
	s.start()
	head, err := s.adminAPI().AuditHead(t.Context())
	if err != nil || head.Digest == nil {
		t.Fatalf("got the head %+v, %v", head, err)
	}
	d.head = head

	m := newChangeModel(s, 3)
	stop := m.run()
	defer stop()
	d.keys = m.await(t, 40, 10)
	d.events = s.allEventIDs()
	file := filepath.Join(t.TempDir(), "backup.db")
	if out, status := s.keygate("backup", "--data-dir", s.dataDir, "--with-secret-key", file); status != 0 {
		t.Fatalf("backup: got exit status %d\n%s", status, out)
	}
	m.await(t, len(m.acknowledged())+10, 0)
	s.end(syscall.SIGKILL)
	stop()

	s.dataDir = filepath.Join(t.TempDir(), "restored")
	if out, status := s.keygate("restore", "--data-dir", s.dataDir, file); status != 0 {
		t.Fatalf("restore: got exit status %d\n%s", status, out)
	}
	if _, err := os.Stat(filepath.Join(s.dataDir, "secret.key")); err != nil {
		t.Error(err)
	}
	if out, status := s.keygate("audit-log", "verify", "--data-dir", s.dataDir, "--head", *d.head.Digest); status != 0 {
		t.Errorf("verify: got exit status %d, want 0 with the head from before the backup\n%s", status, out)
	}
	s.start()
	d.check(t, s)
	_, secret = s.newKey(nil)
	s.mustSend(http.StatusOK, "GET", "/x", secret)
	t.Logf("%d keys and %d events were restored", len(d.keys), len(d.events))
}
